"""Damaged checkpoints are never used in silence.

    python experiments/reliability/damage.py [--cases 200] [--seed 1] [--out damage.json]

Every case is the folder of a run that was killed, with two checkpoints, of which the newest, or in
every fourth case both, are damaged in one of the ways of damages.py. `flamejax run --resume` should
either warn, go on from the newest intact one and end bit-identical to the undisturbed run, or end
with exit code 2 and one line that says what to do. Most cases run inside this process, every tenth
in one of its own.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import io
import json
import random
import shutil
import tempfile
import time
import traceback
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from compared import differences
from damages import KINDS, Damage, replaced_by
from processes import BAD_INPUT, DONE, Outcome, Process, beginning, settings
from rich.progress import track

ROUNDS, EVERY, KEPT = 16, 4, (4, 8)  # checkpoints at these rounds remain of a run
ADVICE = ("start", "--resume", "name another")  # one of these is in a line that says what to do
VERDICTS = ("used an older one", "refused", "refused, though one was intact")
FAULTS = ("accepted in silence", "traceback", "other result", "no advice")


def inside(arguments: list[str]) -> Outcome:
    """`flamejax ARGUMENTS` in this process."""
    from flamejax.cli import main

    said, started = io.StringIO(), time.monotonic()
    with (
        warnings.catch_warnings(record=True) as warned,
        contextlib.redirect_stderr(said),
        contextlib.redirect_stdout(io.StringIO()),
    ):
        warnings.simplefilter("always")
        try:
            code = main(arguments)
        except BaseException:  # whatever a user would see as a traceback
            code = 1
            said.write(traceback.format_exc())
    text = "".join(f"{w.category.__name__}: {w.message}\n" for w in warned) + said.getvalue()
    return Outcome(code, text, time.monotonic() - started)


def outside(arguments: list[str]) -> Outcome:
    """`flamejax ARGUMENTS` in a process of its own."""
    return Process(arguments).ended()


WAYS = {"inside": inside, "outside": outside}


class Ground(NamedTuple):
    """What cases are made of."""

    expected: Path  # the folder of the undisturbed run
    killed: Path  # and what a kill would have left of it
    others: Mapping[str, Path]  # checkpoints of other runs, of the same round


def prepare(work: Path, way: str, kinds: Sequence[str] = ()) -> Ground:
    """Undisturbed runs: of the cases, and the others that these kinds need, or all."""
    few = {"rounds": ROUNDS, "checkpoint.every": EVERY, "checkpoint.keep": ROUNDS // EVERY}
    variants: dict[str, dict[str, object]] = {
        "expected": {},
        "other config": {"method.lam": 2.0},
        "other model": {"model.name": "mlp"},
        "other clients": {"partition.clients": 7},
    }
    if kinds:
        variants = {name: x for name, x in variants.items() if name in ("expected", *kinds)}
    for name, more in track(variants.items(), f"undisturbed runs, {way}", len(variants)):
        run = WAYS[way](beginning(work / name, settings("flame", **few, **more)))
        if run.code != DONE:
            raise RuntimeError(f"the undisturbed run failed: {run.said}")
    shutil.copytree(work / "expected", work / "killed")
    for left in ("summary.json", "clients.npz", "curves.png"):
        (work / "killed" / left).unlink()
    for path in (work / "killed" / "checkpoints").iterdir():
        if int(path.name.removeprefix("round-")) not in KEPT:
            shutil.rmtree(path)
    there = f"checkpoints/round-{max(KEPT):06d}"
    others = {name: work / name / there for name in variants if name != "expected"}
    return Ground(work / "expected", work / "killed", others)


def kinds_of(ground: Ground) -> dict[str, Damage]:
    return {**KINDS, **{name: replaced_by(path) for name, path in ground.others.items()}}


def judge(outcome: Outcome, wrong: list[str], both: bool) -> str:
    """What became of a run whose newest checkpoint, or both, are damaged."""
    if outcome.traceback:
        return "traceback"
    if outcome.code == DONE:
        if "checkpoints/round-" not in outcome.said:
            return "accepted in silence"
        return "other result" if wrong else "used an older one"
    line = outcome.last_line
    advised = line.startswith("flamejax: ") and any(word in line for word in ADVICE)
    if outcome.code != BAD_INPUT or not advised:
        return "no advice"
    return "refused" if both else "refused, though one was intact"


def case(
    folder: Path, ground: Ground, kind: str, both: bool, way: str, rng: random.Random
) -> dict[str, Any]:
    """Damage, resume, and judge."""
    shutil.copytree(ground.killed, folder)
    harm = kinds_of(ground)[kind]
    paths = sorted((folder / "checkpoints").glob("round-*"), reverse=True)
    done = [harm(path, rng) for path in (paths if both else paths[:1])]
    outcome = WAYS[way](["run", "--quiet", "--resume", "--out", str(folder)])
    wrong = differences(folder, ground.expected) if outcome.code == DONE else []
    found = {"kind": kind, "both": both, "way": way, "what": done, "code": outcome.code}
    return {
        **found,
        "verdict": judge(outcome, wrong, both),
        "wrong": wrong,
        "said": outcome.said.replace(str(folder), "DIR"),
    }


def measure(
    cases: int, seed: int, work: Path, ways: Sequence[str], kinds: Sequence[str] = ()
) -> list[dict[str, Any]]:
    """All cases; kinds of damage take turns, and every tenth is in the last of the ways."""
    grounds = {}
    for way in ways:
        (work / way).mkdir()
        grounds[way] = prepare(work / way, way, kinds)
    rng, rows = random.Random(seed), []
    kinds = kinds or list(kinds_of(grounds[ways[0]]))
    for number in track(range(cases), "damaged checkpoints"):
        way = ways[-1] if number % 10 == 9 else ways[0]
        kind, both = kinds[number % len(kinds)], rng.random() < 0.25
        folder = work / "case"
        rows.append({"case": number, **case(folder, grounds[way], kind, both, way, rng)})
        shutil.rmtree(folder)
    return rows


def report(rows: list[dict[str, Any]]) -> str:
    """Verdicts by kind of damage, and every case that is a fault."""
    columns = [*VERDICTS, *FAULTS]
    lines = [f"| damage | {' | '.join(columns)} |", "|---|" + "---:|" * len(columns)]
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for row in rows:
        counts[row["kind"]][row["verdict"]] += 1
        counts["all"][row["verdict"]] += 1
    for kind, found in counts.items():
        if kind != "all":
            lines.append(f"| {kind} | {' | '.join(str(found[c] or '') for c in columns)} |")
    lines.append(f"| **all** | {' | '.join(str(counts['all'][c]) for c in columns)} |")
    bad = [row for row in rows if row["verdict"] in FAULTS]
    told = [f"{r['verdict']}: {r['what']}; {r['said'].strip()[-300:]}; {r['wrong']}" for r in bad]
    return "\n".join([*lines, "", *told])


def main() -> int:
    parser = argparse.ArgumentParser(description="Damage checkpoints and resume from them.")
    parser.add_argument("--cases", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, help="also write all cases there, as JSON")
    options = parser.parse_args()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="flamejax-damage-") as work:
        rows = measure(options.cases, options.seed, Path(work), ("inside", "outside"))
    print(report(rows))
    print(f"{time.monotonic() - started:.0f} s")
    if options.out:
        options.out.write_text(json.dumps(rows, indent=1) + "\n")
    return int(any(row["verdict"] in FAULTS for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
