"""What a sweep found: figures over seeds for every point of the grid, and the best point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np

from flamejax.averages import choose, fill, measure, merit, over_seeds
from flamejax.grid import Axes, Run
from flamejax.records import Record

SHARED = ["data", "model", "clients", "clients_per_round", "selection"]
SHARED += ["benign_clients", "evaluated_clients"]


class Sweep(NamedTuple):
    """What a sweep found out.

    rows: a dict per point of the grid, as in table.csv: a value per key path, such as
    "method.lam"; "seeds", "best" (whether it is the best of all, by the hybrid on the selection
    split), "status" ("finished" or "diverged"), and of every figure of the last round the mean and
    the sample standard deviation over seeds: "pm_accuracy_mean", "pm_accuracy_std", ...; None
    where there is no such figure.
    grid: key path -> its values. runs: a dict per run: "name", "point", "seed", "status",
    "folder" (below OUT), "program" (runs with the same number share a compiled program).
    about: what all runs have in common: "data", "method", "clients", "rounds", "seeds", ..., None
    or absent where they differ; "measure" is "accuracy", or "loss" for a regression.
    """

    rows: list[dict[str, Any]]
    grid: Axes
    runs: list[dict[str, Any]]
    about: dict[str, Any]

    def best(self) -> dict[str, Any] | None:
        """The best row by the hybrid on the selection split; None if all diverged."""
        return next((row for row in self.rows if row["best"]), None)

    def table(self) -> str:
        """The table in Markdown, the best of every column bold."""
        from flamejax.report.sheet import markdown
        from flamejax.report.sweep import sheet

        return markdown(sheet(self))

    def plot(self, figure: str | None = None) -> Any:
        """A line for one key, a heat map for two, several for more, as a Matplotlib figure.

        figure: which model's, "pm", "gm" or "hm"; by default the hybrid's if there is one.
        """
        import matplotlib.pyplot as plt

        from flamejax.report.sweep_figures import draw

        return draw(plt.figure(layout="constrained"), self, figure)

    def _repr_markdown_(self) -> str:
        return self.table()


def gather(
    grid: Axes, runs: Sequence[Run], found: Sequence[Record], programs: Sequence[int]
) -> Sweep:
    """Runs, their records and their programs, in the same order -> what is shown of them."""
    pairs = list(zip(runs, found, strict=True))
    rows = []
    for point, group in groupby(pairs, lambda pair: pair[0].point):
        of_point = list(group)
        seeds = [run.config.seed for run, _ in of_point]
        figures = over_seeds([record for _, record in of_point])
        rows.append({**point, "seeds": seeds, "best": False, **figures})
    fill(rows)
    best = rows[choose(rows)]
    best["best"] = merit(best) > -np.inf
    configs = [run.config for run in runs]
    about = {
        **{key: _one([record.summary[key] for record in found]) for key in SHARED},
        **{
            section: _common([getattr(config, section).model_dump() for config in configs])
            for section in ("partition", "method", "attack", "aggregator")
        },
        "rounds": _one([config.rounds for config in configs]),
        "seeds": rows[0]["seeds"],
        "measure": measure(rows),
    }
    done = [
        {
            "name": str(run),
            "point": run.point,
            "seed": run.config.seed,
            "status": record.summary["status"],
            "folder": str(run.path),
            "program": program,
        }
        for (run, record), program in zip(pairs, programs, strict=True)
    ]
    return Sweep(rows, grid, done, about)


def _one(values: Sequence[Any]) -> Any:
    """The value they all are, or None."""
    return values[0] if all(value == values[0] for value in values) else None


def _common(tables: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The entries that are in all of them."""
    first, *others = tables
    return {k: v for k, v in first.items() if all(k in t and t[k] == v for t in others)}
