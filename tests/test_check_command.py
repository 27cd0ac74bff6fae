"""`flamejax theory check`: exit codes, the word beside each condition, advice that holds."""

import re
import shlex

import pytest

from flamejax.cli import main
from flamejax.report import conditions_figure
from flamejax.theory import conditions
from flamejax.theory.conditions import PAPER, Point

PNG = b"\x89PNG\r\n\x1a\n"
INSIDE = "--lam 0.23 --rho 0.1 --clients 10 --smoothness 0"


@pytest.fixture
def check(capsys):
    """Runs the command: (exit code, what it printed)."""

    def run(text):
        code = main(["theory", "check", *shlex.split(text)])
        found = capsys.readouterr()
        return code, found.err if code == 2 else found.out

    return run


def verdicts(said):
    """{"a": "holds" or "violated", ...} as printed, line by line."""
    lines = re.findall(r"^ *\(([abc])\) .* (holds|violated) *$", said, re.MULTILINE)
    assert said.count("violated") == sum(word == "violated" for _, word in lines)
    return dict(lines)


@pytest.mark.parametrize(
    ("text", "failing"),
    [
        (INSIDE, ""),
        ("--lam 1 --rho 0.1 --clients 10 --smoothness 0", "a"),
        ("--lam 1 --rho 0.1 --clients 10 --smoothness 20", "ac"),
        ("--lam 2 --rho 0.1 --clients 10 --smoothness 0", "ab"),
        ("--lam 0.2 --rho 0.1 --alpha 0.1 --smoothness 0.05", "c"),
        ("--lam 1e3 --rho 5 --alpha 1 --smoothness 1e6", "abc"),
    ],
)
def test_the_word_stands_beside_what_fails_and_nowhere_else(check, text, failing):
    code, said = check(text)
    assert code == (1 if failing else 0)
    expected = {name: "violated" if name in failing else "holds" for name in "abc"}
    assert verdicts(said) == expected


def test_both_sides_are_shown(check):
    said = check("--lam 2 --rho 0.3 --clients 10 --smoothness 1")[1]
    assert re.search(r"\(a\).* 0\.577778 +0\.25 +0\.4327 ", said)
    assert re.search(r"\(c\).* 0\.404444 +0\.2 +2\.022 ", said)
    assert "x = λα = 0.2, ρ = 0.3, Lα = 0.1" in said  # noqa: RUF001
    assert "D_1 of Lemma 1 is -0.3278" in said


@pytest.mark.parametrize(
    "text",
    [
        "--lam 1 --rho 0.1 --clients 10 --smoothness 0",
        "--lam 30 --rho 2 --clients 7 --smoothness 0.1",
        "--lam 1e-3 --rho 1e-5 --alpha 0.0123456789 --smoothness 1.1",
        "--lam 1 --rho 0.1 --alpha 1 --smoothness 0.014642636",  # hardly any room
    ],
)
def test_the_command_that_is_suggested_is_satisfied(check, text):
    code, said = check(text)
    assert code == 1
    suggested = re.search(r"^ *flamejax theory check (.*)$", said, re.MULTILINE)[1]
    code, said = check(suggested)
    assert code == 0
    assert set(verdicts(said).values()) == {"holds"}
    assert "flamejax theory check" not in said  # nothing is left to suggest


def test_where_nothing_can_be_suggested_it_says_how_many_clients_would_do(check):
    code, said = check("--lam 1 --rho 0.1 --clients 10 --smoothness 1")
    assert code == 1
    assert "No λ and ρ satisfy all three" in said  # noqa: RUF001
    clients = int(re.search(r"at least (\d+) clients", said)[1])
    assert "No λ" in check(f"--lam 1 --rho 0.1 --clients {clients - 1} --smoothness 1")[1]
    assert "flamejax theory check" in check(
        f"--lam 1 --rho 0.1 --clients {clients} --smoothness 1"
    )[1]  # fmt: skip


def test_the_papers_setting_is_mentioned_once(check):
    here = check("--lam 1 --rho 0.1 --clients 10 --smoothness 0")[1]
    assert here.count("paper's own") == 1
    assert "do not satisfy" not in here
    for elsewhere in (INSIDE, "--lam 3 --rho 0.1 --clients 10 --smoothness 0"):
        said = check(elsewhere)[1]
        assert said.count("paper's own") == 1
        assert "do not satisfy (a): 1.1 > 0.1" in said


# ---- what is not given comes from the config


def test_lam_rho_and_clients_come_from_the_config(check, tmp_path):
    file = tmp_path / "some.toml"
    file.write_text("[method]\nlam = 0.9\nrho = 0.3\n[partition]\nclients = 3\n")
    said = check(f"{file} --smoothness 0")[1]
    assert "x = λα = 0.3, ρ = 0.3, Lα = 0" in said  # noqa: RUF001
    said = check(f"{file} --smoothness 2 --set partition.clients=9 --rho 0.2")[1]
    assert "x = λα = 0.1, ρ = 0.2, Lα = 0.222222" in said  # noqa: RUF001
    assert "--clients 10" in check("--smoothness 0")[1]  # built in


def test_smoothness_is_estimated_on_bundled_digits(check):
    sets = "model.name=mlr data.limit=300 partition.clients=3 partition.name=iid"
    code, said = check(" ".join(f"--set {one}" for one in sets.split()))
    assert code == 1
    assert "model mlr at the initial point" in said
    low, high, client = re.search(r"from ([\d.]+) to ([\d.]+) \(client (\d)\)", said).groups()
    assert 5 < float(low) <= float(high) < 400
    assert int(client) < 3
    found = re.search(r"L = ([\d.]+) is estimated", said)[1]
    assert float(found) == pytest.approx(float(high), rel=1e-3)
    assert f"L = {found}: x" in said
    assert "Elsewhere the curvature may be larger" in said


def test_smoothness_of_linear_regression_is_its_scale(check):
    sets = (
        "data.name=linreg data.scale=0.05 data.features=3 data.samples=12 engine.precision=float64"
    )
    text = " ".join(f"--set {one}" for one in sets.split())
    code, said = check(f"{text} --lam 0.6383 --rho 0.1943")
    assert code == 0
    assert "L = 0.05 is estimated" in said
    assert "the same everywhere" in said
    code, said = check(f"{text} --set method.weight_decay=0.3 --lam 0.6383 --rho 0.1943")
    assert code == 1
    assert "L = 0.35 is estimated" in said


def test_of_many_clients_some_are_looked_at(check):
    sets = "data.name=linreg data.features=2 data.samples=12 partition.clients=150"
    said = check(" ".join(f"--set {one}" for one in sets.split()))[1]
    assert "Over 100 of 150 clients, drawn by the seed" in said
    assert "L = 1 is estimated" in said


# ---- bad input


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("--lam 0", "--lam '0': should be a number from 1e-30 to 1e"),
        ("--lam -1", "--lam"),
        ("--rho nan", "--rho 'nan'"),
        ("--rho inf", "--rho 'inf'"),
        ("--rho much", "--rho 'much'"),
        ("--smoothness -0.1", "--smoothness '-0.1': should be a number from 0"),
        ("--alpha 0", "--alpha '0'"),
        ("--clients 0", "--clients '0': should be a positive whole number"),
        ("--clients 2.5", "--clients '2.5'"),
        ("--clients 10 --alpha 0.1", "--clients M means --alpha 1/M"),
        ("--set method.name=fedavg --smoothness 0", "'fedavg' has no lam: give --lam"),
        ("--set method.name=pfedme --smoothness 0", "'pfedme' has no rho: give --rho"),
        ("--set method.lam=1e-320 --smoothness 0", "method.lam = 1e-320: should be from 1e-30"),
        ("--set method.alpha=samples --smoothness 0", "give one with --alpha"),
        ("--set method.lamb=3", "method.lamb is not a known key"),
        (f"{INSIDE} --set method.rho=-1", "method.rho"),
        (f"{INSIDE} --plot picture.gif", "--plot picture.gif: should end in .png, .pdf, .svg"),
        (f"{INSIDE} --plot some.toml", "name the config before --plot"),
        ("absent.toml", "absent.toml: cannot read"),
    ],
)
def test_bad_input_is_refused_in_one_line(check, text, says):
    code, said = check(text)
    assert code == 2
    assert says in said
    assert said.count("\n") == 1


def test_a_curvature_that_is_not_finite_is_refused(check):
    sets = "data.name=linreg data.scale=1e30 data.features=2 data.samples=12"
    code, said = check(" ".join(f"--set {one}" for one in sets.split()))
    assert code == 2
    assert "curvature is not finite" in said


# ---- the picture


@pytest.mark.parametrize(
    "form", ["pdf", *(pytest.param(form, marks=pytest.mark.full) for form in ("png", "svg"))]
)
def test_a_picture_is_written(check, tmp_path, form):
    path = tmp_path / "new" / f"region.{form}"
    code, said = check(f"{INSIDE} --plot {path}")
    assert code == 0
    assert f"Picture: {path}" in said
    start = {"png": PNG, "pdf": b"%PDF", "svg": b"<?xml"}[form]
    assert path.read_bytes().startswith(start)


def test_the_pictures_default_name(check, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert check(f"{INSIDE} --plot")[0] == 0
    assert (tmp_path / "feasible.png").read_bytes().startswith(PNG)


def drawn(point):
    """Title, legend labels and left-hand markers of the picture."""
    from matplotlib.figure import Figure

    figure = conditions_figure.draw(Figure(layout="constrained"), point)
    labels = [text.get_text() for text in figure.legends[0].get_texts()]
    lines = {line.get_label(): line for line in figure.axes[0].lines}
    return figure.get_suptitle(), labels, lines, figure.axes


def test_the_picture_shows_what_was_asked_for():
    point = Point(2.0, 0.3, 0.1, 0.05)
    title, labels, lines, axes = drawn(point)
    assert "0.0468 < ρ < 0.26" in title  # noqa: RUF001
    assert {"all hold", "all hold if L = 0", "asked for", "the paper's experiments"} <= set(labels)
    for label, of in (
        ("asked for", point),
        ("the paper's experiments", PAPER),
        ("nearest where all hold", conditions.nearest(point)),
    ):
        (rho,), (x,) = lines[label].get_data()
        assert (rho, x) == pytest.approx((of.rho, of.x))
    rho, low = lines["(c) holds above"].get_data()
    assert low[100] == pytest.approx(conditions.band(rho[100], point.la)[0])
    assert axes[0].get_xlim() == axes[1].get_xlim()


def test_an_empty_region_is_called_so():
    title, labels, _, _ = drawn(Point(2.0, 0.3, 0.1, 1.0))
    assert "empty" in title
    assert "all hold" not in labels
    assert "all hold if L = 0" in labels
    assert "nearest where all hold" not in labels


def test_the_papers_setting_is_one_mark():
    labels = drawn(PAPER)[1]
    assert "asked for, as in the paper's experiments" in labels
    assert "the paper's experiments" not in labels
