"""What checkpoints cost: the same run with and without them, taking turns.

    python experiments/reliability/checkpoint_cost.py [--turns 5] [--out checkpoint_cost.json]

A checkpoint is copied while rounds wait and written while they go on, so what it costs is the time
by which a run with checkpoints is longer, divided by their number: waiting, and rounds that share
the cores and the disk with the writing. It is given as a share of the default interval between
checkpoints, and beside it a bound that does not depend on the noise of two long times: the seconds
for which rounds waited, measured directly, and those that the writing took in its thread.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from rich.progress import track

import flamejax as fj
from flamejax import checkpoints
from flamejax.config import Checkpoint
from flamejax.writer import Writer

CLIENTS = {"name": "iid", "overlap": True}
WORKLOADS: dict[str, dict[str, Any]] = {
    "MLP, 10 clients": {
        "rounds": 60,
        "data": {"name": "mnist_mini", "samples": 600},
        "partition": {**CLIENTS, "clients": 10},
        "checkpoint": {"every": 10},
    },
    "MLP, 10 of 100 clients": {
        "rounds": 60,
        "data": {"name": "mnist_mini", "samples": 600},
        "partition": {**CLIENTS, "clients": 100},
        "participation": {"clients_per_round": 10},
        "checkpoint": {"every": 10},
    },
    "MLP, 1,000 clients": {
        "rounds": 12,
        "data": {"name": "mnist_mini", "samples": 300},
        "partition": {**CLIENTS, "clients": 1000},
        "checkpoint": {"every": 4},
    },
}


class Turn(NamedTuple):
    """One run of a workload."""

    seconds: float
    checkpoints: int
    waited: float  # seconds, for all of them
    written: float  # in the thread
    bytes: int  # of the last one


@contextmanager
def clocked(owner: Any, name: str, seconds: list[float]) -> Any:
    """Note how long each call of a function takes."""
    plain = getattr(owner, name)

    def timed(*arguments: Any) -> Any:
        started = time.perf_counter()
        try:
            return plain(*arguments)
        finally:
            seconds.append(time.perf_counter() - started)

    with mock.patch.object(owner, name, timed):
        yield


def turn(settings: Mapping[str, Any], folder: Path, every: int | str) -> Turn:
    settings = {"eval_every": settings["rounds"], "model": {"name": "mlp"}, **settings}
    waited: list[float] = []
    written: list[float] = []
    with clocked(Writer, "save", waited), clocked(checkpoints, "save", written):
        started = time.perf_counter()
        fj.run(**settings | {"checkpoint": {"every": every}}, out=folder, quiet=True)
        seconds = time.perf_counter() - started
    newest = max((folder / "checkpoints").glob("round-*"), default=folder / "none")
    size = sum(path.stat().st_size for path in newest.glob("*"))
    shutil.rmtree(folder)
    return Turn(seconds, len(written), sum(waited), sum(written), size)


def measure(
    workloads: Mapping[str, dict[str, Any]], turns: int, work: Path
) -> list[dict[str, Any]]:
    rows = []
    for name, settings in workloads.items():
        every = settings["checkpoint"]["every"]
        turn(settings, work / "warm", every)  # compiles
        pairs: Sequence[tuple[Turn, Turn]] = [
            (turn(settings, work / "without", "never"), turn(settings, work / "with", every))
            for _ in track(range(turns), name)
        ]
        without, with_them = (min(pair[i].seconds for pair in pairs) for i in range(2))
        last = pairs[-1][1]
        rows.append(
            {
                "workload": name,
                "megabytes": last.bytes / 1e6,
                "checkpoints": last.checkpoints,
                "without": without,
                "with": with_them,
                "longer": (with_them - without) / last.checkpoints,
                "waited": min(pair[1].waited for pair in pairs) / last.checkpoints,
                "written": min(pair[1].written for pair in pairs) / last.checkpoints,
            }
        )
    return rows


def report(rows: Sequence[Mapping[str, Any]]) -> str:
    interval = Checkpoint().seconds
    assert interval
    lines = [
        "| run | MB | run without, s | with, s | of them | longer, s each | rounds waited, s each "
        f"| writing, s each | share of {interval:.0f} s, at most |",
        "|---" + "|---:" * 8 + "|",
    ]
    for row in rows:
        most = max(row["longer"], row["written"])  # if the writing took all of the machine
        lines.append(
            f"| {row['workload']} | {row['megabytes']:.1f} | {row['without']:.2f} "
            f"| {row['with']:.2f} | {row['checkpoints']} | {row['longer']:.3f} "
            f"| {row['waited']:.3f} | {row['written']:.3f} | {most / interval:.3%} |"
        )
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure what checkpoints cost.")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--out", type=Path, help="also write the figures there, as JSON")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="flamejax-cost-") as work:
        rows = measure(WORKLOADS, options.turns, Path(work))
    print(report(rows))
    if options.out:
        options.out.write_text(json.dumps(rows, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
