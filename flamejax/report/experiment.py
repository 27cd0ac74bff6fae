"""An experiment as it is shown: tables and figures of every form."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from flamejax.averages import fill
from flamejax.experiment.paper import Cell
from flamejax.experiment.results import Experiment
from flamejax.report import experiment_figures, paper_figure, trend_figure
from flamejax.report.experiment_names import blocks, methods
from flamejax.report.experiment_sheets import SHEETS, beside_paper
from flamejax.report.palette import Draw
from flamejax.report.sheet import Sheet, table_csv

FIGURES = {
    "curves": experiment_figures.curves,
    "fairness": experiment_figures.fairness,
    "robustness": experiment_figures.robustness,
    "trend": trend_figure.trend,
}


class Part(NamedTuple):
    """What is shown of one form of an experiment."""

    title: str
    sheets: list[Sheet]
    figures: list[tuple[str, Draw]]  # what a file is called, and what draws it
    name: str  # what files of tables are called


def parts(experiment: Experiment, cells: Sequence[Cell]) -> list[Part]:
    """A part per form that there are runs of; cells: ours and the paper's, for a "table"."""
    found = []
    for form in experiment.forms:
        shown = methods(experiment, form)
        if not shown:
            continue
        name, title = f"{experiment.name}-{form}", f"{experiment.title}, {form} form"
        sheets = [SHEETS[experiment.kind](experiment, form, shown, title)]
        if experiment.kind == "table":
            ours = [cell for cell in cells if cell.form == form]
            sheets += beside_paper(ours, shown, title)
            figures = paper_figure.figures(ours, shown, form)
        else:
            figures = FIGURES[experiment.kind](blocks(experiment, shown), shown, form)
        named = [("-".join([name, *ending]), draw) for ending, draw in figures]
        found.append(Part(title, sheets, named, name))
    return found


def rows_csv(experiment: Experiment) -> str:
    """All figures of all methods in full precision, a line per group and method."""
    rows: list[dict[str, Any]] = [
        {"data": group.data, "partition": group.partition, **group.point, **row}
        for group in experiment.groups
        for row in group.comparison.rows
    ]
    fill(rows)
    return table_csv(rows)
