"""Experiments: their files, the runs they consist of, sharing and going on, several processes."""

import json
import shutil
import tomllib
from pathlib import Path

import pytest

from flamejax import many, readback, records
from flamejax.cli import main
from flamejax.errors import InputError
from flamejax.experiment import estimate
from flamejax.experiment.definition import Choice, cells, define, names, shelf

from .standins import pretended_runs

full = pytest.mark.full
NAMES = ["table2", "convergence", "robustness", "fairness", "headline"]
TRENDS = ["lambda", "local-iterations", "rho", "participation"]
TINY = ["--set", "data.limit=400", "--set", "engine.devices=1", "--quiet"]
TINY += ["--partitions", "hybrid,quantity"]


def found(name: str, changes: dict | None = None, **choice) -> list:
    return cells(define(name), Choice(**choice), changes or {})


def reread(folder: Path):
    (found,) = readback.read(folder)
    return found.what


def test_what_there_is():
    assert set(names()) == {*NAMES, *TRENDS}
    assert all(names().values())


def test_the_accuracy_table_has_the_rows_of_the_paper():
    rows = {(cell.data, cell.partition) for cell in found("table2", seeds="1")}
    assert len(rows) == 37
    assert ("femnist", "writer") in rows
    one = next(c for c in found("table2") if c[:2] == ("cifar10", "q4") and "pub" in c.run.label)
    config = one.run.config
    assert (config.data.name, config.partition.name, config.partition.q) == ("cifar10", "qlabel", 4)
    assert (config.rounds, config.partition.clients, config.method.preset) == (100, 10, "published")
    assert (config.method.lam, config.method.rho, config.method.lr) == (1.0, 0.1, 0.01)
    assert config.selection.on == "validation"  # the paper's choice on the test split is beside it


@pytest.mark.parametrize(
    ("name", "key", "values", "others"),
    [
        ("lambda", "lam", [1, 3, 5], {"rho": 0.1, "epochs": 3}),
        ("local-iterations", "epochs", [1, 5, 10], {"rho": 0.1, "lam": 5.0}),
        ("rho", "rho", [0.1, 0.5, 1], {"lam": 3.0, "epochs": 3}),
    ],
)
def test_studies_have_the_settings_of_the_paper(name, key, values, others):
    configs = [cell.run.config for cell in found(name, data="mnist", seeds="1")]
    assert [getattr(c.method, key) for c in configs] == [v for v in values for _ in range(2)]
    assert all(getattr(c.method, k) == v for c in configs for k, v in others.items())
    assert {c.method.preset for c in configs} == {"paper", "published"}


def test_participation():
    configs = [cell.run.config for cell in found("participation", seeds="1", data="mnist")]
    assert [c.participation.clients_per_round for c in configs[::2]] == [10, 30, 50]
    assert {(c.partition.clients, c.method.rho, c.method.lam) for c in configs} == {(100, 0.03, 3)}


def test_without_malicious_clients_attacks_are_one():
    runs = found("robustness", data="mnist", partitions="hybrid", seeds="1", forms=["standard"])
    points = [tuple(cell.point.values()) for cell in runs if cell.run.label == "flame"]
    assert len(points) == 13
    assert points.count(("none", 0.0)) == 1
    assert all(c.run.config.malicious == round(50 * c.point["attack.fraction"]) for c in runs)
    assert {c.run.label for c in runs} == {"flame", "pfedme", "ditto", "fedavg+multi_krum"}
    assert {c.run.config.method.rho for c in runs if c.run.label == "flame"} == {0.02}


@pytest.mark.parametrize("name", sorted(names()))
def test_smoke_is_small_and_has_both_ends_and_all_methods(name):
    whole, small = found(name), found(name, smoke=True)
    assert {c.data for c in small} == {"mnist_mini"}
    assert {c.run.config.rounds for c in small} == {2}
    assert {c.run.label for c in small} == {c.run.label for c in whole}
    assert len(small) == 2 * len({c.run.label for c in small}) or not small[0].point
    for key in whole[0].point:
        ends = [whole[0].point[key], whole[-1].point[key]]
        assert list(dict.fromkeys(c.point[key] for c in small)) == ends


def test_runs_in_one_place_are_the_same():
    """Experiments share their runs, so what has one path must have one config."""
    there: dict[Path, str] = {}
    for name in names():
        for cell in found(name, seeds="1,2"):
            text = cell.run.config.to_toml()
            assert there.setdefault(cell.path, text) == text, cell
    shared = {cell.path for cell in found("headline")} <= {c.path for c in found("table2")}
    assert shared


def test_what_is_run_can_be_chosen():
    some = found("table2", data="mnist,fmnist", partitions="q2,quality", methods="flame,ditto",
                 seeds="4,5", rounds=7, forms=["published"])  # fmt: skip
    assert {c.data for c in some} == {"mnist", "fashion_mnist"}
    assert {c.partition for c in some} == {"q2", "quality"}
    assert {c.run.label for c in some} == {"flame:published", "ditto:published"}
    assert {(c.run.config.seed, c.run.config.rounds) for c in some} == {(4, 7), (5, 7)}
    assert len(some) == 16
    writers = found("table2", partitions="writer", seeds="1", forms=["standard"])
    assert {c.data for c in writers} == {"femnist"}
    assert {c.partition for c in found("lambda", data="mnist_mini", partitions="iid,q7")} == {
        "iid",
        "q7",
    }


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["tabel2"], "did you mean 'table2'?"),
        (["table2", "--datasets", "mnits"], "--datasets"),
        (["table2", "--partitions", "hybird"], "--partitions"),
        (["table2", "--methods", "flamme"], "--methods flamme: this experiment has"),
        (["table2", "--seeds", "x"], "--seeds 'x' should be a list of whole numbers >= 0"),
        (["table2", "--rounds", "0"], "--rounds 0 should be at least 1"),
        (["table2", "--jobs", "0", "--smoke"], "--jobs 0 should be at least 1"),
        (["table2", "--smoke", "--datasets", "mnist"], "--smoke has data of its own"),
        (["table2", "--set", "method.lamm=1", "--smoke"], "method.lamm"),
        (["table2", "--set", "data.name=mnist", "--smoke"], "--set data.name: use --datasets"),
        (["table2", "--set", "seed=1", "--smoke"], "--set seed: use --seeds"),
        (["runs.toml"], "name it otherwise"),
        (["nothere.toml"], "nothere.toml: cannot read"),
    ],
)
def test_mistakes_are_refused_in_a_line(words, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["experiment", *words]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_data_that_are_not_there_are_named(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("FLAMEJAX_CACHE", str(tmp_path))
    assert main(["experiment", "table2", "--datasets", "mnist,mnist_mini"]) == 2
    error = capsys.readouterr().err
    assert "mnist not here" in error
    assert "--datasets mnist_mini" in error


def test_own_file(tmp_path):
    text = (shelf() / "lambda.toml").read_text()
    own = tmp_path / "mine.toml"
    own.write_text(text.replace("method.lam = [1.0, 3.0, 5.0]", "method.lam = [0.5]"))
    (cell, *_) = found(str(own), data="mnist_mini")
    assert cell.run.config.method.lam == 0.5
    assert cell.path.parts[:2] == ("runs", "mine")
    own.write_text(text.replace('kind = "trend"', 'kind = "trends"'))
    with pytest.raises(InputError, match="kind = 'trends' should be"):
        define(str(own))


WHOLE = ["experiment", "headline", "--smoke", *TINY, "--seeds", "1,2", "--form", "published"]


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """An experiment whose runs were not."""
    out = tmp_path_factory.mktemp("experiments") / "out"
    with pytest.MonkeyPatch.context() as patch:
        pretended_runs(patch)
        assert main([*WHOLE, "--out", str(out)]) == 0
    return out


@pytest.fixture(scope="module")
def carried_out(tmp_path_factory) -> Path:
    """The same with its runs."""
    out = tmp_path_factory.mktemp("experiments") / "out"
    assert main([*WHOLE, "--out", str(out)]) == 0
    return out


def how_packed(runs: list[Path]) -> set[int]:
    return {json.loads((run / "summary.json").read_text())["together"] for run in runs}


@pytest.mark.parametrize("fixture", ["whole", pytest.param("carried_out", marks=full)])
def test_what_an_experiment_leaves(fixture, request):
    out = request.getfixturevalue(fixture)
    experiment = reread(out / "headline")
    assert (experiment.name, experiment.kind, experiment.missing) == ("headline", "table", [])
    assert experiment.forms == {
        "published": ["flame:published", "pfedme:published", "ditto:published"]
    }
    assert [group[:3] for group in experiment.groups] == [
        ("mnist_mini", "hybrid", {}),
        ("mnist_mini", "quantity", {}),
    ]
    for group in experiment.groups:
        labels = [row["label"] for row in group.comparison.rows]
        assert labels == experiment.forms["published"]
        assert all(row["seeds"] == [1, 2] for row in group.comparison.rows)
    runs = [p.parent for p in out.glob("runs/paper_table/mnist_mini/*/*/*/summary.json")]
    assert len(runs) == 12
    assert (out / "headline/report/report.html").exists()
    assert experiment.about["environment"]["versions"]["flamejax"]
    if fixture == "carried_out":
        assert how_packed(runs) == {2}  # the two seeds in one program


def test_the_seeds_are_run_in_one_program(tmp_path):
    some = ["--methods", "flame", "--partitions", "hybrid", "--out", str(tmp_path / "out")]
    assert main([*WHOLE, *some]) == 0
    (group,) = reread(tmp_path / "out" / "headline").groups
    (row,) = group.comparison.rows
    assert (row["label"], row["seeds"], row["status"]) == ("flame:published", [1, 2], "finished")
    runs = [p.parent for p in (tmp_path / "out").glob("runs/**/summary.json")]
    assert len(runs) == 2
    assert how_packed(runs) == {2}
    assert (tmp_path / "out/headline/report/report.html").exists()


def test_another_experiment_finds_the_runs(whole, tmp_path, capsys):
    out = tmp_path / "out"
    shutil.copytree(whole, out)
    times = {path: path.stat().st_mtime_ns for path in out.glob("runs/**/*")}
    command = ["experiment", "convergence", "--smoke", *TINY, "--seeds", "1,2", "--out", str(out)]
    command.remove("--quiet")
    assert main([*command, "--form", "published"]) == 0
    assert "12 runs, all of them done already" in capsys.readouterr().err
    assert times == {path: path.stat().st_mtime_ns for path in out.glob("runs/**/*")}
    assert reread(out / "convergence").kind == "curves"


def test_experiments_grow(whole, tmp_path, monkeypatch):
    out = tmp_path / "out"
    shutil.copytree(whole, out)
    noted = pretended_runs(monkeypatch)
    command = ["experiment", "headline", "--smoke", *TINY, "--out", str(out), "--form", "standard"]
    more = ["--methods", "flame", "--partitions", "hybrid", "--seeds", "1"]
    assert main([*command, *more]) == 0
    assert [Path(run).name for (run,) in noted] == ["seed1"]
    experiment = reread(out / "headline")
    assert experiment.forms["standard"] == ["flame"]
    labels = [[row["label"] for row in group.comparison.rows] for group in experiment.groups]
    published = experiment.forms["published"]
    assert labels == [[*published, "flame"], published]


def test_another_setting_is_refused(whole, capsys):
    command = ["experiment", "headline", "--smoke", *TINY, "--seeds", "1,2", "--out", str(whole)]
    assert main([*command, "--form", "published", "--rounds", "3"]) == 2
    assert "was run with rounds = 2, not 3; name another --out" in capsys.readouterr().err


def test_an_unfinished_experiment_can_be_read(whole, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(whole, out)
    shutil.rmtree(out / "runs/paper_table/mnist_mini/hybrid/ditto-published/seed2")
    experiment = reread(out / "headline")
    assert experiment.missing == ["mnist_mini, hybrid: ditto:published, seed 2"]
    ditto = experiment.groups[0].comparison.rows[2]
    assert (ditto["label"], ditto["seeds"]) == ("ditto:published", [1])


def test_runs_elsewhere_are_not_read(whole, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(whole / "headline", out / "headline")
    path = out / "headline/experiment.json"
    path.write_text(path.read_text().replace("../runs/", "../../../runs/"))
    with pytest.raises(InputError, match="leads out of"):
        reread(out / "headline")
    for text in ("[]", "{", '{"name": 1}', "[" * 100_000):
        path.write_text(text)
        with pytest.raises(InputError, match=r"experiment\.json: "):
            reread(out / "headline")


@full
def test_several_processes_give_the_same(carried_out, tmp_path):
    command = ["experiment", "headline", "--smoke", *TINY, "--seeds", "1", "--form", "published"]
    assert main([*command, "--jobs", "2", "--out", str(tmp_path / "out")]) == 0
    runs = list((tmp_path / "out").glob("runs/*/*/*/*/seed1"))
    assert len(runs) == 6
    for run in runs:
        once = records.read(carried_out / run.relative_to(tmp_path / "out"))
        again = records.read(run)
        assert once
        assert again
        for one, other in zip(once.rows, again.rows, strict=True):
            assert one["pm"]["loss"] == pytest.approx(other["pm"]["loss"], rel=1e-4)


def test_dry_run(whole, capsys, tmp_path):
    command = ["experiment", "headline", "--smoke", *TINY, "--dry-run", "--form", "published"]
    assert main([*command, "--seeds", "1,2,3", "--out", str(whole)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 19
    assert lines[0] == " finished  mnist_mini, hybrid, flame:published, seed 1"
    assert lines[-1].startswith("18 runs, 12 done, 6 to do: about ")
    assert main([*command, "--out", str(tmp_path / "new")]) == 0
    assert not (tmp_path / "new").exists()


def test_guesses_grow_with_the_work():
    def guess(**choice) -> float:
        configs = [cell.run.config for cell in found("table2", seeds="1", **choice)]
        return estimate.seconds([many.Job("", c, Path("x")) for c in configs[:1]], [None])[0]

    flame = guess(data="mnist", methods="flame")
    assert 6 < flame < guess(data="mnist", methods="ditto") < guess(data="cifar10", methods="ditto")
    assert guess(data="cifar10", methods="flame") < guess(data="medical_mnist", methods="flame")


def test_arithmetic_of_the_networks():
    mlp = 2 * (784 * 128 + 128 * 64 + 64 * 10)
    assert estimate.forward_operations("auto", "mnist", (28, 28, 1), 10) == mlp
    cifar = 2 * (32 * 32 * 16 * 27 + 16 * 16 * 32 * 144 + 2048 * 128 + 1280)
    assert estimate.forward_operations("auto", "cifar10", (32, 32, 3), 10) == cifar


def test_configs_of_experiments_are_complete():
    for name in names():
        raw = tomllib.loads((shelf() / f"{name}.toml").read_text())
        assert (shelf().parent / "configs" / raw["config"]).exists()


def test_a_stopped_experiment_goes_on(tmp_path, monkeypatch, capsys):
    """Between two packs; that single runs go on is tested with sweeps."""
    out = tmp_path / "out"
    command = ["experiment", "headline", "--smoke", *TINY, "--out", str(out), "--methods", "flame"]
    packs = pretended_runs(monkeypatch, lambda _: "interrupted" if len(packs) == 2 else "finished")
    assert main(command) == 130
    said = capsys.readouterr().err
    assert "1 of 4 runs are done, and the same command continues" in said
    assert len(reread(out / "headline").missing) == 3
    assert main(command) == 0
    assert [len(pack) for pack in packs] == [1] * 5
    assert reread(out / "headline").missing == []
