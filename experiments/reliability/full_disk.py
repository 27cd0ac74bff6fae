"""A disk that is full: the last checkpoint survives, and with space again the run goes on.

    python experiments/reliability/full_disk.py [--sizes 6] [--seed 1]

A run is started on small disks of several sizes: real ones (tmpfs) where this process may mount
them, otherwise by faulty.py. When it has failed, its checkpoints are counted; then the disk grows,
the run is resumed, and its folder is compared with that of a run with room. A run that has room for
its records, though not for a checkpoint, warns and finishes; then all but checkpoints is compared.
"""

from __future__ import annotations

import argparse
import random
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import mounts
from compared import differences, newest
from processes import (
    BAD_INPUT,
    DONE,
    FAILED,
    Outcome,
    Process,
    beginning,
    continuing,
    settings,
    whole,
)
from rich.progress import track

ROOMY = 100_000  # kilobytes


@contextmanager
def crowded(place: Path, options: list[str], kilobytes: int) -> Iterator[tuple[Path, Outcome]]:
    """The folder of a run that had only so much room, and how it ended; then there is room."""
    folder = place / "run"
    if not mounts.possible():
        limit = ["--disk", str(kilobytes * 1000), "--folder", str(folder)]
        yield folder, Process(beginning(folder, options), limit).ended()
        return
    with mounts.disk(place, kilobytes):
        outcome = Process(beginning(folder, options)).ended()
        mounts.resize(place, ROOMY)
        yield folder, outcome


def trial(place: Path, options: list[str], expected: Path, kilobytes: int) -> dict[str, Any]:
    """What a run says on a full disk, what it leaves, and what becomes of it."""
    with crowded(place, options, kilobytes) as (folder, full):
        kept = newest(folder)
        resumed = Process(continuing(folder, options)).ended()
        wrong = differences(folder, expected)
    finished = full.code == DONE  # there was room for all records, and none for a checkpoint
    if finished and not kept and "cannot write the checkpoint" in full.said:
        wrong.remove("checkpoints differs")
    bad_end = full.code not in (BAD_INPUT, FAILED) and not finished
    if bad_end or full.traceback or resumed.code != DONE or resumed.traceback:
        wrong.append(f"{full.code}: {full.said} {resumed.code}: {resumed.said}")
    if kept and "warning: " in resumed.said:
        wrong.append(resumed.said)
    return {
        "kilobytes": kilobytes,
        "kept": kept and kept.name,
        "finished": finished,
        "said": full.last_line.replace(str(place), "DIR"),
        "wrong": wrong,
    }


def measure(parts: Sequence[float], work: Path) -> list[dict[str, Any]]:
    """On disks that are these parts of what the run leaves; on its way it needs more."""
    options, expected = settings("flame"), work / "expected"
    whole(expected, options)
    needed = sum(path.stat().st_size for path in expected.rglob("*") if path.is_file()) // 1000
    return [
        trial(work / f"disk-{number}", options, expected, max(4, int(needed * part)))
        for number, part in enumerate(track(parts, "full disks"))
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description="Run on small disks, then give them room.")
    parser.add_argument("--sizes", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    rng = random.Random(options.seed)
    parts = sorted(rng.uniform(0.02, 0.95) for _ in range(options.sizes))
    with tempfile.TemporaryDirectory(prefix="flamejax-disk-") as work:
        rows = measure(parts, Path(work))
    print("| kB | checkpoint that is kept | the end | said |\n|---:|---|---|---|")
    for row in rows:
        became = "finished, " * row["finished"] + ("; ".join(row["wrong"]) or "bit-identical")
        print(f"| {row['kilobytes']} | {row['kept'] or 'none'} | {became} | `{row['said']}` |")
    return int(any(row["wrong"] for row in rows))


if __name__ == "__main__":
    raise SystemExit(main())
