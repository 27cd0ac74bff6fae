"""What a run tells callbacks; what it leaves behind with `record.theory`, which changes nothing
else."""

import json
import shutil

import numpy as np
import pytest

import flamejax as fj
from flamejax.cli import main
from flamejax.config import make
from flamejax.records import CHECKPOINTS
from flamejax.runner import run_together

from .logged import BASE, OWN, SHOWN

SMALL = {
    "rounds": 12,
    "eval_every": 4,
    "data": {"name": "linreg", "features": 4, "samples": 12},
    "partition": {"clients": 5},
    "participation": {"clients_per_round": 3},
    "method": {"lam": 0.5, "rho": 0.2, "lr": 0.1, "batch": 6},
}
THEORY = {**SMALL, "record": {"theory": True, "prox_steps": 3}, "checkpoint": {"every": 4}}
full = pytest.mark.full


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """The folder of a run with the theory, and its result."""
    folder = tmp_path_factory.mktemp("recorded") / "run"
    return folder, fj.run(THEORY, out=folder, quiet=True)


def lines(folder, name="theory.jsonl"):
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """The same without."""
    folder = tmp_path_factory.mktemp("plain") / "run"
    return folder, fj.run(SMALL, out=folder, quiet=True)


def test_every_round_from_the_first_on_is_recorded(recorded):
    folder, result = recorded
    rows = lines(folder)
    assert [row["round"] for row in rows] == list(range(13))
    assert rows[0]["moved"] is None
    assert rows[1]["moved"] > 0
    # local epochs keep to no tolerance, so there is no Lyapunov function
    assert all(row["lyapunov"] is row["epsilon"] is None for row in rows)
    assert all(row["lagrangian"] > row["envelope"] > 0 for row in rows[1:])
    assert list(result.theory["lagrangian"]) == [row["lagrangian"] for row in rows]
    found = json.loads((folder / "summary.json").read_text())["theory"]
    assert found["smoothness"] == pytest.approx(1.0, rel=1e-3)  # b of the data, estimated
    assert found["smoothness_from"] == "estimate"
    assert found["conditions"] == {"a": False, "b": True, "c": True}
    assert found["descent"]["rounds"] == 12
    assert (folder / "theory.png").read_bytes().startswith(b"\x89PNG")
    assert result.plot_theory().axes


def test_recording_leaves_the_run_as_it_is(recorded, plain):
    assert not (plain[0] / "theory.jsonl").exists()
    for mine, other in zip(
        *(lines(folder, "metrics.jsonl") for folder, _ in (plain, recorded)), strict=True
    ):
        assert mine["pm"]["loss"] == pytest.approx(other["pm"]["loss"], rel=1e-5)
        assert mine["bytes"] == other["bytes"]


@full
def test_repeated_it_is_the_same(recorded, tmp_path):
    fj.run(recorded[1].config, out=tmp_path / "again", quiet=True)
    again, whole = (folder / "theory.jsonl" for folder in (tmp_path / "again", recorded[0]))
    assert again.read_bytes() == whole.read_bytes()


def test_resumed_it_is_the_same(recorded, tmp_path):
    """As if killed after round 9: the newest checkpoint is that of round 8."""
    part = tmp_path / "part"
    shutil.copytree(recorded[0], part)
    expected = (part / "theory.jsonl").read_bytes()
    (part / "summary.json").unlink()
    assert [folder.name for folder in sorted((part / CHECKPOINTS).iterdir())] == [
        "round-000008",
        "round-000012",
    ]
    shutil.rmtree(part / CHECKPOINTS / "round-000012")
    resumed = fj.run(out=part, resume=True, quiet=True)
    assert resumed.summary["rounds"] == 12
    assert (part / "theory.jsonl").read_bytes() == expected


@full
def test_runs_of_a_sweep_record_it_too(tmp_path):
    settings = {**SMALL, "record": {"theory": True, "smoothness": 1.0}}
    grid = {"method.lam": [0.5, 1.0]}
    fj.sweep(settings, grid=grid, seeds=[0, 1], out=tmp_path / "sweep", quiet=True)
    for lam in (0.5, 1):
        alone = fj.run(settings, method={"lam": float(lam)}, seed=1, quiet=True).theory
        rows = lines(tmp_path / "sweep" / "runs" / f"method.lam={lam}" / "seed1")
        for name in ("lagrangian", "residual_theta", "moved"):
            together = np.array([row[name] for row in rows], float)
            np.testing.assert_allclose(together, alone[name], rtol=1e-4)


@pytest.mark.parametrize(
    ("assignments", "words"),
    [
        (["method.name=ditto"], ["record.theory", "ditto", "flame"]),
        (["engine.store=touched"], ["engine.store", "touched", "dense"]),
        (["record.theory=false", "record.prox_steps=3"], ["record.prox_steps", "record.theory"]),
        (["record.smoothness=-1"], ["record.smoothness"]),
        (["record.theory=maybe"], ["record.theory"]),
        (["record.prox_steps=-1"], ["record.prox_steps"]),
    ],
)
def test_bad_requests_are_refused_in_a_line(tmp_path, capsys, assignments, words):
    changes = ["data.name=linreg", "partition.clients=4", "rounds=2", "record.theory=true"]
    changes += ["participation.clients_per_round=2", *assignments]
    command = ["run", "--out", str(tmp_path / "o"), "--quiet"]
    assert main([*command, *[part for c in changes for part in ("--set", c)]]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert all(word in line for word in words), line


def test_nothing_recorded_nothing_drawn(plain):
    _, result = plain
    assert result.theory == {}
    with pytest.raises(fj.InputError, match=r"record\.theory"):
        result.plot_theory()


# --- callbacks


class Listening(fj.Callback):
    """Notes what it is told: of whom (a seed), what, and how many rows were written by then."""

    def __init__(self, *folders):
        self.folders, self.told = folders, []

    def on_rounds(self, config, done):
        self.told.append((config.seed, done))

    def on_evaluation(self, config, row):
        assert lines(self.folders[config.seed], "metrics.jsonl")[-1] == row
        self.told.append((config.seed, dict(row)))


def in_turn(folder, seed):
    """What is told of a run that is evaluated after each call."""
    rows = lines(folder, "metrics.jsonl")
    assert [row["round"] for row in rows] == SHOWN
    return [(seed, told) for row in rows for told in (row["round"], row)]


def test_callbacks_hear_of_rounds_and_evaluations(tmp_path):
    listening, other = Listening(tmp_path / "run"), Listening(tmp_path / "run")
    fj.run(**BASE, **OWN, out=tmp_path / "run", callbacks=[listening, other])
    assert listening.told == other.told == in_turn(tmp_path / "run", 0)


def test_callbacks_hear_of_every_run_of_several(tmp_path):
    folders = [tmp_path / str(seed) for seed in (0, 1)]
    values = {key: value for key, value in BASE.items() if key != "quiet"}
    configs = [make({**values, "seed": seed}) for seed in (0, 1)]
    listening = Listening(*folders)
    assert run_together(configs, folders, True, **OWN, callbacks=[listening]) == [None, None]
    for seed, folder in enumerate(folders):
        assert [told for told in listening.told if told[0] == seed] == in_turn(folder, seed)
    first = [(seed, SHOWN[0]) for seed in (0, 1)]
    assert listening.told[:2] == first  # all of them before any is evaluated


def test_what_a_callback_raises_ends_the_run():
    class Failing(fj.Callback):
        def on_rounds(self, config, done):
            raise ValueError(f"after {done}")

    with pytest.raises(ValueError, match=f"after {SHOWN[0]}"):
        fj.run(**BASE, **OWN, callbacks=[Failing()])
