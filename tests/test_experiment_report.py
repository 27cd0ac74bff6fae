"""Tables, figures and LaTeX of experiments."""

import csv
import io
import re

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure

from flamejax.comparer import compare
from flamejax.experiment.paper import Cell
from flamejax.experiment.results import Experiment, Group
from flamejax.report.experiment import parts, rows_csv
from flamejax.report.latex import latex
from flamejax.report.palette import COLORS, save
from flamejax.report.sheet import Sheet, markdown, sheet_csv

from .imagined import imagine

FORMS = {
    "standard": ["flame", "pfedme", "ditto"],
    "published": ["flame:published", "ditto:published"],
}
LABELS = [label for labels in FORMS.values() for label in labels]


def group(accuracy, data="mnist", partition="hybrid", point=None, labels=LABELS, **how):
    """Methods with these accuracies of all models in both seeds, .01 apart."""

    def figures(label, rate, seed):
        found = {"test": accuracy.get(label, 0.5) + 0.005 * (2 * seed - 1)}
        return found | {"status": how.get(label, "finished")}

    found = imagine(labels, figures, rounds=5)
    for row in found.rows:
        row["oracle_accuracy_mean"] = 0.99
        row["gm_loss_mean"] = 0.2 if row["method"] != "fedavg" else row["pm_loss_mean"]
    return Group(data, partition, point or {}, found)


def experiment(kind, groups, forms=FORMS, missing=()):
    return Experiment("name", "A title", kind, forms, groups, list(missing), {})


def drawn(part):
    return [draw(Figure(layout="constrained")) for _, draw in part.figures]


def texts(figure):
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


def test_the_best_of_a_row_is_bold_and_the_oracle_does_not_compete():
    found = experiment(
        "table", [group({"flame": 0.9, "ditto": 0.7}), group({"ditto": 0.8}, partition="q2")]
    )
    standard, published = parts(found, [])
    (sheet,) = standard.sheets
    assert sheet.headings[:5] == [
        "FLAME HM (oracle)",
        "FLAME HM",
        "FLAME PM",
        "FLAME GM",
        "pFedMe PM",
    ]
    bold = [
        [h for h, (_, best) in zip(sheet.headings, row[2:], strict=True) if best]
        for row in sheet.rows
    ]
    assert bold == [["FLAME HM", "FLAME PM", "FLAME GM"], ["Ditto PM", "Ditto GM"]]
    assert [row[2][0] for row in sheet.rows] == [".9900", ".9900"]
    assert sheet.rows[0][3][0] == ".9000 ± .0071"
    assert "pFedMe" not in str(published.sheets)  # forms are not mixed
    assert published.name == "name-published"


def test_ours_beside_the_papers():
    def cell(model, ours, paper, partition="hybrid", std=0.01, label="flame"):
        gap = None if paper is None else ours - paper
        close = None if gap is None else abs(gap) <= 0.02
        return Cell("mnist", partition, "standard", label, label, model, ours, 0.01, 2, 5, paper,
                    std, gap, close, close)  # fmt: skip

    cells = [cell("pm", 0.9, 0.95), cell("gm", 0.9, 0.89), cell("oracle", 0.9, 0.9),
             cell("hm", 0.9, None), cell("pm", 0.5, 0.5, "q2", label="ditto"),
             cell("hm", 0.5, None, "q2", label="ditto")]  # fmt: skip
    standard, published = parts(experiment("table", [group({})]), cells)
    sheet = standard.sheets[1]
    assert [[text for text, _ in row][3:] for row in sheet.rows] == [
        ["PM", ".9000 ± .0100", ".9500 ± .0100", "\u2212.0500", "no"],
        ["GM", ".9000 ± .0100", ".8900 ± .0100", "+.0100", "yes"],
        ["HM (oracle)", ".9000 ± .0100", ".9000 ± .0100", "+.0000", "yes"],
        ["PM", ".5000 ± .0100", ".5000 ± .0100", "+.0000", "yes"],
    ]
    assert "3 of 4 figures" in sheet.notes[0]
    assert len(published.sheets) == 1
    assert published.figures == []
    (figure,) = drawn(standard)
    flame, ditto = figure.axes
    assert [axes.get_title() for axes in figure.axes] == ["FLAME", "Ditto"]
    assert [t.get_text() for t in flame.get_yticklabels()] == ["hybrid skew", "2 labels"]
    bars = [line for line in flame.lines if line.get_linewidth() == 4.5]
    np.testing.assert_allclose(sorted(bar.get_xdata()[0] for bar in bars), [0.87, 0.88, 0.93])
    assert len([line for line in ditto.lines if line.get_marker() == "o"]) == 1  # no hybrid


def test_robustness_lines_begin_without_an_attack():
    labels = ["flame", "fedavg+multi_krum"]
    forms = {"standard": labels}
    none = {"attack.name": "none", "attack.fraction": 0.0}
    groups = [group({"flame": 0.9}, point=none, labels=labels)]
    for name in ("sign_flip", "gaussian"):
        for fraction in (0.5, 0.2):
            point = {"attack.name": name, "attack.fraction": fraction}
            groups.append(group({"flame": 0.9 - fraction}, point=point, labels=labels))
    (part,) = parts(experiment("robustness", groups, forms), [])
    (figure,) = drawn(part)
    assert [axes.get_title() for axes in figure.axes] == ["sign flipping", "Gaussian"]
    for axes in figure.axes:
        looks = [(line.get_linestyle(), line.get_color()) for line in axes.lines]
        assert [style for style, _ in looks] == [":", "-", "--", "--"]  # multi-Krum: GM alone
        np.testing.assert_allclose(looks[0][1], to_rgb(COLORS["flame"]))
        np.testing.assert_allclose(axes.lines[0].get_xdata(), [0, 0.2, 0.5])
        np.testing.assert_allclose(axes.lines[0].get_ydata(), [0.9, 0.7, 0.4])
    assert "multi-Krum" in texts(figure)
    assert "± one std over seeds" in texts(figure)
    (sheet,) = part.sheets
    assert [[text for text, _ in row][2:4] for row in sheet.rows[:2]] == [
        ["none", "0 %"],
        ["sign flipping", "50 %"],
    ]
    assert sheet.headings[-1] == "multi-Krum GM"


def test_curves_have_a_panel_each_and_say_what_diverged():
    data = ["mnist", "fashion_mnist", "cifar10"]
    groups = [
        group({"flame": 0.8}, name, partition, ditto="diverged")
        for name in data
        for partition in ("hybrid", "q2")
    ]
    part = parts(experiment("curves", groups, missing=["one", "two"]), [])[0]
    (figure,) = drawn(part)
    titles = [axes.get_title() for axes in figure.axes]
    assert titles[:4] == ["MNIST, hybrid skew", "Fashion MNIST, hybrid skew",
                          "CIFAR10, hybrid skew", "MNIST, 2 labels"]  # fmt: skip
    assert [bool(axes.get_xlabel()) for axes in figure.axes] == [False] * 3 + [True] * 3
    assert "diverged: Ditto" in [text.get_text() for text in figure.axes[0].texts]
    (sheet,) = part.sheets
    rows = {tuple(t for t, _ in row)[:4]: [t for t, _ in row][4:] for row in sheet.rows}
    assert rows["MNIST", "2 labels", "FLAME", "PM"] == [".8000 ± .0071", ".50", "5"]
    assert rows["MNIST", "2 labels", "Ditto", "PM"] == ["diverged", ".50", "\u2013"]
    assert any(note.startswith("Diverged: mnist hybrid ditto") for note in sheet.notes)
    assert "Not done: one; two." in sheet.notes


def test_many_panels_take_several_figures():
    groups = [group({}, f"data{number}") for number in range(18)]
    part = parts(experiment("fairness", groups), [])[0]
    assert [name for name, _ in part.figures] == ["name-standard-1", "name-standard-2"]
    assert [len(figure.axes) for figure in drawn(part)] == [12, 6]
    assert part.sheets[0].headings == ["accuracy", "loss variance", "worst 10 %"]


def test_trend_keeps_its_shades_where_values_are_missing():
    forms = {"standard": ["flame"]}

    def at(lam, data):
        return group({"flame": lam / 10}, data, point={"method.lam": lam}, labels=["flame"])

    groups = [at(1.0, "mnist"), at(3.0, "mnist"), at(5.0, "mnist"), at(5.0, "cifar10")]
    (part,) = parts(experiment("trend", groups, forms), [])
    (figure,) = drawn(part)
    colors = [[line.get_color() for line in axes.lines] for axes in figure.axes]
    assert len(set(colors[0])) == 3
    assert colors[3] == colors[0][-2:]
    assert figure.axes[0].get_yscale() == "log"
    np.testing.assert_array_equal(figure.axes[2].lines[0].get_xdata(), [1, 3, 5])
    assert texts(figure)[::2][:3] == ["λ = 1", "λ = 3", "λ = 5"]
    (sheet,) = part.sheets
    assert sheet.names[-1] == "λ"
    best = [row[3][0] for row in sheet.rows if row[6][1]]
    assert best == ["5", "5"]  # of either data set


HOSTILE = Sheet(
    r"50 % of R&D_1 #2 ~ ^ \x {y} $z$ <a>",
    ["a_b"],
    ["λ", "100 %"],
    [[("[x]", False), (".98 ± .01", True), ("\u2013", False)]],
    ["± & ρ"],  # noqa: RUF001
)


def test_latex_is_escaped_and_its_columns_match():
    text = latex(HOSTILE)
    assert r"50 \% of R\&D\_1 \#2 \textasciitilde{} \textasciicircum{}" in text
    assert r"\textbackslash{}x \{y\} \$z\$ \textless{}a\textgreater{}" in text
    assert r"{[}x] & \textbf{.98 $\pm$ .01} & -- \\" in text
    assert r"a\_b & $\lambda$ & 100 \% \\" in text
    assert text.isascii()
    wide = parts(experiment("table", [group({})]), [])[0].sheets[0]
    for sheet in (HOSTILE, wide):
        written = latex(sheet)
        columns = re.search(r"\\begin\{tabular\}\{(\w+)\}", written)[1]
        body = [line for line in written.splitlines() if line.endswith(r"\\")]
        assert len(body) == 1 + len(sheet.rows)
        for line in body:
            assert len(re.split(r"(?<!\\)&", line)) == len(columns)
        for opened in re.findall(r"\\begin\{(.*?)\}", written):
            assert written.count(rf"\end{{{opened}}}") == 1
    assert r"\begin{table*}" in latex(wide)


def test_csv_gives_deviations_columns_of_their_own():
    lines = list(csv.reader(io.StringIO(sheet_csv(HOSTILE))))
    assert lines == [["a_b", "λ", "λ std", "100 %"], ["[x]", ".98", ".01", "\u2013"]]


def test_all_figures_in_full_precision():
    groups = [group({"flame": 1 / 3}, point={"method.lam": 3.0}), group({}, "cifar10")]
    rows = list(csv.DictReader(io.StringIO(rows_csv(experiment("trend", groups)))))
    assert len(rows) == 2 * len(LABELS)
    assert (rows[0]["data"], rows[0]["method.lam"], rows[-1]["method.lam"]) == ("mnist", "3.0", "")
    assert float(rows[0]["pm_accuracy_mean"]) == pytest.approx(1 / 3)


KINDS = ["table", "curves", "fairness", "robustness", "trend"]


@pytest.fixture(scope="module")
def real():
    settings = {"rounds": 2, "eval_every": 1, "data": {"limit": 400}, "model": {"name": "mlr"}}
    settings |= {"partition": {"name": "iid", "clients": 4}, "engine": {"devices": 1}}
    return compare(methods=["flame"], seeds=[0, 1], quiet=True, **settings)


@pytest.mark.parametrize(
    "kind",
    ["table", *[pytest.param(kind, marks=pytest.mark.full) for kind in KINDS if kind != "table"]],
)
def test_real_runs_are_written_the_same_twice(kind, real, tmp_path):
    found = experiment(kind, [Group("mnist_mini", "iid", {}, real)], {"standard": ["flame"]})
    row = real.rows[0]
    cells = [Cell("mnist_mini", "iid", "standard", "flame", "flame", "pm",
                  row["pm_accuracy_mean"], row["pm_accuracy_std"], 2, 2, *[None] * 5)]  # fmt: skip
    (part,) = parts(found, cells)
    assert part.name == "name-standard"
    for sheet in part.sheets:
        assert all(shown(sheet) for shown in (markdown, sheet_csv, latex))
    for name, draw in part.figures:
        first, again = (save(draw, tmp_path / f"{name}{number}") for number in (1, 2))
        assert [path.suffix for path in first] == [".png", ".svg", ".pdf"]
        for one, same in zip(first, again, strict=True):
            assert one.read_bytes() == same.read_bytes()


def test_nothing_is_shown_of_forms_without_runs():
    found = experiment("curves", [group({}, labels=["flame"])])
    assert [part.title for part in parts(found, [])] == ["A title, standard form"]
    assert parts(experiment("curves", []), []) == []
