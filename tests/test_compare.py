"""Comparisons: what they run, what they show of it, and what happens when they are cut short."""

import csv
import json
import shutil
import statistics
from pathlib import Path

import jax
import matplotlib
import numpy as np
import pytest

import flamejax as fj
from flamejax import locks, records
from flamejax.cli import main
from flamejax.comparison import gather
from flamejax.plan import plan
from flamejax.report.sheet import MISSING

from .imagined import FIGURES, in_losses, pretend
from .standins import pretended_runs

TINY = "rounds=2 eval_every=1 data.limit=400 partition.name=iid partition.clients=4 model.name=mlr"


def sets(*assignments: str) -> list[str]:
    return [word for assignment in assignments for word in ("--set", assignment)]


COMMAND = ["compare", *sets(*TINY.split(), "engine.devices=1"), "--quiet"]
CHOICE = ["--methods", "ditto,local", "--seeds", "0,1", "--rates", "0.5,0.01"]
full = pytest.mark.full
RUNS = {f"{m}/seed{s}" for m in ("ditto/rate0.5", "ditto/rate0.01", "local") for s in "01"}


@pytest.fixture(scope="module", autouse=True)
def _all_devices():
    jax.devices()  # so that engine.devices=1 does not settle how many all other tests have


@pytest.fixture(scope="module")
def done(tmp_path_factory) -> Path:
    """The folder of a tiny comparison."""
    out = tmp_path_factory.mktemp("compare") / "new" / "out"
    assert main([*COMMAND, *CHOICE, "--out", str(out)]) == 0
    return out


@pytest.fixture
def copy(done, tmp_path) -> Path:
    """A comparison of one's own, with what it shows taken away."""
    out = tmp_path / "out"
    shutil.copytree(done / "runs", out / "runs")
    return out


@pytest.fixture
def carried_out(monkeypatch) -> list[list[str]]:
    """Nothing is run: what would be run, one after the other."""
    return pretended_runs(monkeypatch)


def table(folder: Path) -> list[dict[str, str]]:
    with (folder / "table.csv").open() as file:
        return list(csv.DictReader(file))


def only_line(capsys) -> str:
    out, err = capsys.readouterr()
    assert out == ""
    assert [line[:10] for line in err.split("\n")] == ["flamejax: ", ""]
    return err


def test_files(done):
    shown = {"table.md", "table.csv", "comparison.json", "curves.png", "fairness.png"}
    assert {path.name for path in done.iterdir()} == {*shown, "runs"}
    folders = {path.parent for path in done.rglob("summary.json")}
    assert {str(folder.relative_to(done / "runs")) for folder in folders} == RUNS
    names = {*records.FILES} - {*records.SOMETIMES}
    assert all({path.name for path in folder.iterdir()} == names for folder in folders)
    whole = json.loads((done / "comparison.json").read_text())
    assert {str(Path("runs", run)) for run in RUNS} == {run["folder"] for run in whole["runs"]}
    assert whole["config"]["data"]["limit"] == 400
    assert "jax" in whole["environment"]["versions"]
    assert len(whole["rates"]) == 3
    for name in ("curves.png", "fairness.png"):
        assert (done / name).read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


def test_table_holds_means_and_deviations_of_the_runs(done):
    rows = table(done)
    assert [row["method"] for row in rows] == ["ditto", "local"]
    for row in rows:
        rate = f"rate{row['rate']}" if row["method"] == "ditto" else ""
        assert row["seeds"] == "0 1"
        folders = [done / "runs" / row["label"] / rate / f"seed{seed}" for seed in (0, 1)]
        last = [json.loads((f / "summary.json").read_text())["last"] for f in folders]
        for model in ("pm", "gm", "hm"):
            for figure in FIGURES:
                mean, std = row[f"{model}_{figure}_mean"], row[f"{model}_{figure}_std"]
                if last[0][model] is None:
                    assert (mean, std) == ("", "")
                    continue
                values = [one[model][figure] for one in last]
                assert float(mean) == pytest.approx(statistics.mean(values))
                assert float(std) == pytest.approx(statistics.stdev(values))
        losses = [one["train_loss"] for one in last]
        assert float(row["train_loss_mean"]) == pytest.approx(statistics.mean(losses))


def test_the_rate_shown_is_the_best_on_validation(done):
    whole = json.loads((done / "comparison.json").read_text())
    tried = [row for row in whole["rates"] if row["label"] == "ditto"]
    assert [row["rate"] for row in tried] == [0.5, 0.01]
    merit = {}
    for rate in (0.5, 0.01):
        folders = [done / "runs" / "ditto" / f"rate{rate}" / f"seed{seed}" for seed in (0, 1)]
        rows = [json.loads((f / "metrics.jsonl").read_text().splitlines()[-1]) for f in folders]
        merit[rate] = statistics.mean(row["selection"]["accuracy"]["hm"] for row in rows)
    assert float(table(done)[0]["rate"]) == max(merit, key=merit.get)
    said = (done / "table.md").read_text()
    assert f"global_lr {table(done)[0]['rate']}" in said
    assert all(f"{value:.4f}".removeprefix("0") in said for value in merit.values())


def test_the_least_loss_variance_is_best(done):
    rows = table(done)
    cells = [line.split(" | ") for line in (done / "table.md").read_text().splitlines()]
    cells = [row for row in cells if len(row) == 7][1:]
    for column, figure, best in (
        (1, "pm_accuracy", max),
        (4, "pm_worst10", max),
        (5, "pm_loss_var", min),
    ):
        values = [float(row[f"{figure}_mean"]) for row in rows]
        assert "**" in cells[values.index(best(values))][column]
        assert all(
            "**" in row[column] or v != best(values) for row, v in zip(cells, values, strict=True)
        )


def test_finished_runs_are_not_repeated(copy, done, carried_out):
    stamps = {path: path.stat().st_mtime_ns for path in (copy / "runs").rglob("*")}
    assert main([*COMMAND, *CHOICE, "--out", str(copy)]) == 0
    assert carried_out == []
    assert {path: path.stat().st_mtime_ns for path in (copy / "runs").rglob("*")} == stamps
    for name in ("table.md", "table.csv", "curves.png", "fairness.png"):
        assert (copy / name).read_bytes() == (done / name).read_bytes()


def test_a_finished_comparison_is_drawn_again_against_bytes(copy, done, carried_out):
    command = [*COMMAND, *CHOICE, "--out", str(copy), "--against", "bytes"]
    assert main(command) == 0
    drawn = (copy / "curves.png").read_bytes()
    assert drawn != (done / "curves.png").read_bytes()
    for path in copy.rglob("metrics.jsonl"):  # as they were before rows had bytes
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        assert all(row.pop("bytes") for row in rows)
        path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    (copy / "curves.png").unlink()
    assert main(command) == 0
    assert (copy / "curves.png").read_bytes() == drawn
    for name in ("table.md", "table.csv", "fairness.png"):
        assert (copy / name).read_bytes() == (done / name).read_bytes()
    assert carried_out == []


@pytest.mark.filterwarnings("ignore:.*is damaged")
def test_unfinished_runs_are_done_again(copy, carried_out):
    folder = copy / "runs" / "local"
    (folder / "seed0" / records.CHECKPOINTS / "round-000001").mkdir(parents=True)
    (folder / "seed0" / "summary.json").rename(folder / "seed0" / ".summary.json.part")
    summary = json.loads((folder / "seed1" / "summary.json").read_text())
    (folder / "seed1" / "summary.json").write_text(json.dumps({**summary, "status": "interrupted"}))
    more = ["--methods", "fedavg,local", "--seeds", "0,1"]
    assert main([*COMMAND, *more, "--out", str(copy)]) == 0
    runs = ["fedavg/seed0", "fedavg/seed1", "local/seed0", "local/seed1"]
    assert carried_out == [[run] for run in runs]
    names = {path.name for path in (folder / "seed0").iterdir()}
    assert names == {"config.toml", "metrics.jsonl", "summary.json"}


def test_a_run_with_a_checkpoint_goes_on_from_there(tmp_path):
    words = [*sets("rounds=4", "checkpoint.every=2", "engine.rounds_per_call=1"), "--methods"]
    command = [*COMMAND, *words, "local", "--out", str(tmp_path / "out")]
    assert main(command) == 0
    folder = tmp_path / "out" / "runs" / "local" / "seed0"
    metrics = (folder / "metrics.jsonl").read_text()
    before = (folder / "timings.jsonl").read_text().splitlines()
    (folder / "summary.json").unlink()
    shutil.rmtree(folder / records.CHECKPOINTS / "round-000004")
    assert main(command) == 0
    assert (folder / "metrics.jsonl").read_text() == metrics
    after = (folder / "timings.jsonl").read_text().splitlines()
    assert [json.loads(line)["round"] for line in after] == [1, 2, 3, 4]
    assert after[:2] == before[:2]  # as measured then, so these rounds were not repeated
    assert after[2:] != before[2:]


def test_other_settings_are_refused_before_anything_runs(copy, carried_out, capsys):
    words = ["--methods", "flame,local", "--seeds", "0", *sets("rounds=3"), "--out", str(copy)]
    before = {path: path.stat().st_mtime_ns for path in copy.rglob("*")}
    assert main([*COMMAND, *words]) == 2
    assert "runs/local/seed0 was run with rounds = 2, not 3; name another --out" in only_line(
        capsys
    )
    (copy / "runs/local/seed0/summary.json").unlink()
    (copy / "runs/local/seed0/thesis.tex").touch()
    assert main([*COMMAND, *words]) == 2
    assert "holds what is not part of a run" in only_line(capsys)
    assert carried_out == []
    assert before.keys() <= {*copy.rglob("*"), copy / "runs/local/seed0/summary.json"}


def test_interrupted_comparison_goes_on(tmp_path, carried_out, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("config.toml").write_text('[method]\nname = "pfedme"\nlr = 13.0\n')  # the third run
    words = ["config.toml", "--methods", "fedavg,pfedme", "--seeds", "0,1"]
    assert main([*COMMAND, *words]) == 130
    said = "interrupted; 2 of 4 runs are done, and the same command with --out runs/compare"
    assert f"{said} continues" in only_line(capsys)
    assert not Path("runs/compare/comparison.json").exists()
    assert main([*COMMAND, *words, "--out", "runs/compare"]) == 130
    assert "2 of 4 runs are done, and the same command continues" in only_line(capsys)
    Path("config.toml").write_text("")
    assert main([*COMMAND, *words, "--out", "runs/compare"]) == 0
    runs = ["fedavg/seed0", "fedavg/seed1", *["pfedme/seed0"] * 3, "pfedme/seed1"]
    assert carried_out == [[run] for run in runs]
    assert len(table(Path("runs/compare"))) == 2


def test_diverging_run(tmp_path, capsys):
    words = ["--methods", "flame,local", *sets("method.lr=1e30"), "--out", str(tmp_path / "out")]
    assert main([*COMMAND, *words]) == 3
    assert "flamejax: diverged: flame, seed 0" in only_line(capsys)
    said = (tmp_path / "out" / "table.md").read_text()
    assert "| flame (paper) |" + " diverged |" * 5 in said
    assert "Diverged: flame, seed 0" in said
    assert table(tmp_path / "out")[0]["pm_accuracy_mean"] == ""
    stamps = {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / "runs").rglob("*")}
    assert main([*COMMAND, *words]) == 3
    assert "flamejax: diverged: flame, seed 0" in only_line(capsys)
    again = {path: path.stat().st_mtime_ns for path in (tmp_path / "out" / "runs").rglob("*")}
    assert again == stamps  # nothing is repeated


def test_one_comparison_at_a_time(copy, capsys):
    with locks.alone(copy):
        assert main([*COMMAND, *CHOICE, "--out", str(copy)]) == 2
    assert "in use by another process" in only_line(capsys)


# options -> a piece of the refusal
BAD = [
    (
        ["--methods", "flame,dito"],
        "--methods = 'dito' is not one of the methods; did you mean 'ditto'?",
    ),
    (["--methods", "flame:publish"], "flame has 'paper' or 'published'"),
    (["--methods", "fedavg+krum"], "did you mean 'multi_krum'?"),
    (["--methods", ""], "--methods '' should be a list of NAME[:PRESET][+AGGREGATOR]"),
    (["--methods", "flame:"], "--methods 'flame:' should be"),
    (["--methods", "flame,flame"], "--methods names flame twice"),
    (["--methods", "flame,flame:paper"], "flame and flame:paper are the same"),
    (["--methods", "fedavg,fedavg+mean"], "fedavg and fedavg+mean are the same"),
    (["--seeds", "0,a"], "--seeds '0,a' should be a list of whole numbers"),
    (["--seeds", "4294967296"], "--seeds"),
    (["--seeds", "1,1"], "--seeds names 1 twice"),
    (["--rates", "0"], "--rates '0' should be a list of numbers above 0"),
    (["--rates", "1e39"], "method.global_lr = 1e+39"),
    (["--rates", ".1,0.1"], "--rates names 0.1 twice"),
    (["--rates", "1", "--methods", "flame,local"], "none of the methods has a global_lr"),
    (["--rates", "1", *sets("method.global_lr=1")], "exclude each other"),
    (sets("method.lamb=1"), "none of the methods has this setting; did you mean 'method.lam'?"),
    (sets("method.name=flame"), "--set method.name: use --methods"),
    (sets("method.preset=paper"), "--set method.preset: use --methods"),
    (sets("method=3"), "method must be a table"),
    (sets("method.lr=-1"), "method.lr = -1 should be greater than 0"),
    (sets("rounds=0"), "flamejax: rounds = 0 should be greater than 0"),
    (sets("out=x"), "out is not a known key"),
    (sets("data=3"), "data = 3 should be a table of settings"),
    (sets("data.name=mnist", "data.dir=nowhere"), "nowhere' is not a folder"),
    (["missing.toml"], "missing.toml: cannot read"),
    (["--out", "file"], "file already exists"),
    (["--out", "."], "not an empty folder"),
    (["--out", "x" * 300], "File name too long"),
]


@pytest.mark.parametrize(("words", "said"), BAD, ids=[" ".join(w)[:40] for w, _ in BAD])
def test_refusals(words, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    Path("runs").mkdir()  # of other work: this folder is no comparison
    before = sorted(tmp_path.rglob("*"))
    assert main(["compare", *words]) == 2
    assert said in only_line(capsys)
    assert sorted(tmp_path.rglob("*")) == before


def test_python(tmp_path, monkeypatch, rng):
    monkeypatch.chdir(tmp_path)
    matplotlib.use("Agg")
    labels = rng.integers(0, 3, 90).astype(np.int32)
    images = rng.integers(0, 256, (90, 4, 4), dtype=np.uint8)
    found = fj.compare(
        methods=["fedavg"],
        seeds=range(2),
        rounds=2,
        partition={"name": "iid", "clients": 3},
        data=fj.Dataset(images, labels, 3),
        model={"name": "mlr"},
        method={"lr": 0.05},
        quiet=True,
    )
    assert not list(tmp_path.iterdir())
    assert [row["label"] for row in found.rows] == ["fedavg"]
    assert found.rows[0]["seeds"] == [0, 1]
    assert found.curves[0]["pm_accuracy"].shape == (2, 1)
    assert "own data" in found.table()
    assert len(found.plot().axes) == len(found.plot(against="bytes").axes) == 2
    with pytest.raises(fj.InputError, match="against = 'time' should be 'rounds' or 'bytes'"):
        found.plot(against="time")
    assert len(found.fairness().axes) == 1
    assert callable(fj.compare)  # the function, not a module of that name
    (tmp_path / "out" / "runs").mkdir(parents=True)
    with pytest.raises(fj.InputError, match="not an empty folder"):
        fj.compare(data=fj.Dataset(images, labels, 3), out=tmp_path / "out")


def of_a_regression():
    return fj.compare(
        methods=["pfedme", "local"],
        rates=[0.01, 0.1],
        rounds=2,
        data={"name": "linreg", "samples": 20, "features": 3},
        partition={"clients": 3},
        quiet=True,
    )


def of_an_imagined_regression():
    """The same from records of runs that were not."""
    _, runs = plan(None, {}, ["pfedme", "local"], [0], [0.1, 0.01])
    return gather(runs, [in_losses(pretend(run.config), run.rate or 0) for run in runs])


@pytest.mark.parametrize(
    "compared", [of_an_imagined_regression, pytest.param(of_a_regression, marks=full)]
)
def test_a_regression_is_compared_by_losses(compared):
    matplotlib.use("Agg")
    found = compared()
    assert found.about["measure"] == "loss"
    best, other = sorted(found.rates[:2], key=lambda row: row["selection_loss_hm_mean"])
    assert found.rows[0]["rate"] == best["rate"] != other["rate"]
    assert f"{found.rows[0]['pm_loss_mean']:.4g}" in found.table()
    assert "no usable global model" in found.table()  # of local, and of it alone
    assert found.table().count(f"| {MISSING}") == 2
    assert len(found.plot().axes) == 1
    axes = found.fairness().axes[0]
    assert axes.yaxis_inverted()
    assert axes.get_ylabel().startswith("test loss")
