"""Runs that are killed go on to the same result, bit for bit.

    python experiments/reliability/kills.py [--points 50] [--seed 1] [--out kills.json]

Every point is a small federation (FLAME, Ditto or pFedMe, with partial participation and momentum)
in a process that gets SIGKILL, once or up to three times in a row: at any moment of its life, while
it writes a checkpoint, when a checkpoint has just appeared, or while it closes. Every sixth point
starts without compiled programs, so that it is also killed while it compiles and keeps them. After
each kill a user's next command is given (`--resume`, or the same command if nothing is there yet),
until the run ends. Its folder is then compared with that of the undisturbed run: metrics.jsonl,
config.toml and curves.png by bytes, clients.npz array by array, summary.json without seconds, and
the checkpoint of the last round, which holds all parameters.
"""

from __future__ import annotations

import argparse
import collections
import json
import random
import shutil
import signal
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from compared import differences
from processes import DONE, METHODS, Outcome, Process, continuing, settings, whole
from rich.progress import track

LOOK = 0.0005  # seconds between two looks at a folder
WHENS = {"anywhere": 8, "checkpoint": 6, "published": 3, "closing": 3}  # how often, of 20


class Reference(NamedTuple):
    """The undisturbed run of a method."""

    folder: Path
    options: list[str]
    seconds: float


class Killed(NamedTuple):
    when: str  # the moment that was looked for
    stage: str  # what the folder was like when the process was gone
    seconds: float  # its age


def references(work: Path, methods: Sequence[str]) -> dict[str, Reference]:
    """Undisturbed runs, each twice: the second has its compiled programs, as later ones have."""
    found = {}
    for method in track(methods, "undisturbed runs"):
        options = settings(method)
        first, second = (work / f"{method}-{i}" for i in range(2))
        whole(first, options)
        seconds = whole(second, options).seconds
        if wrong := differences(second, first):
            raise RuntimeError(f"two undisturbed runs of {method}: {wrong}")
        found[method] = Reference(first, options, seconds)
    return found


def stage(folder: Path) -> str:
    """How far the run in a folder has come."""
    if not (folder / "config.toml").exists():
        return "before the folder"
    if (folder / "summary.json").exists():
        return "after summary.json"
    if any((folder / name).exists() for name in ("clients.npz", ".clients.npz.part")):
        return "closing"
    if writing(folder):
        return "writing a checkpoint"
    return "between checkpoints" if published(folder) else "before a checkpoint"


def writing(folder: Path) -> set[str]:
    return {path.name for path in (folder / "checkpoints").glob(".round-*.part")}


def published(folder: Path) -> set[str]:
    return {path.name for path in (folder / "checkpoints").glob("round-*")}


def closing(folder: Path) -> set[str]:
    return {path.name for path in folder.glob("*clients.npz*")}


def await_new(process: Process, look: Callable[[], set[str]], times: int) -> None:
    """Wait until something has appeared so many times."""
    before = look()
    while process.running and times:
        now = look()
        times -= bool(now - before)
        before = now
        time.sleep(LOOK)


def moment(process: Process, folder: Path, when: str, seconds: float, rng: random.Random) -> None:
    """Wait for a moment to kill a process."""
    if when == "anywhere":
        until = rng.uniform(0, seconds)
        while process.running and process.age < until:
            time.sleep(LOOK)
        return
    look, times, later = {
        "checkpoint": (writing, rng.randint(1, 6), 0.1),
        "published": (published, rng.randint(1, 6), 0.005),
        "closing": (closing, 1, 0.4),
    }[when]
    await_new(process, lambda: look(folder), times)
    time.sleep(rng.uniform(0, later))


def kill_once(
    command: list[str],
    folder: Path,
    reference: Reference,
    rng: random.Random,
    environment: Mapping[str, str],
) -> Killed | Outcome:
    """Start a command and kill it; how it ended if it was quicker."""
    process = Process(command, environment=environment)
    when = rng.choices(list(WHENS), list(WHENS.values()))[0]
    moment(process, folder, when, reference.seconds, rng)
    sent, age = process.send(signal.SIGKILL), process.age
    outcome = process.ended()
    if sent and outcome.code == -signal.SIGKILL:
        return Killed(when, stage(folder), age)
    return outcome


def point(
    folder: Path, reference: Reference, rng: random.Random, environment: Mapping[str, str]
) -> dict[str, Any]:
    """One run with kills: what happened, and whether it made a difference."""
    wanted = rng.choices((1, 2, 3), (12, 5, 3))[0]
    kills: list[Killed] = []
    while len(kills) < wanted:
        ended = kill_once(
            continuing(folder, reference.options), folder, reference, rng, environment
        )
        if isinstance(ended, Killed):
            kills.append(ended)
        elif ended.code != DONE:
            return {"kills": kills, "wrong": [ended.said]}
        elif kills:
            break  # nothing is left of it to kill
        else:
            shutil.rmtree(folder)  # it was quicker than the first kill: once more
    attempts, outcome = 0, None
    while outcome is None or (outcome.code != DONE and attempts < 3):
        outcome = Process(continuing(folder, reference.options), environment=environment).ended()
        attempts += 1
    wrong = differences(folder, reference.folder)
    if outcome.code != DONE or attempts > 1 or outcome.traceback:
        wrong.append(f"exit code {outcome.code} after {attempts} attempts: {outcome.said}")
    return {"kills": kills, "wrong": wrong, "said": outcome.said}


def measure(
    points: int, seed: int, work: Path, methods: Sequence[str] = METHODS
) -> list[dict[str, Any]]:
    """All points; methods take turns."""
    found, rng, rows = references(work, methods), random.Random(seed), []
    for number in track(range(points), "kill points"):
        method, folder = methods[number % len(methods)], work / f"point-{number}"
        cold = number % 6 == 5
        cache = work / "cache"
        environment = {"FLAMEJAX_CACHE": str(cache)} if cold else {}
        row = point(folder, found[method], rng, environment)
        rows.append({"point": number, "method": method, "cold": cold, **row})
        shutil.rmtree(cache, ignore_errors=True)
        if not row["wrong"]:
            shutil.rmtree(folder, ignore_errors=True)
    return rows


def report(rows: list[dict[str, Any]]) -> str:
    """Kills by the stage in which they came, and points that were lost."""
    counts = collections.Counter(kill.stage for row in rows for kill in row["kills"])
    lines = ["| killed | times |", "|---|---:|"]
    lines += [f"| {name} | {number} |" for name, number in counts.most_common()]
    lost = [row for row in rows if row["wrong"]]
    several = sum(len(row["kills"]) > 1 for row in rows)
    cold = sum(row["cold"] for row in rows)
    lines += [
        "",
        f"{len(rows)} points, {counts.total()} kills ({several} points with several, {cold} "
        f"without compiled programs): {len(rows) - len(lost)} bit-identical, {len(lost)} lost",
    ]
    return "\n".join([*lines, *(f"LOST: {row}" for row in lost)])


def main() -> int:
    parser = argparse.ArgumentParser(description="Kill runs and compare what becomes of them.")
    parser.add_argument("--points", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, help="also write all points there, as JSON")
    options = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="flamejax-kills-") as work:
        rows = measure(options.points, options.seed, Path(work))
    print(report(rows))
    print(f"{time.monotonic() - started:.0f} s")
    if options.out:
        options.out.write_text(json.dumps([_plain(row) for row in rows], indent=1) + "\n")
    return int(any(row["wrong"] for row in rows))


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    return {**row, "kills": [kill._asdict() for kill in row["kills"]]}


if __name__ == "__main__":
    raise SystemExit(main())
