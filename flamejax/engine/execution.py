"""How many clients run side by side on one device, and what padding that costs."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from flamejax.config import Engine

MAX_OVERHEAD = 1.15  # of steps executed over steps needed, for a width chosen by the engine
# On CPU a kernel costs about a microsecond to start: steps of fewer multiplications than this, a
# batch times the parameters, are worth taking several at a time. Measured on softmax regression.
SMALL_STEP = 2**20
SMALL_MODELS = 2**16  # parameters, of all models side by side: they stay in a core's cache
MOST_ON_CPU = 64


class Step(NamedTuple):
    """Of a client's training."""

    batch: int
    parameters: int

    @property
    def multiplications(self) -> int:
        return self.batch * self.parameters

    @property
    def most(self) -> int:
        """How many are worth taking side by side on a core."""
        several = SMALL_STEP // self.multiplications
        if several < 2:
            return 1
        return min(max(several, SMALL_MODELS // self.parameters), MOST_ON_CPU)


class Plan(NamedTuple):
    execution: str  # map | vmap | chunk
    width: int  # clients side by side on each device
    devices: int
    reason: str

    def __str__(self) -> str:
        how = "one client" if self.width == 1 else f"{self.width} clients"
        return (
            f"{self.execution}: {how} at a time on each of {self.devices} device(s); {self.reason}"
        )


def choose(
    settings: Engine, platform: str, steps: np.ndarray, devices: int, cohort: int, step: Step
) -> Plan:
    """The strategy for `cohort` clients on each of some devices.

    steps: [n, cohort] of clients as a device might have them, by falling size.
    """
    execution, reason, most = settings.execution, "as asked", cohort
    if execution == "auto" and platform == "cpu":
        most, size = min(cohort, step.most), f"{step.multiplications:,} multiplications"
        execution, reason = "chunk", f"steps of {size} are small for a core"
        if most < 2:
            execution, reason = "map", f"a step of {size} fills a core"
    elif execution == "auto":
        execution, reason = "chunk", f"as many as {MAX_OVERHEAD:.2f}x padding allows on {platform}"
    if execution == "map":
        return Plan(execution, 1, devices, reason)
    if execution == "vmap":
        return Plan(execution, cohort, devices, reason)
    if settings.chunk != "auto":
        return Plan(execution, min(settings.chunk, cohort), devices, reason)
    limits = [w for w in (most, *(2**k for k in range(most.bit_length(), -1, -1))) if w <= most]
    widths = [-(-cohort // -(-cohort // w)) for w in limits]  # in equal groups
    width = next((w for w in widths if overhead(steps, w) <= MAX_OVERHEAD), 1)
    if width == 1 and settings.execution == "auto":
        execution, reason = "map", "clients are too uneven to run side by side"
    return Plan(execution, width, devices, reason)


def beside(plan: Plan, platform: str, step: Step, each: int, steps: np.ndarray) -> int:
    """How many runs to compute side by side, where each has `each` clients on a device.

    steps: [R, C] of all runs' clients, by falling size. A divisor of R.
    """
    runs = len(steps)
    uneven = steps.max(0).sum() * runs > MAX_OVERHEAD * steps.sum()
    if plan.width < each or uneven:  # not even a run's own clients are all side by side
        return 1
    most = step.most // each if platform == "cpu" else runs
    return max(n for n in range(1, runs + 1) if runs % n == 0 and n <= max(1, most))


def overhead(steps: np.ndarray, width: int) -> float:
    """Steps executed over steps needed when `width` neighbours wait for the slowest of them."""
    slots = steps.shape[1]
    padded = np.pad(steps, ((0, 0), (0, -slots % width))).reshape(len(steps), -1, width)
    return float(padded.max(-1).sum() * width / max(steps.sum(), 1))
