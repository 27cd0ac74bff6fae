"""What soak.py does to a run: each function does one thing, and says how the run took it."""

from __future__ import annotations

import random
import shutil
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import damages
import mounts
from compared import newest
from kills import moment
from processes import BAD_INPUT, DONE, FAILED, INTERRUPTED, Outcome, Process, continuing

PHYSICAL = ("truncate", "empty", "flip", "lengthen", "zeros", "delete", "swap", "rename", "symlink")


class Trial(NamedTuple):
    """A run on its way."""

    folder: Path
    options: list[str]
    seconds: float  # that the undisturbed one took,
    size: int  # and the bytes that it left
    cache: Path
    rng: random.Random

    def start(self, *faults: str) -> Process:
        return Process(
            continuing(self.folder, self.options), faults, {"FLAMEJAX_CACHE": str(self.cache)}
        )


class Felt(NamedTuple):
    """How a run took a fault."""

    injected: bool  # or else the run was quicker, or it cannot be done on this machine
    trouble: str = ""  # what should not have been
    note: str = ""


NOT_INJECTED = Felt(False)


def expect(outcome: Outcome, codes: Sequence[int]) -> Felt:
    """An end with one of these codes, and no traceback."""
    if outcome.code in codes and not outcome.traceback:
        return Felt(True)
    return Felt(True, f"exit code {outcome.code}: {outcome.said.strip()[-600:]}")


def signalled(trial: Trial, number: signal.Signals) -> Felt:
    process = trial.start()
    when = trial.rng.choice(["anywhere", "anywhere", "checkpoint", "published", "closing"])
    moment(process, trial.folder, when, trial.seconds, trial.rng)
    sent, outcome = process.send(number), process.ended()
    if not sent:
        return NOT_INJECTED if outcome.code == DONE else expect(outcome, [DONE])
    if outcome.code == -number:  # also Ctrl-C before flamejax is imported
        return Felt(True, note="traceback at the start" if outcome.traceback else "")
    return expect(outcome, [DONE, FAILED, INTERRUPTED])  # 3: nothing was there to keep


def kill(trial: Trial) -> Felt:
    return signalled(trial, signal.SIGKILL)


def terminate(trial: Trial) -> Felt:
    return signalled(trial, signal.SIGTERM)


def interrupt(trial: Trial) -> Felt:
    return signalled(trial, signal.SIGINT)


def corrupt(trial: Trial) -> Felt:
    """Damage the newest checkpoint, as a disk would."""
    path = newest(trial.folder)
    if path is None:
        return NOT_INJECTED
    what = damages.KINDS[trial.rng.choice(PHYSICAL)](path, trial.rng)
    outcome = trial.start().ended()
    if outcome.code == DONE and path.name not in outcome.said:
        return Felt(True, f"accepted in silence: {what}")
    if outcome.code == BAD_INPUT and not outcome.traceback and "start" in outcome.last_line:
        shutil.rmtree(trial.folder)  # as it says: the run starts anew
        return Felt(True, note="refused, started anew")
    return expect(outcome, [DONE])


def full_disk(trial: Trial) -> Felt:
    room = int(trial.size * trial.rng.choice([0.001, 0.01, 1]) * trial.rng.random())
    outcome = trial.start("--disk", str(room), "--folder", str(trial.folder)).ended()
    return NOT_INJECTED if outcome.code == DONE else expect(outcome, [BAD_INPUT, FAILED])


def read_only(trial: Trial) -> Felt:
    """Nothing can be written from some moment on."""
    process = trial.start()
    while process.running and not (trial.folder / "config.toml").exists():
        time.sleep(0.001)
    time.sleep(trial.rng.uniform(0, 0.5))
    if not trial.folder.exists():
        return expect(process.ended(), [DONE])
    with mounts.frozen(trial.folder) as done:
        outcome = process.ended()
    if outcome.code == DONE or not done:
        return NOT_INJECTED if outcome.code == DONE else expect(outcome, [DONE])
    return expect(outcome, [BAD_INPUT, FAILED])


def clock(trial: Trial) -> Felt:
    """The time of day jumps; half of the runs are killed as well."""
    process = trial.start("--clock", str(trial.rng.randrange(10**6)))
    if trial.rng.random() < 0.5:
        moment(process, trial.folder, "anywhere", trial.seconds, trial.rng)
        process.send(signal.SIGKILL)
    return expect(process.ended(), [DONE, -signal.SIGKILL])


def two_at_once(trial: Trial) -> Felt:
    """Two processes work on one folder; at most one should."""
    first = trial.start()
    moment(first, trial.folder, "anywhere", trial.seconds * 0.7, trial.rng)
    if not first.running:
        return expect(first.ended(), [DONE])._replace(injected=False)
    second = trial.start()
    outcomes = [first.ended(), second.ended()]
    felt = [expect(outcome, [DONE, BAD_INPUT]) for outcome in outcomes]
    refused = any(outcome.code == BAD_INPUT for outcome in outcomes)
    trouble = " ".join(part.trouble for part in felt if part.trouble)
    return Felt(True, trouble, "one refused" if refused else "none refused")


def bad_cache(trial: Trial) -> Felt:
    """A compiled program that was kept is cut off or has a wrong bit."""
    kept = sorted(path for path in trial.cache.rglob("*-cache") if path.stat().st_size)
    if not kept:
        return NOT_INJECTED
    harmed = trial.rng.sample(kept, min(3, len(kept)))
    before = [path.read_bytes() for path in harmed]
    for path, data in zip(harmed, before, strict=True):
        place = trial.rng.randrange(len(data))
        cut, wrong = data[:place], bytes([data[place] ^ (1 << trial.rng.randrange(8))])
        path.write_bytes(cut if trial.rng.random() < 0.5 else cut + wrong + data[place + 1 :])
    outcome = trial.start().ended()
    for path, data in zip(harmed, before, strict=True):
        path.write_bytes(data)
    return expect(outcome, [DONE])


FAULTS: Mapping[str, Callable[[Trial], Felt]] = {
    "kill -9": kill,
    "SIGTERM": terminate,
    "Ctrl-C": interrupt,
    "damaged checkpoint": corrupt,
    "full disk": full_disk,
    "read-only folder": read_only,
    "clock jumps": clock,
    "two processes": two_at_once,
    "damaged program cache": bad_cache,
}
