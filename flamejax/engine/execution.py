"""How many clients run side by side on one device, and what padding that costs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from flamejax.config import Engine

MAX_OVERHEAD = 1.15  # of steps executed over steps needed, for a width chosen by the engine


class Plan(NamedTuple):
    execution: str  # map | vmap | chunk
    width: int  # clients side by side on each device
    devices: int
    reason: str


def choose(settings: Engine, platform: str, steps: np.ndarray, cohort: int) -> Plan:
    """The strategy for `cohort` clients per device.

    steps: [D, K] steps of each slot, per device by falling size.
    """
    devices = len(steps)
    execution, reason = settings.execution, "as asked"
    if execution == "auto" and platform == "cpu":
        execution, reason = "map", "one client at a time on each core is fastest on CPU"
    elif execution == "auto":
        execution, reason = "chunk", f"as many clients as {MAX_OVERHEAD:.2f}x padding allows"
    if execution == "map":
        return Plan(execution, 1, devices, reason)
    if execution == "vmap":
        return Plan(execution, cohort, devices, reason)
    if settings.chunk != "auto":
        return Plan(execution, min(settings.chunk, cohort), devices, reason)
    widths = [
        w for w in (cohort, *(2**k for k in range(cohort.bit_length(), -1, -1))) if w <= cohort
    ]
    width = next((w for w in widths if overhead(steps, w) <= MAX_OVERHEAD), 1)
    return Plan(execution, width, devices, reason)


def overhead(steps: np.ndarray, width: int) -> float:
    """Steps executed over steps needed when `width` neighbours wait for the slowest of them."""
    slots = steps.shape[1]
    padded = np.pad(steps, ((0, 0), (0, -slots % width))).reshape(len(steps), -1, width)
    return float(padded.max(-1).sum() * width / max(steps.sum(), 1))
