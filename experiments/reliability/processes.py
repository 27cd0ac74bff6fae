"""flamejax as a user starts it: processes, how they end, and what they say."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
FAULTY = Path(__file__).with_name("faulty.py")
DONE, BAD_INPUT, FAILED, INTERRUPTED = 0, 2, 3, 130
HANGS = 124  # what `timeout` says
LONGEST = 300.0  # seconds; a process that takes longer hangs
METHODS = ("flame", "ditto", "pfedme")
ROUNDS, EVERY = 60, 6
SMALL = {
    "rounds": ROUNDS,
    "eval_every": 2,
    "data.limit": 500,
    "partition.clients": 6,
    "participation.clients_per_round": 3,
    "model.name": "mlr",
    "method.momentum": 0.5,
    "checkpoint.every": EVERY,  # the last one is of the last round: its parameters
}


class Outcome(NamedTuple):
    """How a process ended."""

    code: int  # negative: by this signal
    said: str  # its stderr
    seconds: float

    @property
    def traceback(self) -> bool:
        return "Traceback (most recent call last)" in self.said

    @property
    def last_line(self) -> str:
        return next(reversed(self.said.strip().splitlines()), "")


def settings(method: str, seed: int = 0, **more: object) -> list[str]:
    """A small federation on the bundled digits, as `--set` options."""
    values = {"seed": seed, **SMALL, "method.name": method, **more}
    return [part for key, value in values.items() for part in ("--set", f"{key}={value}")]


class Process:
    """`flamejax ARGUMENTS`, on its way."""

    def __init__(
        self,
        arguments: Sequence[str],
        faults: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """faults: options of faulty.py, which then starts flamejax."""
        program = [str(FAULTY), *faults, "--"] if faults else ["-m", "flamejax"]
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 (`ended` closes it)
        self.started = time.monotonic()
        self._process = subprocess.Popen(
            [sys.executable, *program, *arguments],
            stdout=subprocess.DEVNULL,
            stderr=self._log,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **(environment or {}), "PYTHONPATH": os.pathsep.join(paths)},
        )

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    @property
    def age(self) -> float:
        return time.monotonic() - self.started

    def send(self, number: signal.Signals) -> bool:
        """Send a signal; whether the process was still there."""
        if not self.running:
            return False
        self._process.send_signal(number)
        return True

    def ended(self) -> Outcome:
        """Wait for the end."""
        try:
            code = self._process.wait(LONGEST)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            code = HANGS
        seconds = self.age
        with self._log as log:
            log.seek(0)
            return Outcome(code, log.read().decode(errors="replace"), seconds)


def beginning(folder: Path, options: Sequence[str]) -> list[str]:
    """What a user types to start a run."""
    return ["run", "--quiet", *options, "--out", str(folder)]


def continuing(folder: Path, options: Sequence[str]) -> list[str]:
    """What a user types after a run was lost: it goes on, or starts if nothing is there yet."""
    if (folder / "config.toml").exists():
        return ["run", "--quiet", "--resume", "--out", str(folder)]
    return beginning(folder, options)


def whole(folder: Path, options: Sequence[str]) -> Outcome:
    """The run that nothing disturbs."""
    outcome = Process(beginning(folder, options)).ended()
    if outcome.code != DONE:
        raise RuntimeError(f"the undisturbed run failed: {outcome.said}")
    return outcome
