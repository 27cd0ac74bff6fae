"""Several runs in one program: each as if it were alone."""

from __future__ import annotations

import numpy as np
import pytest

from flamejax.config import make
from flamejax.records import read
from flamejax.runner import run, run_together
from flamejax.together import fit_together, structure

from .problems import blobs, small_net

BASE = {
    "partition": {"name": "quantity", "clients": 7, "min_samples": 8},
    "rounds": 7,
    "eval_every": 3,
}


def grid(**values):
    return [
        make({**BASE, "seed": seed, "method": {"lam": lam, "rho": rho, "batch": 20}, **values})
        for seed in (0, 5)
        for lam in (0.5, 2.0)
        for rho in (0.1, 0.3)
    ]


CASES = {
    "all": {},
    "some": {"participation": {"clients_per_round": 3}, "engine": {"devices": 2}},
    "side by side": {"partition": {"name": "iid", "clients": 8}, "engine": {"devices": 2}},
    "attack": {
        "attack": {"name": "alie", "fraction": 0.3},
        "aggregator": {"name": "trimmed_mean"},
        "engine": {"devices": 3},
    },
    "poison": {"attack": {"name": "label_poison", "fraction": 0.3}},
    "float64": {"engine": {"precision": "float64"}},
}


@pytest.mark.parametrize(
    "case",
    [case if case == "some" else pytest.param(case, marks=pytest.mark.full) for case in CASES],
)
def test_runs_in_a_pack_leave_what_they_leave_alone(case, tmp_path):
    own = {"data": blobs(), "model": small_net()}
    configs = grid(**CASES[case])
    outs = [tmp_path / f"{i}" for i in range(len(configs))]
    assert run_together(configs, outs, quiet=True, **own) == [None] * len(configs)
    for number in (3, 4):  # of different seeds and hyperparameters, all of them
        run(configs[number], out=tmp_path / f"alone{number}", quiet=True, **own)
        alone, packed = read(tmp_path / f"alone{number}"), read(outs[number])
        assert packed.config == alone.config
        assert packed.summary["together"] == len(configs)
        assert [row["round"] for row in packed.rows] == [3, 6, 7]
        assert {p.name for p in outs[number].iterdir()} == {
            p.name for p in (tmp_path / f"alone{number}").iterdir()
        }
        for ours, theirs in zip(packed.rows, alone.rows, strict=True):
            for model in ("pm", "gm", "hm"):
                assert ours[model] == pytest.approx(theirs[model], rel=1e-5, abs=1e-6)
            assert ours["train_loss"] == pytest.approx(theirs["train_loss"], rel=1e-5)
        kept = [np.load(p / "clients.npz") for p in (outs[number], tmp_path / f"alone{number}")]
        for name in kept[0].files:
            np.testing.assert_allclose(kept[0][name], kept[1][name], rtol=1e-5, atol=1e-6)
    assert len({read(out).summary["last"]["pm"]["loss"] for out in outs}) == len(outs)


@pytest.mark.full
def test_generated_clients_differ_by_seed_in_a_pack(tmp_path):
    values = {"data": {"name": "synthetic", "features": 6, "samples": 20}, "model": {"name": "mlr"}}
    values |= {"partition": {"name": "natural", "clients": 5}, "rounds": 3, "eval_every": 3}
    configs = [make({**values, "seed": seed}) for seed in (1, 2, 3)]
    outs = [tmp_path / str(i) for i in range(3)]
    run_together(configs, outs, quiet=True)
    for config, out in zip(configs, outs, strict=True):
        alone = run(config, quiet=True)
        assert read(out).summary["last"]["pm"]["loss"] == pytest.approx(
            alone.summary["last"]["pm"]["loss"], rel=1e-5
        )


def test_a_run_that_diverges_leaves_the_others_alone(tmp_path):
    own, engine = {"data": blobs(), "model": small_net()}, {"devices": 1, "on_nonfinite": "keep"}
    configs = [make({**BASE, "method": {"lr": lr}, "engine": engine}) for lr in (0.01, 1e30, 0.02)]
    outs = [tmp_path / str(i) for i in range(3)]
    failures = run_together(configs, outs, quiet=True, **own)
    assert [failure is None for failure in failures] == [True, False, True]
    assert "diverged" in str(failures[1])
    assert [read(out).summary["status"] for out in outs] == ["finished", "diverged", "finished"]
    alone = run(configs[2], quiet=True, **own)
    assert read(outs[2]).summary["last"]["pm"]["loss"] == pytest.approx(
        alone.summary["last"]["pm"]["loss"], rel=1e-5
    )


def test_structure_is_what_a_program_depends_on():
    same = structure(make({}))
    assert structure(make({"seed": 4, "method": {"lam": 3.0, "lr": 0.5}})) == same
    for other in (
        {"method": {"momentum": 0.5}},
        {"method": {"batch": 20}},
        {"rounds": 5},
        {"partition": {"clients": 11}},
        {"method": {"name": "ditto"}},
        {"attack": {"name": "sign_flip"}},
    ):
        assert structure(make(other)) != same


def test_as_many_runs_as_memory_holds():
    few = make({"partition": {"name": "iid", "clients": 100}, "model": {"name": "mlp"}})
    small = make({"partition": {"clients": 4}, "model": {"name": "mlr"}})
    assert 1 <= fit_together(few) < fit_together(small) <= 256
