"""Costs of compiled programs against counts by hand; a profiled run against the same run plain."""

import contextlib
import gzip
import io
import json
import warnings
from collections import defaultdict

import jax
import numpy as np
import pytest

from flamejax import costs, profiling, run
from flamejax.cli import main
from flamejax.errors import InputError

SETTINGS = ["--set", "rounds=3", "--set", "eval_every=2"]
WEIGHTS = (784 * 128, 128 * 64, 64 * 10)  # of the MLP's layers

PROGRAM = """HloModule jit_made, is_scheduled=true

%fused (p.0: f32[1000,8], p.1: s32[4,1]) -> f32[4,8] {
  %p.0 = f32[1000,8]{1,0} parameter(0)
  %p.1 = s32[4,1]{1,0} parameter(1)
  %rows = f32[4,8]{1,0} gather(%p.0, %p.1), slice_sizes={1,8}, metadata={op_name="made/read/gather"}
  ROOT %twice = f32[4,8]{1,0} multiply(%rows, %rows), metadata={op_name="made/read/mul"}
}

%in_place (p.2: f32[50,8], p.3: f32[8], p.4: s32[]) -> f32[50,8] {
  %p.2 = f32[50,8]{1,0} parameter(0)
  %p.3 = f32[8]{0} parameter(1)
  %row = f32[1,8]{1,0} bitcast(%p.3)
  %p.4 = s32[] parameter(2)
  %zero = s32[] constant(0)
  ROOT %put = f32[50,8]{1,0} dynamic-update-slice(%p.2, %row, %p.4, %zero)
}

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %sum = f32[] add(%a, %b)
}

%small_body (s.0: (s32[], f32[8])) -> (s32[], f32[8]) {
  %s.0 = (s32[], f32[8]{0}) parameter(0)
  %i = s32[] get-tuple-element(%s.0), index=0
  %x = f32[8]{0} get-tuple-element(%s.0), index=1
  %grown = f32[8]{0} exponential(%x)
  ROOT %both = (s32[], f32[8]{0}) tuple(%i, %grown)
}

%small_condition (s.1: (s32[], f32[8])) -> pred[] {
  %s.1 = (s32[], f32[8]{0}) parameter(0)
  %j = s32[] get-tuple-element(%s.1), index=0
  ROOT %less = pred[] compare(%j, %j), direction=LT
}

%small (s.2: (s32[], f32[8])) -> (s32[], f32[8]) {
  %s.2 = (s32[], f32[8]{0}) parameter(0)
  ROOT %loop = (s32[], f32[8]{0}) while(%s.2), condition=%small_condition, body=%small_body, \
backend_config={"known_trip_count":{"n":"24"}}
}

ENTRY %main (data: f32[1000,8], where: s32[4,1], w: f32[8,16]) -> (f32[4,16], f32[50,8]) {
  %data = f32[1000,8]{1,0} parameter(0)
  %where = s32[4,1]{1,0} parameter(1)
  %w = f32[8,16]{1,0} parameter(2)
  %read = f32[4,8]{1,0} fusion(%data, %where), kind=kLoop, calls=%fused, \
metadata={op_name="made/read/mul"}
  %spare = f32[4,8]{1,0} copy(%read)
  %out = f32[4,16]{1,0} dot(%spare, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}, \
metadata={op_name="made/client/gradient/jvp(Dense)/dot_general"}
  %grads = f32[8,16]{1,0} dot(%spare, %out), lhs_contracting_dims={0}, rhs_contracting_dims={0}, \
metadata={op_name="made/client/gradient/transpose(jvp(Dense))/transpose"}
  %nought = f32[] constant(0)
  %norms = f32[8]{0} reduce(%grads, %nought), dimensions={1}, to_apply=%add
  %both.1 = (s32[], f32[8]{0}) tuple(%nought, %norms)
  %called = (s32[], f32[8]{0}) call(%both.1), to_apply=%small, \
metadata={op_name="made/update/while"}
  %state = f32[50,8]{1,0} broadcast(%nought), dimensions={}
  %index = s32[] constant(3)
  %kept = f32[50,8]{1,0} fusion(%state, %norms, %index), kind=kLoop, calls=%in_place, \
metadata={op_name="made/vmap(message)/states/dynamic_update_slice"}
  %image = f32[2,10,10,3]{3,2,1,0} constant({...})
  %kernel = f32[5,5,3,7]{3,2,1,0} constant({...})
  %planes = f32[2,6,6,7]{3,2,1,0} convolution(%image, %kernel), window={size=5x5}, \
dim_labels=b01f_01io->b01f
  %counted = s32[] add(%index, %index), metadata={op_name="made/client/add"}
  ROOT %results = (f32[4,16]{1,0}, /*index=1*/f32[50,8]{1,0}) tuple(%out, %kept)
}
"""


@pytest.mark.parametrize(
    ("name", "stage", "flops", "nbytes"),
    [
        ("read", "read", 32, 4 * (32 + 4 + 32)),  # of the data only what is gathered
        ("spare", "copies", 0, 4 * 64),
        ("out", "forward", 2 * 4 * 8 * 16, 4 * (32 + 128 + 64)),
        ("grads", "gradient", 2 * 4 * 8 * 16, 4 * (32 + 64 + 128)),
        ("norms", "states", 128, 4 * (128 + 1 + 8)),  # it has no name, its reader has
        ("called", "update", 24 * 8, 4 * (9 + 9)),
        ("kept", "states", 0, 4 * (8 + 1 + 8)),  # one row is written, none is read
        ("planes", "other", 2 * 2 * 6 * 6 * 7 * 5 * 5 * 3, 4 * (600 + 525 + 504)),
        ("counted", "other", 0, 12),  # a counter is no work of the client
    ],
)
def test_costs_of_a_made_program(name, stage, flops, nbytes):
    found = costs.cost(costs.parse(PROGRAM), name)
    assert (found.stage, found.flops, found.nbytes) == (stage, flops, nbytes)
    assert found.matmul_flops == (flops if name in ("out", "grads", "planes") else 0)


def test_time_is_shared_out():
    """A product goes on in another thread while a small kernel is started; loops have no time."""
    events = [
        profiling.Event(0, 90, 200, "while.1"),
        profiling.Event(2, 5, 5, "small"),
        profiling.Event(6, 10, 95, "product"),  # most of it elsewhere, until 50
        profiling.Event(11, 12, 12, "small"),
        profiling.Event(50, 60, 60, "user"),
    ]
    spent = profiling.Spent(defaultdict(int), defaultdict(float))
    profiling.share_out(events, {"while.1"}, spent)
    assert spent.runs == {"while.1": 1, "small": 2, "product": 1, "user": 1}
    assert spent.nanoseconds == {"while.1": 2, "small": 5, "product": 43, "user": 10}


@pytest.fixture(scope="module")
def profiled(tmp_path_factory):
    """The folder and the output of `flamejax run --profile`."""
    folder, output = tmp_path_factory.mktemp("runs") / "profiled", io.StringIO()
    with contextlib.redirect_stdout(output):
        assert main(["run", "--profile", *SETTINGS, "--out", str(folder)]) == 0
    return folder, output.getvalue()


@pytest.fixture(scope="module")
def table(profiled):
    return json.loads((profiled[0] / "profile" / "costs.json").read_text())


def test_a_profiled_run_has_the_same_results(profiled, tmp_path):
    assert main(["run", "--quiet", *SETTINGS, "--out", str(tmp_path / "plain")]) == 0
    for name in ("metrics.jsonl", "config.toml"):
        assert (profiled[0] / name).read_bytes() == (tmp_path / "plain" / name).read_bytes()


def test_the_trace_opens(profiled):
    folder, output = profiled
    with gzip.open(folder / "profile" / "perfetto_trace.json.gz") as file:
        events = json.load(file)["traceEvents"]
    assert any("hlo_op" in event.get("args", {}) for event in events)
    assert list((folder / "profile").glob("plugins/profile/*/*.xplane.pb"))
    rows = [json.loads(line) for line in (folder / "timings.jsonl").read_text().splitlines()]
    assert [row.get("traced", False) for row in rows] == [False, True, False]
    printed = " ".join(output.split())
    assert "Round 2, 4 devices" in printed
    assert "ui.perfetto.dev" in printed
    text = (folder / "profile" / "costs.txt").read_text()
    assert "optimiser step" in text
    assert max(map(len, text.split("\n"))) <= 80


def test_products_as_counted_by_hand(profiled, table):
    with np.load(profiled[0] / "clients.npz") as clients:
        train = clients["train_samples"]
        held_out = clients["validation_samples"] + clients["test_samples"]
    steps = int(np.ceil(train / 100).sum())
    stages = table["programs"]["rounds"]["stages"]
    forward = steps * 2 * 100 * sum(WEIGHTS)
    backward = 2 * forward - steps * 2 * 100 * WEIGHTS[0]  # no gradient of the input
    assert stages["forward"]["matmul_flops"] == forward
    assert stages["gradient"]["matmul_flops"] == backward
    size = min(250, held_out.max())
    batches = int(np.ceil(held_out / size).sum())
    sums = 2 * (2 * 2 * size * 2)  # of losses and of hits: [models, samples] @ [samples, splits]
    scored = table["programs"]["evaluation"]["stages"]["forward"]["matmul_flops"]
    assert scored == batches * (2 * 2 * size * sum(WEIGHTS) + sums)


def test_bytes_and_time_are_plausible(table):
    for program in table["programs"].values():
        total, stages = program["total"], program["stages"].values()
        for key in ("flops", "bytes"):
            assert sum(stage[key] for stage in stages) == total[key]
        assert sum(k["flops"] for k in program["kernels"]) == total["flops"]
        assert 0 < total["device_seconds"] < 60
        assert 0 < program["seconds"] < 60
    rounds = table["programs"]["rounds"]
    assert set(rounds["stages"]) == set(costs.STAGES) - {"select"}
    # the method's updates read and write a few models at once, and nothing goes through all samples
    parameters = 4 * (sum(WEIGHTS) + 128 + 64 + 10)
    largest = max(rounds["kernels"], key=lambda k: k["bytes"] / k["runs"])
    assert 3 * parameters < largest["bytes"] / largest["runs"] < 8 * parameters < 7936 * 784


def test_memory(table):
    rounds, evaluation = (table["programs"][name]["memory"] for name in ("rounds", "evaluation"))
    parameters = 4 * (sum(WEIGHTS) + 128 + 64 + 10)
    clients = -(-10 // table["devices"])
    assert rounds["donated"] >= (2 * clients + 2) * parameters  # theta, w; server, mean
    data = rounds["arguments"] - rounds["donated"]
    assert data > 7936 * 784
    assert max(rounds["temporary"], evaluation["temporary"]) < data  # no copy of it
    assert evaluation["donated"] == 0


@pytest.mark.parametrize("broken", ["start_trace", "stop_trace"])
def test_a_run_survives_its_trace(broken, monkeypatch, tmp_path):
    def fail(*_, **__):
        raise RuntimeError("disk full")

    for name in ("start_trace", "stop_trace"):
        monkeypatch.setattr(jax.profiler, name, fail if name == broken else lambda *_, **__: None)
    done = []
    with pytest.warns(UserWarning, match="--profile: disk full"), profiling.traced(tmp_path):
        done.append("round")
    assert done
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        profiling.write_costs(None, tmp_path / "timings.jsonl", tmp_path)  # no trace, no table


def test_a_profile_needs_a_folder():
    with pytest.raises(InputError, match="needs out"):
        run(rounds=1, profile=True)
