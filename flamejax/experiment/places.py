"""An experiment as claims are judged on it: places with methods by name, in one form of these.

A *merit* is a figure of which more is better: an accuracy, or minus a loss or a variance. A run
that diverged has the merit minus infinity, so that it is below every run that did not; between two
that did there is nothing to judge.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby, pairwise
from typing import Any, NamedTuple

import numpy as np

from flamejax.experiment.paper import name
from flamejax.experiment.results import Experiment


class MissingError(Exception):
    """What would be needed to judge is not there."""


class Measured(NamedTuple):
    """A mean over seeds and its standard error; with one seed no error is known, and it is 0."""

    mean: float
    error: float = 0.0
    seeds: tuple[float, ...] = ()  # what each gave, where that is known

    @classmethod
    def of(cls, seeds: Iterable[float]) -> Measured:
        values = np.array(tuple(seeds))
        error = values.std(ddof=1) / math.sqrt(values.size) if values.size > 1 else 0.0
        return cls(float(values.mean()), float(error), tuple(values.tolist()))

    def over(self, other: Measured) -> Measured:
        """The difference: seed by seed, as what is compared has the same clients in a seed."""
        if math.isinf(self.mean) and math.isinf(other.mean):
            raise MissingError("runs diverged on both sides")
        if self.seeds and len(self.seeds) == len(other.seeds):
            return Measured.of(a - b for a, b in zip(self.seeds, other.seeds, strict=True))
        return Measured(self.mean - other.mean, math.hypot(self.error, other.error))

    def plus(self, number: float) -> Measured:
        seeds = tuple(value + number for value in self.seeds)
        return Measured(self.mean + number, self.error, seeds)

    def times(self, sign: int) -> Measured:
        return Measured(sign * self.mean, self.error, tuple(sign * v for v in self.seeds))


class Entry(NamedTuple):
    """A line of the paper's tables and figures."""

    method: str
    model: str  # "pm", "gm", "hm" or "oracle"

    def __str__(self) -> str:
        return f"{self.method} {self.model if self.model == 'oracle' else self.model.upper()}"


class Place(NamedTuple):
    """A group of an experiment in one form."""

    data: str
    partition: str
    point: Mapping[str, Any]
    rows: Mapping[str, Mapping[str, Any]]  # method -> as in a comparison
    curves: Mapping[str, Mapping[str, np.ndarray]]

    def __str__(self) -> str:
        return " ".join(filter(None, [self.data, self.partition, self.at]))

    @property
    def at(self) -> str:
        """The point: "lam=3", "sign_flip 0.5"."""
        names = {key: "" if "attack" in key else key.split(".")[-1] + "=" for key in self.point}
        return " ".join(f"{names[key]}{value}" for key, value in self.point.items())

    @property
    def fraction(self) -> float:
        """Of malicious clients."""
        return float(self.point.get("attack.fraction", 0))


Merit = Callable[[Place, Entry], Measured]
Unit = tuple[Place, ...]  # what one case is judged on: a place, two neighbours, a series
Units = Callable[[Sequence[Place]], list[Unit]]


def places(experiment: Experiment, form: str) -> list[Place]:
    """The groups, with the methods that belong to a form."""
    found = []
    for group in experiment.groups:
        seen = zip(group.comparison.rows, group.comparison.curves, strict=True)
        pairs = [pair for pair in seen if pair[0]["label"] in experiment.forms[form]]
        rows = {name(row["label"]): row for row, _ in pairs}
        curves = {name(row["label"]): curves for row, curves in pairs}
        found.append(Place(group.data, group.partition, group.point, rows, curves))
    return found


def last(figure: str) -> Merit:
    """The last round's "accuracy", "loss" or "loss_var"."""

    def merit(place: Place, entry: Entry) -> Measured:
        row = _row(place, entry)
        if row.get("status") == "diverged":
            return Measured(-math.inf)
        key = f"{entry.model}_{figure}"
        values = place.curves.get(entry.method, {}).get(key)
        if values is not None and np.isfinite(values[:, -1]).all():
            return Measured.of(values[:, -1]).times(_sign(figure))
        mean, std = row.get(f"{key}_mean"), row.get(f"{key}_std")
        if mean is None:
            raise MissingError(f"no {figure} of {entry} on {place}")
        error = std / math.sqrt(len(row["seeds"])) if std is not None else 0.0
        return Measured(float(mean), error).times(_sign(figure))

    return merit


def over_rounds(figure: str) -> Merit:
    """The mean of "accuracy" or "loss" over all evaluated rounds: the area under its curve."""

    def merit(place: Place, entry: Entry) -> Measured:
        if _row(place, entry).get("status") == "diverged":
            return Measured(-math.inf)
        return Measured.of(curve(place, entry, figure).mean(axis=1)).times(_sign(figure))

    return merit


def curve(place: Place, entry: Entry, figure: str) -> np.ndarray:
    """[seeds, R] of a run that finished."""
    values = place.curves.get(entry.method, {}).get(f"{entry.model}_{figure}")
    if values is None or not np.isfinite(values).all():
        raise MissingError(f"no curve of {figure} of {entry} on {place}")
    return values


def _row(place: Place, entry: Entry) -> Mapping[str, Any]:
    if entry.method not in place.rows:
        raise MissingError(f"no run of {entry.method} on {place}")
    return place.rows[entry.method]


def _sign(figure: str) -> int:
    return 1 if figure == "accuracy" else -1


def rows(*partitions: str) -> Units:
    """Each place with one of these partitions."""

    def units(found: Sequence[Place]) -> list[Unit]:
        return [(place,) for place in found if place.partition in partitions]

    return units


def attacked(found: Sequence[Place]) -> list[Unit]:
    """Each place with malicious clients."""
    return [(place,) for place in found if place.fraction > 0]


def along(key: str) -> Units:
    """Places that differ only in a key of the grid, by its rising values; two at least."""

    def units(found: Sequence[Place]) -> list[Unit]:
        return _series(found, lambda p: (p.data, p.partition), lambda p: _number(p.point.get(key)))

    return units


def along_labels(found: Sequence[Place]) -> list[Unit]:
    """Places that differ only in the number q of labels that a client has, by rising q."""
    chosen = [
        place for place in found if place.partition[0] == "q" and place.partition[1:].isdigit()
    ]
    return _series(chosen, lambda p: (p.data,), lambda p: float(p.partition[1:]))


def along_fractions(*attacks: str, data: Sequence[str] = ()) -> Units:
    """Places under one of these attacks, by the rising fraction of malicious clients, each series
    after the place without any; on all data unless some are named."""

    def units(found: Sequence[Place]) -> list[Unit]:
        chosen = [place for place in found if not data or place.data in data]
        series = []
        for attack in attacks:
            under = [p for p in chosen if not p.fraction or p.point.get("attack.name") == attack]
            series += _series(under, lambda p: (p.data, p.partition), lambda p: p.fraction)
        return series

    return units


def steps(units: Units) -> Units:
    """Every two neighbours in series."""
    return lambda found: [step for series in units(found) for step in pairwise(series)]


def ends(units: Units) -> Units:
    """The first and the last of series."""
    return lambda found: [(series[0], series[-1]) for series in units(found)]


def _series(
    found: Iterable[Place],
    same: Callable[[Place], tuple[str, ...]],
    value: Callable[[Place], float],
) -> list[Unit]:
    ordered = sorted(found, key=lambda place: (same(place), value(place)))
    series = [tuple(group) for _, group in groupby(ordered, same)]
    return [group for group in series if value(group[0]) < value(group[-1])]


def _number(value: object) -> float:
    """Of clients a round "all" is the greatest."""
    return float(value) if isinstance(value, int | float) else math.inf
