"""How fast a sequence goes to its limit: like r^t (linear) or like t^-p (sublinear)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

FEWEST = 10  # values to fit a rate to
NOISE = 1e3  # times the rounding of the values: below that nothing is fitted


class Rate(NamedTuple):
    kind: str  # "linear" or "sublinear", whichever fits better
    factor: float  # r of r^t,
    exponent: float  # and p of t^-p, of the better fit of each kind
    limit: float  # of the values, by the better kind
    error_linear: float  # the share of the variance of log(value - limit) that the fits leave
    error_sublinear: float
    first: int  # the rounds that were fitted
    last: int


def fit(values: Sequence[float] | np.ndarray, limit: float | None = None) -> Rate | None:
    """The rate of falling values, one a round from round 0 on; None if there are too few, or too
    few to tell a limit.

    limit: if it is known; otherwise each kind takes the limit that suits it best. The first tenth
    of the rounds is left out, and what is as close to the limit as rounding.

    >>> found = fit([1 + 0.5**t for t in range(60)])
    >>> found.kind, round(found.factor, 3)
    ('linear', 0.5)
    >>> found = fit([1 / (t + 1) ** 2 for t in range(1000)], limit=0.0)
    >>> found.kind, round(found.exponent, 1)
    ('sublinear', 2.0)
    """
    values = np.asarray(values, float)
    values = values[: int(np.argmin(np.isfinite(np.append(values, np.nan))))]
    floor = NOISE * np.finfo(float).eps * np.abs(values).max(initial=0.0)
    lowest = values[-1] if limit is None and len(values) else limit
    above = np.flatnonzero(values - lowest > floor)
    if len(above) < FEWEST:
        return None
    last = int(above[-1])
    rounds = np.arange(max(1, (last + 9) // 10), last + 1)
    rounds = rounds[values[rounds] - lowest > floor]
    if len(rounds) < FEWEST:
        return None
    seen = values[rounds]
    if limit is None:
        fall = np.abs(seen[0] - seen[-1])
        limits = seen.min() - np.maximum(fall * np.logspace(-15, 0.5, 311), floor / NOISE * 4)
    else:
        limits = np.array([limit])
    linear, sublinear = (_best(x, seen, limits) for x in (rounds.astype(float), np.log(rounds)))
    better = min(linear, sublinear)
    if not np.isfinite([*linear, *sublinear]).all():
        return None
    if limit is None and better[2] == limits.min():  # any limit further away would fit as well
        return None
    return Rate(
        kind="linear" if better is linear else "sublinear",
        factor=float(np.exp(linear[1])),
        exponent=-sublinear[1],
        limit=better[2],
        error_linear=linear[0],
        error_sublinear=sublinear[0],
        first=int(rounds[0]),
        last=last,
    )


def speed(rate: Mapping[str, Any]) -> str:
    """A rate as a dict, in a word."""
    linear = rate["kind"] == "linear"
    return f"{rate['factor']:.4g}^t" if linear else f"t^-{rate['exponent']:.3g}"


def _best(x: np.ndarray, values: np.ndarray, limits: np.ndarray) -> tuple[float, float, float]:
    """Of straight lines through log(value - limit) against x: error, slope, limit of the best."""
    with np.errstate(divide="ignore", invalid="ignore"):  # values that all are the same
        logs = np.log(values[None] - limits[:, None])  # [limits, values]
        centered, off = x - x.mean(), logs - logs.mean(1, keepdims=True)
        slopes = off @ centered / (centered @ centered)
        errors = np.mean((off - slopes[:, None] * centered) ** 2, axis=1) / np.mean(off**2, axis=1)
    best = int(np.argmin(np.where(np.isfinite(errors), errors, np.inf)))
    return float(errors[best]), float(slopes[best]), float(limits[best])
