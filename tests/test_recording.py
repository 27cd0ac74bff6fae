"""What a run with `record.theory` leaves behind, and that it changes nothing else."""

import json

import numpy as np
import pytest

import flamejax as fj
from flamejax.cli import main

SMALL = {
    "rounds": 12,
    "eval_every": 4,
    "data": {"name": "linreg", "features": 4, "samples": 12},
    "partition": {"clients": 5},
    "participation": {"clients_per_round": 3},
    "method": {"lam": 0.5, "rho": 0.2, "lr": 0.1, "batch": 6},
}
THEORY = {**SMALL, "record": {"theory": True, "smoothness": 1.0}}


def lines(folder, name="theory.jsonl"):
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


def test_every_round_from_the_first_on_is_recorded(tmp_path):
    settings = {**THEORY, "record": {"theory": True, "prox_steps": 3}}
    result = fj.run(settings, out=tmp_path / "a", quiet=True)
    rows = lines(tmp_path / "a")
    assert [row["round"] for row in rows] == list(range(13))
    assert rows[0]["moved"] is None
    assert rows[1]["moved"] > 0
    # local epochs keep to no tolerance, so there is no Lyapunov function
    assert all(row["lyapunov"] is row["epsilon"] is None for row in rows)
    assert all(row["lagrangian"] > row["envelope"] > 0 for row in rows[1:])
    assert list(result.theory["lagrangian"]) == [row["lagrangian"] for row in rows]
    found = json.loads((tmp_path / "a" / "summary.json").read_text())["theory"]
    assert found["smoothness"] == pytest.approx(1.0, rel=1e-3)  # b of the data, estimated
    assert found["smoothness_from"] == "estimate"
    assert found["conditions"] == {"a": False, "b": True, "c": True}
    assert found["descent"]["rounds"] == 12
    assert (tmp_path / "a" / "theory.png").read_bytes().startswith(b"\x89PNG")
    assert result.plot_theory().axes


def test_recording_leaves_the_run_as_it_is(tmp_path):
    fj.run(SMALL, out=tmp_path / "plain", quiet=True)
    fj.run(THEORY, out=tmp_path / "theory", quiet=True)
    assert not (tmp_path / "plain" / "theory.jsonl").exists()
    for mine, other in zip(
        *(lines(tmp_path / name, "metrics.jsonl") for name in ("plain", "theory")), strict=True
    ):
        assert mine["pm"]["loss"] == pytest.approx(other["pm"]["loss"], rel=1e-5)
        assert mine["bytes"] == other["bytes"]


def test_repeated_and_resumed_it_is_the_same(tmp_path):
    whole = tmp_path / "whole"
    settings = {**THEORY, "checkpoint": {"every": 4}}
    fj.run(settings, out=whole, quiet=True)
    fj.run(settings, out=tmp_path / "again", quiet=True)
    assert (tmp_path / "again" / "theory.jsonl").read_bytes() == (
        whole / "theory.jsonl"
    ).read_bytes()
    # as if killed after round 9: the newest checkpoint is that of round 8
    part = tmp_path / "part"
    fj.run({**settings, "rounds": 12}, out=part, quiet=True)
    expected = (part / "theory.jsonl").read_bytes()
    (part / "summary.json").unlink()
    for folder in sorted((part / "checkpoints").iterdir())[1:]:
        for file in sorted(folder.rglob("*"), reverse=True):
            file.unlink()
        folder.rmdir()
    resumed = fj.run(out=part, resume=True, quiet=True)
    assert resumed.summary["rounds"] == 12
    assert (part / "theory.jsonl").read_bytes() == expected


def test_runs_of_a_sweep_record_it_too(tmp_path):
    grid = {"method.lam": [0.5, 1.0]}
    fj.sweep(THEORY, grid=grid, seeds=[0, 1], out=tmp_path / "sweep", quiet=True)
    for lam in (0.5, 1):
        alone = fj.run(THEORY, method={"lam": float(lam)}, seed=1, quiet=True).theory
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


def test_nothing_recorded_nothing_drawn():
    result = fj.run({**SMALL, "rounds": 1}, quiet=True)
    assert result.theory == {}
    with pytest.raises(fj.InputError, match=r"record\.theory"):
        result.plot_theory()
