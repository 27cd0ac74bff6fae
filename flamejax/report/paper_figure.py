"""Accuracies of a table beside the paper's."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from flamejax.experiment.paper import Cell
from flamejax.report.experiment_figures import FILLS, PAGE, Figures, Methods, legend
from flamejax.report.experiment_names import Shown, data_name, partition_name
from flamejax.report.palette import GREY, PAPER, plain

ORDER = ("oracle", "hm", "pm", "gm")  # of the models in a row, from above
NAMES = {"oracle": "HM (oracle)", "hm": "HM", "pm": "PM", "gm": "GM"}
MARKERS = {"oracle": "D", "hm": "D", "pm": "o", "gm": "o"}
LOOKS = FILLS | {"oracle": FILLS["gm"]}
THEIRS = "#c9c9c9"


def figures(cells: Sequence[Cell], shown: Methods, form: str) -> Figures:
    """A figure per data set, a panel per method, FLAME first."""
    first = sorted(shown, key=lambda label: shown[label].method != "flame")
    kept = [
        cell
        for cell in cells
        if cell.label in shown and cell.ours is not None
        if cell.model in shown[cell.label].models
        or (cell.model == "oracle" and "hm" in shown[cell.label].models)
    ]
    ordered = {label: shown[label] for label in first}
    return [
        (
            [data],
            partial(
                draw, cells=[cell for cell in kept if cell.data == data], shown=ordered, form=form
            ),
        )
        for data in dict.fromkeys(cell.data for cell in kept)
    ]


def draw(figure: Figure, cells: Sequence[Cell], shown: Methods, form: str) -> Figure:
    """The paper's mean and two standard deviations as a bar, ours and one as a dot."""
    labels = [label for label in shown if any(cell.label == label for cell in cells)]
    partitions = list(dict.fromkeys(cell.partition for cell in cells))
    with rc_context(PAPER):
        figure.set_size_inches(PAGE, 0.38 * len(partitions) + 1.4)
        share: dict[str, Any] = {"sharey": True, "sharex": True}
        grid = figure.subplots(1, len(labels), squeeze=False, **share)[0]
        for axes, label in zip(grid, labels, strict=True):
            of_label = [cell for cell in cells if cell.label == label]
            models = [m for m in ORDER if any(cell.model == m for cell in of_label)]
            for cell in of_label:
                row = partitions.index(cell.partition)
                at = row + 0.2 * (models.index(cell.model) - (len(models) - 1) / 2)
                _beside(axes, cell, at, shown[label])
            plain(axes)
            axes.grid(visible=False, axis="y")
            axes.set_title(shown[label].name)
            for row in range(1, len(partitions)):
                axes.axhline(row - 0.5, color=GREY, alpha=0.25, lw=0.5)
        grid[0].set_yticks(range(len(partitions)), map(partition_name, partitions))
        grid[0].set_ylim(len(partitions) - 0.5, -0.5)
        for axes in grid:
            axes.tick_params(axis="y", length=0)
            axes.set(xlabel=f"test accuracy, {data_name(cells[0].data)}")
        legend(figure, _handles(cells), form)
    return figure


def _beside(axes: Axes, cell: Cell, at: float, method: Shown) -> None:
    if cell.paper is not None:
        far = 2 * (cell.paper_std or 0)
        axes.plot([cell.paper - far, cell.paper + far], [at, at], color=THEIRS, lw=4.5,
                  solid_capstyle="butt", zorder=1.5)  # fmt: skip
        axes.plot(cell.paper, at, "|", color=GREY, ms=5, mew=1, zorder=1.6)
    ours, hue = cell.ours, method.style.color
    assert ours is not None  # others are left out
    if cell.std is not None:
        axes.errorbar(ours, at, xerr=cell.std, fmt="none", elinewidth=0.8, ecolor=hue)
    look: dict[str, Any] = {"marker": MARKERS[cell.model], "ms": 3.6, "mew": 0.8, "zorder": 3}
    axes.plot(ours, at, ls="", color=hue, **look, **LOOKS[cell.model])


def _handles(cells: Sequence[Cell]) -> list[list[Any]]:
    dots: list[Any] = [
        Line2D([], [], ls="", color=GREY, marker=MARKERS[m], ms=4, label=f"ours, {NAMES[m]}",
               **LOOKS[m])
        for m in ORDER
        if any(cell.model == m for cell in cells)
    ]  # fmt: skip
    more: list[Any] = []
    if any(cell.paper is not None for cell in cells):
        more.append(Patch(color=THEIRS, lw=0, label="paper, ± two std"))
    if any(cell.std is not None for cell in cells):
        more.append(Line2D([], [], color=GREY, lw=0.8, label="ours, ± one std over seeds"))
    return [dots, more]
