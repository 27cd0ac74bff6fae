"""What is looked at to judge a claim: margins of one case, or a gain in one row."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from flamejax.experiment.places import Entry, Measured, Merit, MissingError, Place, curve
from flamejax.experiment.rules import Gain, Look, Margins

ENOUGH = 0.95  # of the way to what the slower of two finally reaches
SMALL = 0.02  # a loss of accuracy that is next to none
OVERLAP = 1 / 4  # of the distance between curves that are apart: curves that nearly overlap


def best(mine: Entry, others: Sequence[Entry], *merits: Merit) -> Look:
    """Mine is above the best of the others, by every merit."""

    def look(place: Place) -> Margins:
        return tuple(
            merit(place, mine).over(max(merit(place, other) for other in others))
            for merit in merits
        )

    return look


def rises(entry: Entry, merit: Merit, sign: int = 1) -> Look:
    """The merit is higher at the second place than at the first; with sign -1, lower."""

    def look(first: Place, second: Place) -> Margins:
        return (merit(second, entry).over(merit(first, entry)).times(sign),)

    return look


def narrows(one: Entry, other: Entry, merit: Merit) -> Look:
    """The gap between two is smaller at the second place than at the first."""

    def gap(place: Place) -> Measured:
        margin = merit(place, one).over(merit(place, other))
        return margin.times(1 if margin.mean > 0 else -1)

    return lambda first, second: (gap(first).over(gap(second)),)


def loses(entry: Entry, merit: Merit, more: bool) -> Look:
    """From the first place to the second more than next to nothing is lost, or not more."""

    def look(first: Place, second: Place) -> Margins:
        lost = merit(first, entry).over(merit(second, entry))
        return (lost.plus(-SMALL).times(1 if more else -1),)

    return look


def loses_less(mine: Entry, others: Sequence[Entry], merit: Merit) -> Look:
    """From the first place to the second mine loses less than the one of the others that loses
    least."""

    def look(first: Place, second: Place) -> Margins:
        lost = {e: merit(first, e).over(merit(second, e)) for e in (mine, *others)}
        return (min(lost[other] for other in others).over(lost[mine]),)

    return look


def faster(mine: Entry, other: Entry, merit: Merit) -> Look:
    """Mine needs no more rounds, and its mean accuracy over all of them is not lower.

    Rounds are counted until the accuracy, a mean over seeds, has come 95 % of the way from the
    lower of both in the first evaluated round to the lower of both in the last.
    """

    def look(place: Place) -> Margins:
        area = merit(place, mine).over(merit(place, other))
        if not math.isfinite(area.mean):
            return (area,)
        curves = [curve(place, entry, "accuracy").mean(axis=0) for entry in (mine, other)]
        start, end = (min(curve[i] for curve in curves) for i in (0, -1))
        if start >= end:
            raise MissingError(f"{mine} or {other} did not learn on {place}")
        rounds = place.curves[mine.method]["round"]
        target = start + ENOUGH * (end - start)
        needed = [float(rounds[np.argmax(curve >= target)]) for curve in curves]
        return (Measured(needed[1] - needed[0]), area)

    return look


def overlaps(entry: Entry) -> Look:
    """The curves of loss at the last two places of a series are nearer to each other than a quarter
    of the distance between those at the first and the last but one; means over rounds."""

    def look(*series: Place) -> Margins:
        if len(series) < 3:
            raise MissingError(f"fewer than three values on {series[0].data} {series[0].partition}")
        chosen = (series[0], *series[-2:])
        first, middle, final = (curve(place, entry, "loss").mean(axis=0) for place in chosen)
        apart, close = (float(np.abs(a - middle).mean()) for a in (first, final))
        return (Measured(OVERLAP * apart - close),)

    return look


def above(mine: Entry, others: Sequence[Entry], merit: Merit) -> Gain:
    """Percentage points over the others, on average over them."""

    def gain(place: Place) -> float:
        margins = [merit(place, mine).over(merit(place, other)).mean for other in others]
        return 100 * _finite(float(np.mean(margins)), place)

    return gain


def change(mine: Entry, other: Entry, merit: Merit) -> Gain:
    """Percent that a loss or a variance is above another's; negative if it is below."""

    def gain(place: Place) -> float:
        before = _finite(merit(place, other).mean, place)
        if before == 0:
            raise MissingError(f"nothing to compare with on {place}")
        return 100 * (_finite(merit(place, mine).mean, place) / before - 1)

    return gain


def _finite(value: float, place: Place) -> float:
    if not math.isfinite(value):
        raise MissingError(f"a run diverged on {place}")
    return value
