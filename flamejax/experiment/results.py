"""What an experiment found: a comparison of methods for every data set, partition and point."""

from __future__ import annotations

from typing import Any, NamedTuple

from flamejax.comparison import Comparison


class Group(NamedTuple):
    """Methods on the same clients."""

    data: str  # "mnist", ...
    partition: str  # as experiments name it: "hybrid", "q2", ...
    point: dict[str, Any]  # key path -> value in a grid, e.g. {"method.lam": 3.0}; may be empty
    comparison: Comparison  # a row and curves for each method


class Experiment(NamedTuple):
    """What an experiment found out.

    kind: what it is about, and so how it is shown: "table", "curves", "fairness", "robustness" or
    "trend". forms: form -> labels of the comparisons' rows that belong to it; a method with one
    form only (multi-Krum) belongs to both. missing: names of runs that are not done.
    about: "config" (its base), "rounds", "environment".
    """

    name: str
    title: str
    kind: str
    forms: dict[str, list[str]]
    groups: list[Group]
    missing: list[str]
    about: dict[str, Any]
