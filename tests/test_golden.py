"""Figures that stay as they were written, whatever is rebuilt; see `tests/golden`."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

import flamejax as fj
from flamejax import config

from . import golden
from .faults import InterruptAfter

ROOT = Path(__file__).parents[1]
CASES = golden.cases()
EXPECTED = golden.read()


def packed(values, tmp_path):
    """The run beside one with another seed, in one program; read back from its folder."""
    fj.sweep(values, seeds=[values["seed"], 8], out=tmp_path, quiet=True)
    (folder,) = tmp_path.glob(f"runs/**/seed{values['seed']}")
    return folder


def resumed(values, tmp_path):
    """The run, interrupted once on its way."""
    values = golden.changed(values, engine__rounds_per_call=1)
    with pytest.raises(KeyboardInterrupt):
        fj.run(values, out=tmp_path / "run", quiet=True, callbacks=[InterruptAfter(3)])
    fj.run(out=tmp_path / "run", resume=True, quiet=True)
    return tmp_path / "run"


def as_users_have():
    """The environment without what makes tests compile quickly."""
    ours = ("XLA_FLAGS", "JAX_NUM_CPU_DEVICES")
    return {name: value for name, value in os.environ.items() if name not in ours}


def two_processes(values, tmp_path):
    """The run by two processes of this machine; read back from its folder."""
    values = golden.changed(values, engine__devices=2)
    (tmp_path / "run.toml").write_text(config.make(values).to_toml())
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"  # free again when this is over
    command = [sys.executable, "-m", "flamejax", "run", str(tmp_path / "run.toml"), "--quiet"]
    command += ["--out", str(tmp_path / "run"), "--coordinator", address]
    started = [
        subprocess.Popen([*command, "--processes", "2", "--rank", str(rank)], env=as_users_have())
        for rank in range(2)
    ]
    assert [process.wait(240) for process in started] == [0, 0]
    return tmp_path / "run"


HOW = {"packed": packed, "resumed": resumed, "two processes": two_processes}


# what differs from another case in a setting that other tests compute again, or takes long
MORE = {
    "a convolutional network", "a multilayer perceptron", "theory", "chosen on the test split",
    "ditto one global step", "ditto tracks of its own", "pfedme thetas of its own",
    "flame two epochs, momentum", "fedadmm, all clients", "fedavg, all clients",
    "synthetic, equal sizes", "hybrid with overlap", "iid with overlap", "qlabel with overlap",
    "quality with overlap", "flame, sign_flip, mean", "fedavg, gaussian, mean",
    "flame paper, vmap", "flame paper, map, two devices", "flame paper, one round a call",
    "flame paper, two processes", "flame paper, float64, vmap", "ditto standard, vmap",
    "ditto standard, map, two devices", "ditto standard, one round a call",
    "flame weighted by samples", "flame paper, states on the host",
    "fedavg, gaussian, trimmed_mean, three devices", "ditto standard, states on the host",
    "ditto standard, chunk, three devices",
}  # fmt: skip


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.full] * (name in MORE)) for name in CASES]
)
def test_figures_are_as_they_were(name, tmp_path):
    case = CASES[name]
    expected = EXPECTED[case.figures]
    found = HOW[case.how](case.values, tmp_path) if case.how in HOW else golden.run(case.values)
    if not isinstance(found, dict):
        found = golden.read_back(found)
        models = ("global model", "personalized models")  # which are not in a folder
        expected = {k: v for k, v in expected.items() if k not in models}
    far = golden.differences(found, expected, golden.precision_of(case.values))
    wrong = [f"  {times:.3g} times what rounding may do: {what}" for times, what in far[:8]]
    assert far[0][0] <= 1, f"{name}: the worst of {len(far)} figures\n" + "\n".join(wrong)


@pytest.mark.full
def test_optimized_programs_give_the_same_figures():
    names = ["ditto standard", "per_fedavg standard", "pfedme standard", "lp_proj standard"]
    names += ["fedavg, same_value, multi_krum", "a multilayer perceptron", "theory"]
    code = """
import json, sys
from tests import golden
cases = golden.cases()
print(json.dumps({name: golden.run(cases[name].values) for name in sys.argv[1:]}))
"""
    command = [sys.executable, "-c", code, *names]
    done = subprocess.run(
        command, cwd=ROOT, env=as_users_have(), stdout=subprocess.PIPE, text=True, check=True
    )
    found = json.loads(done.stdout.splitlines()[-1])
    assert [*found] == names
    for name in names:
        precision = golden.precision_of(CASES[name].values)
        times, what = golden.differences(found[name], EXPECTED[name], precision)[0]
        assert times <= 1, f"{name}: {times:.3g} times what rounding may do: {what}"


def test_every_case_has_figures_and_all_figures_have_a_case():
    assert {case.figures for case in CASES.values()} == EXPECTED.keys()


def test_everything_registered_has_a_case():
    """Whatever is added to the registry gets figures, too, and they are looked at by default."""
    assert CASES.keys() >= MORE
    used = [config.make(case.values) for name, case in CASES.items() if name not in MORE]
    for kind, section in (
        ("methods", "method"),
        ("attacks", "attack"),
        ("aggregators", "aggregator"),
        ("partitions", "partition"),
    ):
        there = {getattr(settings, section).name for settings in used}
        assert there == set(fj.registry.names(kind)), kind


def test_a_figure_that_moved_is_seen():
    (name, expected) = next(iter(EXPECTED.items()))
    moved = {**expected, "pm loss": [x * 1.001 for x in expected["pm loss"]]}
    far = golden.differences(moved, expected, "float32")
    assert far[0][0] > 1
    assert far[0][1].startswith("pm loss:")
    assert far[1][0] == 0
    del moved["pm loss"]
    assert golden.differences(moved, expected, "float32")[0][1] == "pm loss: is missing", name
