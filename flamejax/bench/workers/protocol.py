"""How the bench and its workers speak: a folder with the job, then a line for every round asked.

Workers are scripts, so that each may run in an environment of its own; this file and NumPy are all
they share. A worker reads its job from the folder named on its command line, gets ready, answers
`{"ready": ...}`, and from then on one line of JSON for every line it is sent.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np


class Job(NamedTuple):
    """Work that every contestant does: client i holds `samples[i]` images from `first[i]` on.

    Of these it trains on the first `training[i]` and is tested on the others. A round is one local
    epoch of mini-batch SGD on every chosen client, and the server's mean.
    """

    name: str
    method: str  # flame | fedavg
    model: str  # mlr | mlp | cnn_cifar | cnn_medical
    selected: int  # clients per round
    batch: int
    lr: float
    lam: float
    rho: float
    mean: float  # a network sees (image / 255 - mean) / std
    std: float
    classes: int
    images: np.ndarray  # [N, ...] uint8
    labels: np.ndarray  # [N] int32
    samples: np.ndarray  # [C]
    training: np.ndarray  # [C]
    weights: list[np.ndarray]  # of the first model, layer by layer: kernel, bias

    @property
    def clients(self) -> int:
        return len(self.samples)

    @property
    def first(self) -> np.ndarray:
        return np.concatenate([[0], np.cumsum(self.samples)[:-1]])


ARRAYS = ("images", "labels", "samples", "training")


def save(job: Job, folder: Path) -> None:
    values = job._asdict()
    arrays = {name: values.pop(name) for name in ARRAYS}
    arrays |= {f"weight{i}": w for i, w in enumerate(values.pop("weights"))}
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array, allow_pickle=False)
    (folder / "job.json").write_text(json.dumps(values))


def load(folder: str | Path) -> Job:
    folder = Path(folder)
    values = json.loads((folder / "job.json").read_text())
    arrays = {name: np.load(folder / f"{name}.npy", allow_pickle=False) for name in ARRAYS}
    count = len(list(folder.glob("weight*.npy")))
    weights = [np.load(folder / f"weight{i}.npy", allow_pickle=False) for i in range(count)]
    return Job(**values, **arrays, weights=weights)


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def serve(commands: dict[str, Callable[[int], Any]], **ready: Any) -> None:
    """Answer requests such as "train 3" with the seconds they took and what they found."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # whatever a library prints is not an answer
    answers.write(json.dumps({"ready": ready}) + "\n")
    for line in sys.stdin:
        name, count = line.split()
        started = time.perf_counter()
        found = commands[name](int(count))
        seconds = time.perf_counter() - started
        answers.write(json.dumps({"seconds": seconds, "found": found}) + "\n")
