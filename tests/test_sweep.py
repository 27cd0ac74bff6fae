"""Sweeps: what they run and together with what, what they show, and going on after a stop."""

import csv
import json
import shutil
import statistics
from functools import partial
from pathlib import Path

import jax
import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure

import flamejax as fj
from flamejax import config as configs
from flamejax import locks, many, records
from flamejax.cli import main
from flamejax.grid import plan
from flamejax.report.comparison_figures import png
from flamejax.report.sweep_figures import MOST_PANELS, draw
from flamejax.swept import gather
from flamejax.together import structure

from .faults import memory_left
from .imagined import imagine_sweep, in_losses, pretend
from .standins import pretended_runs

TINY = "rounds=2 eval_every=1 data.limit=400 partition.name=iid partition.clients=4 model.name=mlr"


def sets(*assignments: str) -> list[str]:
    return [word for assignment in assignments for word in ("--set", assignment)]


COMMAND = ["sweep", *sets(*TINY.split(), "engine.devices=1"), "--quiet"]
GRID = ["--grid", "method.lam=0.1,10", "--seeds", "0,1"]
full = pytest.mark.full
RUNS = [f"method.lam={lam}/seed{seed}" for lam in ("0.1", "10") for seed in (0, 1)]


@pytest.fixture(scope="module", autouse=True)
def _all_devices():
    jax.devices()  # so that engine.devices=1 does not settle how many all other tests have


@pytest.fixture(scope="module")
def done(tmp_path_factory) -> Path:
    """The folder of a tiny sweep."""
    out = tmp_path_factory.mktemp("sweep") / "new" / "out"
    assert main([*COMMAND, *GRID, "--out", str(out)]) == 0
    return out


@pytest.fixture
def copy(done, tmp_path) -> Path:
    """A sweep of one's own, with what it shows taken away."""
    out = tmp_path / "out"
    shutil.copytree(done / "runs", out / "runs")
    return out


@pytest.fixture
def packs(monkeypatch) -> list[list[str]]:
    """Nothing is run: what would be run together."""
    return pretended_runs(monkeypatch)


def table(folder: Path) -> list[dict[str, str]]:
    with (folder / "table.csv").open() as file:
        return list(csv.DictReader(file))


def only_line(capsys) -> str:
    out, err = capsys.readouterr()
    assert out == ""
    assert [line[:10] for line in err.split("\n")] == ["flamejax: ", ""]
    return err


# --- what is planned


def test_points_and_seeds():
    grid = {"method.lam": [0.1, 1], "partition": {"q": np.array([2, 3])}}
    axes, runs = plan({"method": {"lam": 5.0}}, {"rounds": 7}, grid, "4,5")
    assert axes == {"method.lam": [0.1, 1.0], "partition.q": [2, 3]}
    found = [(r.config.method.lam, r.config.partition.q, r.config.seed) for r in runs]
    assert found == [(lam, q, seed) for lam in (0.1, 1.0) for q in (2, 3) for seed in (4, 5)]
    assert {run.config.rounds for run in runs} == {7}
    assert str(runs[0]) == "method.lam = 0.1, partition.q = 2, seed 4"
    assert str(runs[-1].path) == "runs/method.lam=1,partition.q=3/seed5"


def test_values_are_toml_or_words():
    words = ["participation.clients_per_round=all, 3", "method.lam=1e-05,2", 'data.dir="a,b",c']
    axes, _ = plan(None, {}, words)
    assert axes["participation.clients_per_round"] == ["all", 3]
    assert axes["method.lam"] == [1e-5, 2.0]
    assert [Path(folder).name for folder in axes["data.dir"]] == ["a,b", "c"]


def test_folder_names_are_safe_and_differ():
    values = ["a/b", "a%2Fb", "a,b=c", "../x", "é" * 120, "é" * 119 + "e", "nul"]
    _, runs = plan(None, {}, {"data.dir": values})
    names = [run.path.parts for run in runs]
    assert {len(parts) for parts in names} == {3}
    assert len({parts[1].lower() for parts in names}) == len(values)
    assert all(len(parts[1].encode()) < 255 for parts in names)
    assert all(parts[1].isascii() and not {*parts[1]} & {*'\\/:*?"<>|'} for parts in names)


def test_numbers_that_are_close_have_folders_of_their_own():
    _, runs = plan(None, {}, {"method.lam": [0.1, 0.1 + 1e-12, np.float32(0.1)]})
    assert len({run.path for run in runs}) == 3


def test_grid_and_seeds_of_a_config_are_laid_under_those_of_the_command():
    config = {
        "seed": 8,
        "seeds": [0, 1],
        "grid": {"method": {"lam": [1, 2]}, "method.rho": [3.0]},
        "method": {"rho": 9.0},
    }
    axes, runs = plan(config, {})
    assert axes == {"method.lam": [1, 2], "method.rho": [3]}
    assert [run.config.seed for run in runs] == [0, 1, 0, 1]
    axes, runs = plan(config, {}, ["method.lam=5,6,7"], [4])
    assert axes == {"method.lam": [5, 6, 7], "method.rho": [3]}
    assert {run.config.seed for run in runs} == {4}
    _, runs = plan(config, {}, ["seed=6"])
    assert {run.config.seed for run in runs} == {6}
    _, runs = plan({"seed": 8}, {}, {"rounds": [1]})
    assert [run.config.seed for run in runs] == [8]


def test_settings_for_all_outlive_a_change_of_preset_or_name():
    changes = {"method": {"momentum": 0.7}}
    _, runs = plan(None, changes, {"method.preset": ["paper", "published"]})
    assert [run.config.method.momentum for run in runs] == [0.7, 0.7]
    _, runs = plan({"method": {"lam": 7.0}}, changes, {"method.name": ["flame", "ditto"]})
    assert [run.config.method.momentum for run in runs] == [0.7, 0.7]
    assert runs[0].config.method.lam == 7.0 != runs[1].config.method.lam


def test_what_shares_a_program():
    def make(**method):
        return structure(configs.make({"method": method}))

    alike = {make(lam=lam, rho=rho) for lam in (0.1, 1) for rho in (0.1, 1)}
    assert len(alike | {structure(configs.make({"seed": 3}))}) == 1
    others = [make(), make(momentum=0.5), make(batch=50), make(name="ditto")]
    others += [structure(configs.make({"partition": {"q": 3}}))]
    assert len({*others}) == 5


THREE_RUNS = 11_000  # kB, of which a quarter is enough for three of these runs at a time


def test_packs_are_of_one_structure_and_even(tmp_path, packs, monkeypatch):
    memory_left(monkeypatch, THREE_RUNS)
    words = ["--grid", "method.batch=10,20", "method.lam=1,2", "--seeds", "0,1"]
    assert main([*COMMAND, *words, "--out", str(tmp_path / "auto")]) == 0
    assert [len(pack) for pack in packs] == [2, 2, 2, 2]
    assert all(len({run[:15] for run in pack}) == 1 for pack in packs)
    packs.clear()
    assert main([*COMMAND, *words, "--pack", "4", "--out", str(tmp_path / "four")]) == 0
    assert [len(pack) for pack in packs] == [4, 4]
    whole = json.loads((tmp_path / "four" / "sweep.json").read_text())
    assert whole["packs"] == [[f"runs/{run}" for run in pack] for pack in packs]
    assert [run["program"] for run in whole["runs"]] == [0] * 4 + [1] * 4


@pytest.mark.parametrize(
    ("runs", "shapes", "packs", "said"),
    [
        (45, ["a"] * 45, [45], "45 runs: 1 program for 45 runs"),
        (1, ["a"], [1], "1 run: 1 program for 1 run"),
        (9, ["a", "b"] * 3, [3, 3], "9 runs, 3 of them done already: 2 programs for 3 runs each"),
        (5, [*"aaabb"], [3, 2], "5 runs: 2 programs for 2 to 3 runs"),
        (9, ["a"] * 9, [5, 4], "9 runs: 1 program for 9 runs, 5 at a time"),
        (9, [], [], "9 runs, all of them done already"),
    ],
)
def test_outline(runs, shapes, packs, said):
    assert many.outline(runs, shapes, [[0] * size for size in packs]) == said


# --- what is refused

BAD = [
    ([], "nothing to sweep: give --grid KEY=V1,V2 or --seeds"),
    (["--grid", "method.lam"], "--grid 'method.lam': write it as KEY=V1,V2"),
    (["--grid", "=1"], "--grid '=1': write it as"),
    (["--grid", "method..lam=1"], "write it as"),
    (["--grid", "method.lamb=1,2"], "method.lamb is not a known key; did you mean 'method.lam'?"),
    (["--grid", "method.lam=1,-2"], "method.lam = -2 should be greater than 0"),
    (["--grid", "method.lam="], "method.lam = '' should be a valid number"),
    (["--grid", "method.lam=1,2,1.0"], "--grid method.lam names 1 twice"),
    (["--grid", "method.lam=1", "method.lam=2"], "--grid names 'method.lam' twice"),
    (["--grid", "data.dir=x,./x"], "twice"),
    (["--grid", "method=flame"], "method must be a table of settings"),
    (["--grid", "rounds.x=1"], "rounds = {'x': 1}"),
    (["--grid", "rounds.x=1", *sets("rounds=2")], "'rounds' is a value, not a table"),
    (["--grid", "rounds=1,2", *sets("rounds=2")], "rounds is in the grid and set to 2"),
    (["--grid", "seed=1", "--seeds", "2"], "--seeds and --grid seed exclude each other"),
    (["--grid", "seed=-1"], "--seeds [-1] should be a list of whole numbers"),
    (["--seeds", "1,1"], "--seeds names 1 twice"),
    (["--seeds", "1", *sets("seed=2")], "seed is in the grid and set to 2"),
    (["--seeds", "1", *sets("seeds=[1]")], "--set seeds: use --seeds"),
    (["--seeds", "1", *sets("grid.rounds=[1]")], "--set grid: use --grid"),
    (["--seeds", "1", "--pack", "0"], "--pack '0' should be auto or a whole number above 0"),
    (["--seeds", "1", "--figure", "xm"], "--figure: invalid choice: 'xm'"),
    (["--grid", "partition.clients=20", *sets("participation.clients_per_round=30")], "exceeds"),
    (["--grid", "partition.q=2,11", *sets("partition.name=qlabel")], "partition.q = 11 exceeds"),
    (["--grid", "rounds=2", "config.toml"], "--grid 'config.toml': write it as KEY=V1,V2"),
    (["list.toml"], "grid = 3 should be a table of lists"),
    (["table.toml"], "grid method.lam [[1, 2]] should be a list of values"),
    (["both.toml"], "seeds and grid seed exclude each other"),
    (["seeds.toml"], "seeds 3 should be a list of whole numbers"),
    (["missing.toml", "--seeds", "1"], "missing.toml: cannot read"),
    (["--seeds", "1", "--out", "file"], "file already exists"),
    (["--seeds", "1", "--out", "."], "not an empty folder"),
]


@pytest.mark.parametrize(("words", "said"), BAD, ids=[" ".join(w)[:40] or "-" for w, _ in BAD])
def test_refusals(words, said, tmp_path, monkeypatch, capsys, packs):
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    Path("list.toml").write_text("grid = 3")
    Path("table.toml").write_text("[grid]\nmethod.lam = [[1, 2]]")
    Path("both.toml").write_text("seeds = [1]\ngrid.seed = [2]")
    Path("seeds.toml").write_text("seeds = 3")
    before = sorted(tmp_path.rglob("*"))
    assert main(["sweep", *words]) == 2
    assert said in only_line(capsys)
    assert sorted(tmp_path.rglob("*")) == before
    assert not packs


@pytest.mark.parametrize("key", ["seeds", "grid.method.lam"])
def test_a_run_sends_configs_of_sweeps_to_sweep(key, tmp_path, capsys):
    (tmp_path / "config.toml").write_text(f"{key} = [0, 1]\n")
    for command in ("run", "compare"):
        assert main([command, str(tmp_path / "config.toml"), "--out", str(tmp_path / "x")]) == 2
        assert "use flamejax sweep" in only_line(capsys)


def test_python_refuses_what_is_no_config_data_or_grid():
    for words, said in (
        ({"config": 3}, "config should be a path"),
        ({"data": 3}, "data should be a Dataset or settings"),
        ({"grid": "method.lam=1"}, "should be a table of lists"),
        ({"grid": {"method": [{"lam": 1}]}}, "should be a list of values"),
        ({"pack": 1.5}, "--pack 1.5"),
    ):
        with pytest.raises(fj.InputError, match=said):
            fj.sweep(**{"grid": {"rounds": [1]}, **words})


# --- what is left behind


def test_files(done):
    shown = {"table.md", "table.csv", "sweep.json", "heatmap.png"}
    assert {path.name for path in done.iterdir()} == {*shown, "runs"}
    found = {path.parent for path in done.rglob("summary.json")}
    assert {str(folder.relative_to(done / "runs")) for folder in found} == {*RUNS}
    names = {*records.FILES} - {*records.SOMETIMES}
    assert all({path.name for path in folder.iterdir()} == names for folder in found)
    whole = json.loads((done / "sweep.json").read_text())
    assert whole["grid"] == {"method.lam": [0.1, 10.0]}
    assert whole["seeds"] == [0, 1]
    assert [run["folder"] for run in whole["runs"]] == [f"runs/{run}" for run in RUNS]
    assert {run["status"] for run in whole["runs"]} == {"finished"}
    assert {run["program"] for run in whole["runs"]} == {0}
    assert [run for pack in whole["packs"] for run in pack] == [f"runs/{run}" for run in RUNS]
    assert whole["config"]["data"]["limit"] == 400
    assert "jax" in whole["environment"]["versions"]
    assert (done / "heatmap.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


def test_a_run_of_a_sweep_is_that_run(done, tmp_path):
    inside = done / "runs" / RUNS[-1]
    assert main(["run", str(inside / "config.toml"), "--quiet", "--out", str(tmp_path / "a")]) == 0
    alone = tmp_path / "a"
    assert {path.name for path in alone.iterdir()} == {path.name for path in inside.iterdir()}
    assert (alone / "config.toml").read_text() == (inside / "config.toml").read_text()
    pairs = zip(records.read(alone).rows, records.read(inside).rows, strict=True)
    for one, other in pairs:
        leaves, structures = zip(*map(jax.tree.flatten, (one, other)), strict=True)
        assert structures[0] == structures[1]
        for x, y in zip(*leaves, strict=True):
            assert x == (y if isinstance(y, str) else pytest.approx(y, rel=1e-5))
    first, second = (json.loads((f / "summary.json").read_text()) for f in (alone, inside))
    assert first.keys() == second.keys()
    with np.load(alone / "clients.npz") as one, np.load(inside / "clients.npz") as other:
        assert {*one} == {*other}
        for name in one:
            np.testing.assert_allclose(one[name], other[name], rtol=1e-5)


def test_table_holds_means_and_deviations_of_the_runs(done):
    rows = table(done)
    assert [row["method.lam"] for row in rows] == ["0.1", "10.0"]
    merits = []
    for row in rows:
        assert (row["seeds"], row["status"]) == ("0 1", "finished")
        point = f"method.lam={float(row['method.lam']):g}"
        found = [records.read(done / "runs" / point / f"seed{seed}") for seed in (0, 1)]
        for model in ("pm", "gm", "hm"):
            for figure in ("accuracy", "loss"):
                values = [record.summary["last"][model][figure] for record in found]
                mean, std = row[f"{model}_{figure}_mean"], row[f"{model}_{figure}_std"]
                assert float(mean) == pytest.approx(statistics.mean(values))
                assert float(std) == pytest.approx(statistics.stdev(values))
        chosen = [record.rows[-1]["selection"]["accuracy"]["hm"] for record in found]
        merits.append(statistics.mean(chosen))
    assert [row["best"] for row in rows] == [str(m == max(merits)) for m in merits]
    lines = (done / "table.md").read_text().splitlines()
    cells = [line.split(" | ") for line in lines if line.count(" | ") == 6]
    assert cells[0][0] == "| method.lam"
    marked = [row[0].endswith("\u2605") for row in cells[1:]]
    assert marked == [merit == max(merits) for merit in merits]
    assert f"{max(merits):.4f}".removeprefix("0") in lines[-1]


def test_best_is_the_first_by_the_selection_split():
    chosen = {1.0: 0.3, 2.0: 0.6, 3.0: 0.6, 4.0: 0.9}

    def figures(point, seed):
        lam = point["method.lam"]
        diverges = lam == 4 and seed == 1
        return {
            "test": 1 - lam / 10,
            "chosen": chosen[lam],
            "status": ["finished", "diverged"][diverges],
        }

    found = imagine_sweep({"method.lam": list(chosen)}, figures)
    assert [row["best"] for row in found.rows] == [False, True, False, False]
    assert found.best()["method.lam"] == 2
    assert [row["status"] for row in found.rows] == ["finished"] * 3 + ["diverged"]
    said = found.table()
    assert "| 2 \u2605 | .8000 ± .0000 |" in said
    assert "| 1 | **.9000 ± .0000** |" in said
    assert "| 4 |" + " diverged |" * 6 in said
    assert "Diverged: method.lam = 4, seed 1." in said
    assert found._repr_markdown_() == said
    lost = imagine_sweep({"method.lam": [1, 2]}, lambda *_: {"status": "diverged"})
    assert lost.best() is None
    assert "\u2605" not in lost.table()
    assert png(draw, lost)


def test_title_names_what_all_points_share():
    grid = {
        "partition.clients": [10, 20],
        "method.preset": ["paper", "published"],
        "rounds": [5, 6],
    }
    said = imagine_sweep(grid, lambda *_: {}).table()
    head = said.splitlines()[0]
    assert (
        head == "**flame · mnist_mini data · hybrid (q = 2, beta = 0.5) · mlr model · seeds 0, 1**"
    )
    assert "means over clients, ±" in said
    attack = {"name": "sign_flip", "fraction": 0.3}
    said = imagine_sweep({"method.name": ["flame", "ditto"]}, lambda *_: {}, attack=attack).table()
    assert said.startswith("**mnist_mini data")
    assert "10 clients · sign_flip attack by 3" in said


# --- going on


def test_finished_runs_are_not_repeated(copy, done, packs, capsys):
    stamps = {path: path.stat().st_mtime_ns for path in (copy / "runs").rglob("*")}
    command = [word for word in COMMAND if word != "--quiet"]
    assert main([*command, *GRID, "--out", str(copy)]) == 0
    assert packs == []
    assert {path: path.stat().st_mtime_ns for path in (copy / "runs").rglob("*")} == stamps
    for name in ("table.md", "table.csv", "heatmap.png"):
        assert (copy / name).read_bytes() == (done / name).read_bytes()
    out, err = capsys.readouterr()
    assert err == "4 runs, all of them done already\n"
    assert "method.lam" in out
    assert f"Results: {copy}" in out
    assert main([*COMMAND, *GRID, "--out", str(copy), "--figure", "gm"]) == 0
    assert (copy / "heatmap.png").read_bytes() != (done / "heatmap.png").read_bytes()


@pytest.mark.filterwarnings("ignore:.*is damaged")
def test_unfinished_runs_and_new_points_are_done(copy, packs, capsys):
    (copy / "runs" / RUNS[0] / "summary.json").rename(
        copy / "runs" / RUNS[0] / ".summary.json.part"
    )
    (copy / "runs" / RUNS[0] / records.CHECKPOINTS / "round-000001").mkdir(parents=True)
    path = copy / "runs" / RUNS[2] / "summary.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "status": "interrupted"}))
    command = [word for word in COMMAND if word != "--quiet"]
    words = ["--grid", "method.lam=0.1,10,20", "--seeds", "0,1", "--out", str(copy)]
    assert main([*command, *words]) == 0
    assert packs == [[RUNS[0], RUNS[2], "method.lam=20/seed0", "method.lam=20/seed1"]]
    assert capsys.readouterr().err == "6 runs, 2 of them done already: 1 program for 4 runs\n"
    names = {path.name for path in (copy / "runs" / RUNS[0]).iterdir()}
    assert names == {"config.toml", "metrics.jsonl", "summary.json"}
    assert len(table(copy)) == 3


@pytest.mark.parametrize("new", [[], pytest.param(["0.3"], marks=full)])
def test_runs_with_checkpoints_go_on_from_there(new, tmp_path):
    command = [*COMMAND, *sets("rounds=4", "checkpoint.every=2", "engine.rounds_per_call=1")]
    command += [*sets("method.name=local"), "--out", str(tmp_path / "out"), "--grid"]
    begun = ["method.lr=0.1", "method.lr=0.2"]
    assert main([*command, "method.lr=0.1,0.2"]) == 0
    folders = [tmp_path / "out" / "runs" / point / "seed0" for point in begun]
    metrics = [(folder / "metrics.jsonl").read_text() for folder in folders]
    timings = [(folder / "timings.jsonl").read_text().splitlines() for folder in folders]
    for folder in folders:
        (folder / "summary.json").unlink()
        shutil.rmtree(folder / records.CHECKPOINTS / "round-000004")
    assert main([*command, ",".join(["method.lr=0.1,0.2", *new])]) == 0
    whole = json.loads((tmp_path / "out" / "sweep.json").read_text())
    points = [[Path(folder).parent.name for folder in pack] for pack in whole["packs"]]
    assert points == [begun, *[[f"method.lr={rate}"] for rate in new]]  # what is new for itself
    assert [(folder / "metrics.jsonl").read_text() for folder in folders] == metrics
    for folder, before in zip(folders, timings, strict=True):
        after = (folder / "timings.jsonl").read_text().splitlines()
        assert [json.loads(line)["round"] for line in after] == [1, 2, 3, 4]
        assert after[:2] == before[:2]  # as measured then, so these rounds were not repeated
        assert after[2:] != before[2:]


def test_other_settings_are_refused_before_anything_runs(copy, packs, capsys):
    words = ["--grid", "method.lam=20,0.1", *sets("rounds=3"), "--out", str(copy)]
    before = {path: path.stat().st_mtime_ns for path in copy.rglob("*")}
    assert main([*COMMAND, *words]) == 2
    said = f"runs/{RUNS[0]} was run with rounds = 2, not 3; name another --out"
    assert said in only_line(capsys)
    (copy / "runs" / RUNS[0] / "summary.json").unlink()
    (copy / "runs" / RUNS[0] / "thesis.tex").touch()
    assert main([*COMMAND, *words]) == 2
    assert "holds what is not part of a run" in only_line(capsys)
    assert packs == []
    assert before.keys() <= {*copy.rglob("*"), copy / "runs" / RUNS[0] / "summary.json"}


def test_interrupted_sweep_goes_on(tmp_path, packs, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    words = ["--grid", "method.lr=1,13,2", "--seeds", "0,1"]
    assert main([*COMMAND, *words]) == 130
    said = "interrupted; 2 of 6 runs are done, and the same command with --out runs/sweep continues"
    assert said in only_line(capsys)
    assert not Path("runs/sweep/sweep.json").exists()
    assert main([*COMMAND, *words, "--out", "runs/sweep"]) == 130
    assert "2 of 6 runs are done, and the same command continues" in only_line(capsys)
    words[1] = "method.lr=1,2"
    assert main([*COMMAND, *words, "--out", "runs/sweep"]) == 0
    assert packs[-1] == ["method.lr=2/seed0", "method.lr=2/seed1"]
    assert len(table(Path("runs/sweep"))) == 2


def test_diverging_runs_are_named_and_not_repeated(tmp_path, packs, capsys):
    words = ["--grid", "method.lr=1,99", "--seeds", "0,1", "--out", str(tmp_path / "out")]
    for _ in range(2):
        assert main([*COMMAND, *words]) == 3
        said = "flamejax: diverged: method.lr = 99, seed 0; method.lr = 99, seed 1"
        assert said in only_line(capsys)
    assert len(packs) == 1
    assert [row["status"] for row in table(tmp_path / "out")] == ["finished", "diverged"]
    whole = json.loads((tmp_path / "out" / "sweep.json").read_text())
    assert [run["status"] for run in whole["runs"]] == ["finished"] * 2 + ["diverged"] * 2


def test_one_sweep_at_a_time(copy, capsys):
    with locks.alone(copy):
        assert main([*COMMAND, *GRID, "--out", str(copy)]) == 2
    assert "in use by another process" in only_line(capsys)


def test_a_config_with_a_grid(tmp_path, packs):
    (tmp_path / "config.toml").write_text("seeds = [3, 4]\n[grid]\nmethod.lam = [1, 2]\n")
    words = [str(tmp_path / "config.toml"), "--out", str(tmp_path / "out")]
    assert main([*COMMAND, *words]) == 0
    assert packs == [[f"method.lam={lam}/seed{seed}" for lam in (1, 2) for seed in (3, 4)]]


def test_seeds_alone(tmp_path, packs):
    assert main([*COMMAND, "--seeds", "0,1,2", "--out", str(tmp_path / "out")]) == 0
    assert packs == [["seed0", "seed1", "seed2"]]
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {"runs", "table.md", "table.csv", "sweep.json"}  # nothing to draw
    assert "| PM | GM | HM |" in (tmp_path / "out" / "table.md").read_text()


# --- what is drawn


def shaped(point, seed):
    lam = point.get("method.lam", 1.0)
    return {"test": 0.9 - (lam - 1) ** 2 / 100 + seed / 100, "chosen": 0.5 - (lam - 1) ** 2 / 100}


def test_one_key_is_a_line():
    found = imagine_sweep({"method.lam": [10, 0.1, 1], "method.rho": [0.1]}, shaped)
    axes = draw(Figure(), found).axes[0]
    assert (axes.get_xlabel(), axes.get_xscale()) == ("method.lam", "log")
    pm, gm, hm, best = axes.lines
    assert hm.get_xdata().tolist() == [0.1, 1, 10]
    np.testing.assert_allclose(hm.get_ydata(), [0.8969, 0.905, 0.095])
    assert best.get_xydata().tolist() == [[1, pytest.approx(0.905)]]
    assert len(axes.collections) == 1  # the band
    assert [line.get_linestyle() for line in (pm, gm)] == ["-", "--"]
    assert axes.figure.get_suptitle().endswith("method.rho\u00a0=\u00a00.1")
    single = imagine_sweep({"partition.q": [1, 2, 3]}, shaped, seeds="0")
    axes = draw(Figure(), single, "pm").axes[0]
    assert axes.get_xscale() == "linear"
    assert not axes.collections
    names = draw(Figure(), imagine_sweep({"partition.name": ["iid", "qlabel"]}, shaped)).axes[0]
    assert [label.get_text() for label in names.get_xticklabels()] == ["iid", "qlabel"]


def test_two_keys_are_a_map():
    def figures(point, seed):
        bad = point["method.rho"] == 3 and point["method.lam"] == 2
        return {**shaped(point, seed), "status": "diverged" if bad else "finished"}

    found = imagine_sweep({"method.lam": [1, 2], "method.rho": [1, 2, 3]}, figures)
    axes, colors = draw(Figure(), found).axes
    assert (axes.get_ylabel(), axes.get_xlabel()) == ("method.lam", "method.rho")
    assert [text.get_text() for text in axes.texts] == [".905"] * 3 + [".895"] * 2 + ["div."]
    assert [patch.get_xy() for patch in axes.patches] == [(-0.5, -0.5)]  # the best
    assert "HM test accuracy, mean of 2 seeds" in colors.get_ylabel()


def test_more_keys_are_panels():
    grid = {"method.lam": [1, 2], "method.rho": [1, 2], "method.lr": [0.1, 0.2, 0.3]}
    figure = draw(Figure(), imagine_sweep(grid, shaped))
    assert len(figure.axes) == 4
    assert [axes.get_title() for axes in figure.axes[:3]] == [
        f"method.lr = {lr}" for lr in (0.1, 0.2, 0.3)
    ]
    grid["partition.q"] = [1, 2, 3, 4, 5]
    figure = draw(Figure(), imagine_sweep(grid, shaped, seeds="0"))
    assert len(figure.axes) == MOST_PANELS + 1
    said = [text.get_text() for text in figure.legends[0].get_texts()]
    assert "the 12 best of 15 panels" in said


def test_which_figure():
    local = imagine_sweep({"method.lr": [0.1, 0.2]}, shaped, method={"name": "local"})
    assert "best by PM validation accuracy" in {
        text.get_text() for text in draw(Figure(), local).legends[0].get_texts()
    }
    assert png(partial(draw, model="gm"), local)  # there is none, and it says so
    with pytest.raises(fj.InputError, match="'xm' should be 'pm', 'gm', 'hm'"):
        draw(Figure(), local, "xm")
    with pytest.raises(fj.InputError, match="nothing to draw"):
        draw(Figure(), imagine_sweep(None, shaped))
    oracle = imagine_sweep({"method.lam": [1, 2]}, shaped, selection={"on": "test"})
    assert "HM (oracle)" in oracle.table()
    assert "best by HM test accuracy itself (oracle)" in {
        text.get_text() for text in draw(Figure(), oracle).legends[0].get_texts()
    }


@pytest.mark.parametrize("clients", [[2], pytest.param([2, 3], marks=full)])
def test_python(clients, tmp_path, monkeypatch, rng):
    monkeypatch.chdir(tmp_path)
    matplotlib.use("Agg")
    labels = rng.integers(0, 3, 90).astype(np.int32)
    images = rng.integers(0, 256, (90, 4, 4), dtype=np.uint8)
    found = fj.sweep(
        grid={"method.lr": [0.1, 1.0], "partition.clients": clients},
        rounds=1,
        partition={"name": "iid"},
        method={"name": "fedavg"},
        data=fj.Dataset(images, labels, 3),
        model={"name": "mlr"},
        quiet=True,
    )
    assert not list(tmp_path.iterdir())
    points = [(lr, count) for lr in (0.1, 1.0) for count in clients]
    assert [(row["method.lr"], row["partition.clients"]) for row in found.rows] == points
    assert found.grid["partition.clients"] == clients
    assert [run["program"] for run in found.runs] == [*range(len(clients))] * 2
    assert "own data" in found.table()
    axes = len(clients)  # a line, or a map with its colours
    assert len(found.plot().axes) == len(found.plot(figure="pm").axes) == axes
    assert isinstance(found, fj.Sweep)
    assert callable(fj.sweep)  # the function, not a module of that name


def of_a_regression():
    return fj.sweep(
        {"data": {"name": "linreg", "samples": 20, "features": 3}, "partition": {"clients": 3}},
        grid={"method.lr": [0.01, 0.1]},
        method={"name": "fedavg"},
        rounds=2,
        quiet=True,
    )


def of_an_imagined_regression():
    """The same from records of runs that were not; the second is better."""
    axes, runs = plan(None, {}, {"method.lr": [0.01, 0.1]})
    found = [in_losses(pretend(run.config), 1 - run.config.method.lr) for run in runs]
    return gather(axes, runs, found, [0, 0])


@pytest.mark.parametrize(
    "swept", [of_an_imagined_regression, pytest.param(of_a_regression, marks=full)]
)
def test_a_regression_is_swept_by_losses(swept):
    found = swept()
    assert found.about["measure"] == "loss"
    best = min(found.rows, key=lambda row: row["selection_loss_hm_mean"])
    assert found.best() is best
    assert f"{best['hm_loss_mean']:.4g}" in found.table()
    axes = draw(Figure(), found).axes[0]
    assert axes.get_ylabel().startswith("test loss")
