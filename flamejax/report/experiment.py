"""Tables and figures of an experiment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from matplotlib.figure import Figure

from flamejax.experiment.paper import Cell
from flamejax.experiment.results import Experiment
from flamejax.report import comparison as tables
from flamejax.report.comparison_figures import draw_curves
from flamejax.report.sheet import Sheet


class Part(NamedTuple):
    title: str
    sheets: list[Sheet]
    figures: list[tuple[str, Callable[[Figure], Figure]]]  # name of the file, drawing function
    name: str


def parts(experiment: Experiment, cells: Sequence[Cell]) -> list[Part]:
    return [
        Part(
            f"{group.data}, {group.partition} {group.point or ''}".strip(),
            [tables.sheet(group.comparison)],
            [(f"group{i}", partial(draw_curves, comparison=group.comparison))],
            f"{experiment.name}-{i}",
        )
        for i, group in enumerate(experiment.groups)
    ]
