"""Several processes on this machine: the same run as one, and none of them is left waiting."""

from __future__ import annotations

import functools
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import jax
import numpy as np
import pytest
import tomli_w
from jax.sharding import PartitionSpec as P

import flamejax as fj
from flamejax import checkpoints, hosts
from flamejax.cli import main
from flamejax.config import lay_over
from flamejax.engine import devices
from flamejax.errors import InputError
from flamejax.hosts.meet import meet

SOON = 25  # seconds in which a lost process is noticed: 20 of silence, and a little
SMALL = {
    "rounds": 12,
    "eval_every": 4,
    "data": {"limit": 600},
    "model": {"name": "mlr"},
    "checkpoint": {"every": 4},
    "engine": {"rounds_per_call": 2},
}
SOME = {"partition": {"clients": 14}, "participation": {"clients_per_round": 5}}
CASES = {
    "all clients": {"partition": {"clients": 7}},
    "some of them": SOME,
    "a store on the hosts": {**SOME, "engine": {"store": "touched"}},
}
# A process of a run that kills itself after so many calls of the compiled rounds.
VICTIM = """
import sys
import flamejax as fj
from flamejax import config, hosts
from tests.faults import KillAfter

file, out, calls, *place = sys.argv[1:]
settings = config.make(config.load(file))
with hosts.join(hosts.placed(*place), settings.to_toml()):
    fj.run(settings, out=out, quiet=True, callbacks=[KillAfter(int(calls))])
"""


def settings_of(case, **engine):
    given = lay_over(SMALL, CASES[case])
    return lay_over(given, {"engine": engine})


def environment():
    """Of the processes: they compile as the tests do, for no devices but those asked for."""
    kept = {k: v for k, v in os.environ.items() if k != "JAX_NUM_CPU_DEVICES"}
    flags = os.environ.get("XLA_FLAGS", "").split()
    kept["XLA_FLAGS"] = " ".join(x for x in flags if "force_host_platform" not in x)
    path = os.pathsep.join([str(Path(__file__).parents[1]), kept.get("PYTHONPATH", "")])
    return {**kept, "PYTHONPATH": path, "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def start(settings, out, processes=1, victim=None):
    """The same command for each of some processes; without settings it resumes the run. A victim
    does not live to see round 8."""
    file, address = out.with_name(f"{out.name}.toml"), f"127.0.0.1:{free_port()}"
    if settings is not None:
        file.write_text(tomli_w.dumps(settings))
    what = ["--resume"] if settings is None else [str(file)]
    command = ["-m", "flamejax", "run", *what, "--quiet", "--out", str(out)]
    several = ["--coordinator", address, "--processes", str(processes)]
    return [
        subprocess.Popen(
            [sys.executable]
            + (
                ["-c", VICTIM, str(file), str(out), "3", address, str(processes), str(rank)]
                if rank == victim
                else [*command, *([*several, "--rank", str(rank)] if processes > 1 else [])]
            ),
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(processes)
    ]


def end(started, seconds=240):
    """Exit codes and what was said, once all have ended."""
    try:
        said = [process.communicate(timeout=seconds)[1] for process in started]
    finally:
        for process in started:
            process.kill()
    return [process.returncode for process in started], said


def rows(out):
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def assert_close(found, expected):
    assert [row["round"] for row in found] == [row["round"] for row in expected]
    for ours, theirs in zip(found, expected, strict=True):
        for model in ("pm", "gm", "hm"):
            assert ours[model] == pytest.approx(theirs[model], rel=1e-5, abs=1e-6)
        assert ours["train_loss"] == pytest.approx(theirs["train_loss"], rel=1e-5)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """The runs of one process with one device, each made once."""

    @functools.cache
    def of(case):
        out = tmp_path_factory.mktemp("alone") / "run"
        fj.run(settings_of(case, devices=1), out=out, quiet=True)
        return rows(out)

    return of


@pytest.mark.full
@pytest.mark.parametrize(
    ("processes", "devices", "case"),
    [*[(2, 2, case) for case in CASES], *[(1, 8, case) for case in CASES]],
)
def test_two_processes_and_eight_devices_give_the_same_run(
    processes, devices, case, alone, tmp_path
):
    started = start(settings_of(case, devices=devices), tmp_path / "run", processes)
    codes, said = end(started)
    assert codes == [0] * processes, said
    assert said == [""] * processes
    assert_close(rows(tmp_path / "run"), alone(case))
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["execution"]["devices"] == devices


@pytest.mark.parametrize(
    ("processes", "victim", "then"), [(2, 0, 1), pytest.param(4, 2, 2, marks=pytest.mark.full)]
)
def test_a_killed_process_ends_the_run_which_then_goes_on(processes, victim, then, alone, tmp_path):
    out = tmp_path / "run"
    started = start(settings_of("some of them", devices=processes), out, processes, victim)
    assert started[victim].wait(240) == -signal.SIGKILL
    clock = time.monotonic()
    codes, said = end(started, SOON)
    assert time.monotonic() - clock < SOON
    assert codes == [-signal.SIGKILL if rank == victim else 3 for rank in range(processes)], said
    lost = f"flamejax: a process of this run is lost: rank {victim} ended before the run was over\n"
    assert said == ["" if rank == victim else lost for rank in range(processes)]
    assert checkpoints.rounds(out / "checkpoints") == [4]
    if then == 1:
        fj.run(out=out, resume=True, quiet=True)
    else:
        codes, said = end(start(None, out, then))
        assert codes == [0] * then, said
    assert_close(rows(out), alone("some of them"))


def until_checkpoint(out, started):
    while not checkpoints.rounds(out / "checkpoints"):
        if any(process.poll() is not None for process in started):
            pytest.fail(str(end(started)))
        time.sleep(0.05)


@pytest.fixture
def endless(tmp_path):
    """Two processes at a run that has a checkpoint, and rounds for a long time."""
    started = start(settings_of("some of them", devices=2) | {"rounds": 4000}, tmp_path / "run", 2)
    until_checkpoint(tmp_path / "run", started)
    yield started
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.full
def test_a_request_to_stop_one_stops_all_with_a_checkpoint(endless):
    endless[1].send_signal(signal.SIGINT)
    codes, said = end(endless)
    assert codes == [130, 130], said
    assert all("--resume --out" in line for line in said)


@pytest.mark.full
def test_a_silent_process_is_taken_for_lost(endless):
    endless[1].send_signal(signal.SIGSTOP)
    said = endless[0].communicate(timeout=SOON)[1]
    assert endless[0].returncode == 3
    assert "rank 1 has been silent for 20 s" in said


def together(*processes):
    """Let processes meet in threads; what each got, or why not."""
    found = [None] * len(processes)

    def one(number, arguments):
        try:
            found[number] = meet(*arguments)
        except InputError as error:
            found[number] = str(error)

    threads = [
        threading.Thread(target=one, args=(number, arguments))
        for number, arguments in enumerate(processes)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_processes_meet_and_share_the_cores():
    address = f"127.0.0.1:{free_port()}"
    found = together(*[(address, 3, rank, "word", 8, 10) for rank in range(3)])
    assert [meeting.group.rank for meeting in found] == [0, 1, 2]
    assert len({meeting.address for meeting in found}) == 1
    assert [meeting.cores for meeting in found] == [2, 2, 2]
    assert [meeting.seat for meeting in found] == [0, 1, 2]
    assert sorted(found[0].group.lines) == [1, 2]


def test_processes_that_do_not_fit_are_refused():
    address = f"127.0.0.1:{free_port()}"
    found = together((address, 2, 0, "word", 1, 1.5), (address, 2, 1, "other", 1, 1.5))
    assert "there is no rank 1" in found[0]
    assert "config or versions differ" in found[1]
    assert "no rank 0 at" in together((address, 2, 1, "word", 1, 0.3))[0]
    with socket.create_server(("", free_port())) as taken:
        occupied = f"127.0.0.1:{taken.getsockname()[1]}"
        assert "cannot listen" in together((occupied, 2, 0, "word", 1, 0.3))[0]
    assert "HOST:PORT" in together(("nowhere", 2, 0, "word", 1, 0.3))[0]


def test_places_come_from_the_environment_of_a_cluster():
    nothing = dict.fromkeys(hosts.Place._fields)
    slurm = {
        "SLURM_JOB_ID": "4097",
        "SLURM_STEP_NODELIST": "gpu[007-009],cpu1",
        "SLURM_NTASKS": "4",
        "SLURM_PROCID": "3",
    }
    assert hosts.from_cluster(nothing, slurm) == ("gpu007:61441", 4, 3)
    given = {**nothing, "coordinator": "here:1"}
    mpi = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "1"}
    assert hosts.from_cluster(given, mpi) == ("here:1", 2, 1)
    launcher = {"MASTER_ADDR": "a", "MASTER_PORT": "5", "WORLD_SIZE": "2", "RANK": "0"}
    assert hosts.from_cluster(nothing, launcher) == ("a:5", 2, 0)
    with pytest.raises(InputError, match="no variable tells the coordinator"):
        hosts.from_cluster(nothing, mpi)
    assert [hosts.first_node(x) for x in ("a", "a,b", "n[3,5]")] == ["a", "a", "n3"]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--rank", "1"], "--coordinator is missing"),
        (["--coordinator", "a:1", "--processes", "2"], "--rank is missing"),
        (["--coordinator", "a:1", "--processes", "2", "--rank", "2"], "--rank 2 should be one of"),
        (["--coordinator", "a:1", "--processes", "x", "--rank", "2"], "whole numbers"),
        (["--coordinator", "a:1", "--processes", "2", "--rank", "0"], "need --out"),
        (["--coordinator", "a:1", "--processes", "2", "--rank", "0", "--profile"], "one process"),
        (["--cluster"], "no variable tells"),
    ],
)
def test_places_are_refused_in_one_line(arguments, why, capsys, monkeypatch):
    for name in ("JAX_COORDINATOR_ADDRESS", "MASTER_ADDR", "SLURM_JOB_ID"):
        monkeypatch.delenv(name, raising=False)
    assert main(["run", *arguments]) == 2
    said = capsys.readouterr().err
    assert why in said
    assert said.count("\n") == 1


def test_sums_between_processes_are_those_of_each_leaf():
    mesh = devices.Mesh(np.array(jax.devices()[:2]), (devices.AXIS,))
    tree = {"a": np.arange(6.0).reshape(2, 3), "b": np.arange(2), "c": np.ones((2, 2, 1))}
    total = functools.partial(devices.total, packed=True)
    summed = jax.jit(jax.shard_map(total, mesh=mesh, in_specs=P(devices.AXIS), out_specs=P()))(tree)
    for name, value in tree.items():
        np.testing.assert_allclose(summed[name], value.sum(0, keepdims=True))
