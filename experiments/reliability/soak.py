"""Small federations for some time on a machine where everything goes wrong.

    python experiments/reliability/soak.py [--minutes 10] [--seed 1] [--faults "kill -9,Ctrl-C"]

Run after run is started and disturbed, up to four times in a row: SIGKILL, SIGTERM and Ctrl-C at
any moment, a damaged checkpoint, a full disk, a folder that becomes read-only, a clock that jumps,
two processes on one folder, a damaged cache of compiled programs. In between it is resumed as a
user would do it, and in the end its folder is compared with that of the undisturbed run, bit for
bit. A fault is lost if it ended in a traceback, a wrong exit code or silence, or if the run that it
was part of cannot be brought to an end or ends with another result.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import random
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from compared import differences
from faults import FAULTS, Trial
from processes import DONE, METHODS, settings, whole
from rich.progress import Progress

MOST = 4  # faults of a run


class Reference(NamedTuple):
    """An undisturbed run."""

    folder: Path
    options: list[str]
    seconds: float
    size: int


def reference(work: Path, method: str) -> Reference:
    options, folder = settings(method), work / method
    seconds = whole(folder, options).seconds
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return Reference(folder, options, seconds, size)


def finished(folder: Path) -> bool:
    try:
        return json.loads((folder / "summary.json").read_text())["status"] == "finished"
    except (OSError, ValueError):
        return False


def disturbed(trial: Trial, expected: Path, names: Sequence[str]) -> dict[str, Any]:
    """One run with several faults, and what became of it."""
    felt = []
    for name in trial.rng.choices(names, k=trial.rng.randint(1, MOST)):
        felt.append((name, FAULTS[name](trial)))
        if finished(trial.folder):
            break
    wrong = []
    if not finished(trial.folder):
        outcome = trial.start().ended()
        if outcome.code != DONE or outcome.traceback:
            wrong.append(f"does not go on, exit code {outcome.code}: {outcome.said[-600:]}")
    wrong += differences(trial.folder, expected)
    return {"faults": [(name, *one) for name, one in felt], "wrong": wrong}


def soak(
    seconds: float,
    seed: int,
    work: Path,
    names: Sequence[str],
    methods: Sequence[str] = METHODS,
) -> list[dict[str, Any]]:
    """Disturbed runs until the time is over."""
    cache = work / "cache"
    os.environ["FLAMEJAX_CACHE"] = str(cache)  # it is damaged as well
    rng, rows, known = random.Random(seed), [], {}
    until, started = time.monotonic() + seconds, time.monotonic()
    with Progress() as progress:
        bar = progress.add_task("soak", total=seconds)
        while time.monotonic() < until or not rows:
            method = methods[len(rows) % len(methods)]
            if method not in known:
                known[method] = reference(work, method)
            expected, folder = known[method], work / f"run-{len(rows)}"
            trial = Trial(folder, expected.options, expected.seconds, expected.size, cache, rng)
            row = disturbed(trial, expected.folder, names)
            rows.append({"run": len(rows), "method": method, **row})
            shutil.rmtree(folder, ignore_errors=True)
            progress.update(bar, completed=time.monotonic() - started)
    return rows


def report(rows: list[dict[str, Any]]) -> str:
    """Faults by kind: injected, survived, lost; and every loss."""
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    lost = []
    for row in rows:
        for name, injected, trouble, note in row["faults"]:
            if injected:
                bad = bool(trouble or row["wrong"])
                counts[name]["lost" if bad else "survived"] += 1
                counts[name][note] += bool(note)
        if row["wrong"] or any(trouble for _, _, trouble, _ in row["faults"]):
            lost.append(row)
    lines = ["| fault | injected | survived | lost | of these |", "|---|---:|---:|---:|---|"]
    for name in FAULTS:
        if found := counts.get(name):
            notes = [f"{v} {k}" for k, v in found.items() if k not in ("", "lost", "survived")]
            row = [found["lost"] + found["survived"], found["survived"], found["lost"]]
            lines.append(f"| {name} | {' | '.join(map(str, row))} | {', '.join(notes)} |")
    total = [sum(found[key] for found in counts.values()) for key in ("survived", "lost")]
    lines.append(f"| **all** | {sum(total)} | {total[0]} | {total[1]} | |")
    lines += ["", f"{len(rows)} runs, {len(rows) - len(lost)} bit-identical and as they should be"]
    return "\n".join([*lines, *(f"LOST: {json.dumps(row)}" for row in lost)])


def main() -> int:
    parser = argparse.ArgumentParser(description="Disturb runs and compare what becomes of them.")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--faults", default=",".join(FAULTS), help="some of them, with commas")
    parser.add_argument("--out", type=Path, help="also write all runs there, as JSON")
    options = parser.parse_args()
    names = options.faults.split(",")
    if unknown := set(names) - set(FAULTS):
        parser.error(f"no such faults: {', '.join(unknown)}; there are {', '.join(FAULTS)}")
    with tempfile.TemporaryDirectory(prefix="flamejax-soak-") as work:
        rows = soak(options.minutes * 60, options.seed, Path(work), names)
    print(report(rows))
    if options.out:
        options.out.write_text(json.dumps(rows, indent=1) + "\n")
    return int("LOST" in report(rows))


if __name__ == "__main__":
    raise SystemExit(main())
