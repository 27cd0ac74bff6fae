"""Contestants on the same work, taking turns, each in a process of its own.

Machines are noisy, so every figure is the best of several turns; a turn during which other
processes were busy is repeated, and counted as disturbed.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, NamedTuple

from flamejax.bench.workers import protocol
from flamejax.bench.workloads import make_job
from flamejax.errors import RunError

WORKERS = Path(protocol.__file__).parent
TURN = 0.4  # seconds that a turn lasts at least: as many rounds as it takes
PAUSE = 0.1  # between turns: threads of the last one may still be spinning
NOISE = 0.08  # share of the machine that others may use during a turn
PATIENCE = 20.0  # seconds to wait for an idle machine before a turn


class Entrant(NamedTuple):
    """Who does what."""

    label: str
    workload: str
    script: str  # in workers/
    python: str = sys.executable
    options: tuple[str, ...] = ()
    command: str = "train"


class Outcome(NamedTuple):
    """How it went. Seconds are of one round."""

    label: str
    workload: str
    command: str
    seconds: float  # the best turn's
    median: float
    turns: int
    disturbed: int  # turns that were not counted
    clean: bool  # False: there was no undisturbed turn, so disturbed ones are counted
    found: dict[str, float]  # in the second round: losses, accuracies
    rss: int | None  # peak bytes of its processes
    ready: dict[str, Any]  # version, compile_seconds


class Worker:
    """A contestant's process, waiting for its turn."""

    def __init__(self, entrant: Entrant, job: str) -> None:
        self.entrant = entrant
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115
        self.process = subprocess.Popen(
            [entrant.python, str(WORKERS / entrant.script), job, *entrant.options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            start_new_session=True,  # so that it ends with all its children
        )
        self.ready = self.answer()["ready"]

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            self.errors.seek(0)
            said = self.errors.read().decode(errors="replace").strip().splitlines()
            raise RunError(f"bench: {self.entrant.label} ended: {said[-1] if said else 'no word'}")
        return json.loads(line)

    def go(self, rounds: int) -> tuple[float, dict[str, float], float]:
        """Seconds a round, what it found, and the share of the machine that others had."""
        assert self.process.stdin
        machine, own = busy_seconds(), self.cpu_seconds()
        started = time.perf_counter()
        self.process.stdin.write(f"{self.entrant.command} {rounds}\n")
        self.process.stdin.flush()
        answer = self.answer()
        wall = time.perf_counter() - started
        others = busy_seconds() - machine - (self.cpu_seconds() - own)
        share = max(0.0, others - 0.02) / (wall * protocol.cores())  # clocks tick in hundredths
        return answer["seconds"] / rounds, answer["found"], share

    def cpu_seconds(self) -> float:
        ticks = sum(int(stat[11]) + int(stat[12]) for _, stat in session(self.process.pid))
        return ticks / os.sysconf("SC_CLK_TCK")

    def peak_rss(self) -> int | None:
        total = 0
        for pid, _ in session(self.process.pid):
            try:
                lines = Path(f"/proc/{pid}/status").read_text().splitlines()
            except OSError:
                continue
            total += sum(int(x.split()[1]) for x in lines if x.startswith("VmHWM")) * 1024
        return total or None

    def stop(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self.errors.close()


def race(
    entrants: list[Entrant],
    repeats: int,
    say: Callable[[str], None] = lambda text: None,
    patience: float = PATIENCE,
) -> list[Outcome]:
    """Let them take turns until each has had `repeats` undisturbed ones, or twice as many."""
    with ExitStack() as stack:
        jobs: dict[str, str] = {}
        for name in dict.fromkeys(entrant.workload for entrant in entrants):
            jobs[name] = stack.enter_context(tempfile.TemporaryDirectory(prefix="flamejax-bench-"))
            if name:
                protocol.save(make_job(name), Path(jobs[name]))
        workers: list[Worker] = []
        counts: list[int] = []
        found: list[dict[str, float]] = []
        for entrant in entrants:
            say(f"{entrant.label}: getting ready")
            workers.append(Worker(entrant, jobs[entrant.workload]))
            stack.callback(workers[-1].stop)
            workers[-1].go(1)  # its first round may be a slow one
            seconds, after_two, _ = workers[-1].go(1)
            found.append(after_two)
            counts.append(max(1, round(TURN / max(1e-4, seconds))))
        turns: list[list[tuple[float, float]]] = [[] for _ in workers]
        for turn in range(2 * repeats):
            for i, worker in enumerate(workers):
                if sum(others <= NOISE for _, others in turns[i]) >= repeats:
                    continue
                say(f"{worker.entrant.label}: turn {turn + 1}")
                time.sleep(PAUSE)
                wait_for_quiet(patience)
                seconds, _, others = worker.go(counts[i])
                turns[i].append((seconds, others))
        return [outcome(worker, turns[i], found[i]) for i, worker in enumerate(workers)]


def outcome(worker: Worker, turns: list[tuple[float, float]], found: dict[str, float]) -> Outcome:
    clean = [seconds for seconds, others in turns if others <= NOISE]
    counted = clean or [seconds for seconds, _ in turns]
    return Outcome(
        label=worker.entrant.label,
        workload=worker.entrant.workload,
        command=worker.entrant.command,
        seconds=min(counted),
        median=statistics.median(counted),
        turns=len(turns),
        disturbed=len(turns) - len(clean),
        clean=bool(clean),
        found=found,
        rss=worker.peak_rss(),
        ready=worker.ready,
    )


def busy_seconds() -> float:
    """Processor time of the whole machine so far, stolen time included; 0 where unknown."""
    try:
        fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]
    except OSError:
        return 0.0
    user, nice, system, _idle, _waiting, irq, softirq, steal = map(int, fields[:8])
    ticks = user + nice + system + irq + softirq + steal
    return ticks / os.sysconf("SC_CLK_TCK")


def wait_for_quiet(patience: float = PATIENCE) -> None:
    """Until little runs on this machine, but no longer than so many seconds."""
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        before = busy_seconds()
        time.sleep(0.1)
        if busy_seconds() - before <= 0.1 * protocol.cores() * NOISE + 0.02:
            return


def session(leader: int) -> list[tuple[int, list[str]]]:
    """Processes of a session: their ids, and the fields of /proc/PID/stat after the name."""
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        if fields[3] == str(leader):
            found.append((int(path.parent.name), fields))
    return found
