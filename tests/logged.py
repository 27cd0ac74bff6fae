"""Small runs that are logged, and what is in their files."""

from __future__ import annotations

import json

import numpy as np
from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
from tensorboard.compat.proto.event_pb2 import Event

from .problems import blobs, small_net

BASE = {  # compiled once, with test_checkpoints.py's
    "partition": {"name": "quantity", "clients": 9, "beta": 1.0, "min_samples": 6},
    "rounds": 12,
    "eval_every": 3,
    "quiet": True,
}
SHOWN = [3, 6, 9, 12]
OWN = {"data": blobs(), "model": small_net()}


def log(names):
    return {**BASE, **OWN, "record": {"log": names}}


def rows(folder):
    """Of metrics.jsonl, flattened here once more: round -> name -> number."""

    def leaves(value, path):
        if isinstance(value, dict):
            for key, inner in value.items():
                yield from leaves(inner, [*path, key])
        elif isinstance(value, list):
            yield "/".join(path), sum(value)
        elif not isinstance(value, str | None):
            yield "/".join(path), value

    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    found = {line.pop("round"): dict(leaves(line, [])) for line in lines}
    assert all("pm/accuracy" in row and "selection/loss/hm" in row for row in found.values())
    return found


def events(folder):
    """All events of a run, in TensorBoard's own words."""
    (path,) = (folder / "tensorboard").iterdir()
    return [Event.FromString(raw) for raw in RawEventFileLoader(str(path)).Load()]


def scalars(folder):
    found = [
        (event.step, value.tag, value.simple_value)
        for event in events(folder)
        for value in event.summary.value
        if value.HasField("simple_value")
    ]
    assert len({(step, tag) for step, tag, _ in found}) == len(found)  # nothing twice
    return {step: {t: x for s, t, x in found if s == step} for step, _, _ in found}


def single(found):
    """Numbers as TensorBoard keeps them."""
    return {r: {name: float(np.float32(x)) for name, x in row.items()} for r, row in found.items()}
