"""Several processes on this machine: the same run as one, and none of them is left waiting."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from flamejax import checkpoints, hosts
from flamejax.cli import main
from flamejax.errors import InputError
from flamejax.hosts.meet import meet

COMMON = ["--quiet", "--set", "model.name=mlr", "--set", "data.limit=1500"]
SOME = ["--set", "partition.clients=14", "--set", "participation.clients_per_round=5"]
SOON = 25  # seconds in which a lost process is noticed: 20 of silence, and a little


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """Compiled programs for all processes of this file; no devices but those asked for."""
    kept = {k: v for k, v in os.environ.items() if k not in ("XLA_FLAGS", "JAX_NUM_CPU_DEVICES")}
    return {**kept, "FLAMEJAX_CACHE": str(tmp_path_factory.mktemp("cache"))}


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


def start(arguments, out, environment, processes=1):
    """The same command for each of some processes."""
    command = [sys.executable, "-m", "flamejax", "run", *arguments, "--out", str(out)]
    several = ["--coordinator", f"127.0.0.1:{free_port()}", "--processes", str(processes)]
    return [
        subprocess.Popen(
            [*command, *([*several, "--rank", str(rank)] if processes > 1 else [])],
            env=environment,
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


CASES = {
    "all clients": ["--set", "partition.clients=7"],
    "some of them": SOME,
    "a store on the hosts": [*SOME, "--set", "engine.store=touched"],
}


@pytest.fixture(scope="module")
def alone(cache, tmp_path_factory):
    """The runs of one process with one device."""
    folder = tmp_path_factory.mktemp("alone")
    length = ["--set", "rounds=6", "--set", "eval_every=3", "--set", "engine.devices=1"]
    for number, case in enumerate(CASES.values()):
        codes, said = end(start([*COMMON, *case, *length], folder / str(number), cache))
        assert codes == [0], said
    return {case: rows(folder / str(number)) for number, case in enumerate(CASES)}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("devices", [2, 8])
def test_two_processes_and_eight_devices_give_the_same_run(devices, case, alone, cache, tmp_path):
    length = ["--set", "rounds=6", "--set", "eval_every=3", "--set", f"engine.devices={devices}"]
    processes = 2 if devices == 2 else 1
    started = start([*COMMON, *CASES[case], *length], tmp_path / "run", cache, processes)
    codes, said = end(started)
    assert codes == [0] * processes, said
    assert said == [""] * processes
    assert_close(rows(tmp_path / "run"), alone[case])
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["execution"]["devices"] == devices


def until_checkpoint(out, started):
    while not checkpoints.rounds(out / "checkpoints"):
        if any(process.poll() is not None for process in started):
            pytest.fail(str(end(started)))
        time.sleep(0.05)


@pytest.mark.parametrize(("processes", "victim", "then"), [(2, 0, 1), (4, 2, 2)])
def test_a_killed_process_ends_the_run_which_then_goes_on(processes, victim, then, cache, tmp_path):
    length = ["--set", "rounds=200", "--set", "eval_every=100", "--set", "checkpoint.every=4"]
    length += ["--set", "engine.rounds_per_call=2"]
    (codes, said) = end(start([*COMMON, *SOME, *length], tmp_path / "whole", cache))
    assert codes == [0], said
    out = tmp_path / "run"
    started = start([*COMMON, *SOME, *length], out, cache, processes)
    until_checkpoint(out, started)
    started[victim].kill()
    clock = time.monotonic()
    codes, said = end(started, SOON)
    assert time.monotonic() - clock < SOON
    assert codes == [-signal.SIGKILL if rank == victim else 3 for rank in range(processes)]
    lost = f"flamejax: a process of this run is lost: rank {victim} ended before the run was over\n"
    assert said == ["" if rank == victim else lost for rank in range(processes)]
    codes, said = end(start(["--resume", "--quiet"], out, cache, then))
    assert codes == [0] * then, said
    assert_close(rows(out), rows(tmp_path / "whole"))


def test_a_request_to_stop_one_stops_all_with_a_checkpoint(cache, tmp_path):
    length = ["--set", "rounds=4000", "--set", "checkpoint.every=4"]
    started = start([*COMMON, *SOME, *length], tmp_path / "run", cache, 2)
    until_checkpoint(tmp_path / "run", started)
    started[1].send_signal(signal.SIGINT)
    codes, said = end(started)
    assert codes == [130, 130], said
    assert all("--resume --out" in line for line in said)


def test_a_silent_process_is_taken_for_lost(cache, tmp_path):
    length = ["--set", "rounds=4000", "--set", "checkpoint.every=4"]
    started = start([*COMMON, *SOME, *length], tmp_path / "run", cache, 2)
    until_checkpoint(tmp_path / "run", started)
    started[1].send_signal(signal.SIGSTOP)
    try:
        said = started[0].communicate(timeout=SOON)[1]
        assert started[0].returncode == 3
        assert "rank 1 has been silent for 20 s" in said
    finally:
        end(started[1:], 1) if started[1].poll() else started[1].kill()
        started[1].communicate()


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


def test_sums_between_processes_are_those_of_each_leaf(monkeypatch):
    import jax
    from jax.sharding import PartitionSpec as P

    from flamejax.engine import devices

    monkeypatch.setattr(devices.hosts, "count", lambda: 2)
    mesh = devices.Mesh(np.array(jax.devices()[:2]), (devices.AXIS,))
    tree = {"a": np.arange(6.0).reshape(2, 3), "b": np.arange(2), "c": np.ones((2, 2, 1))}
    summed = jax.jit(
        jax.shard_map(devices.total, mesh=mesh, in_specs=P(devices.AXIS), out_specs=P())
    )(tree)
    for name, value in tree.items():
        np.testing.assert_allclose(summed[name], value.sum(0, keepdims=True))
