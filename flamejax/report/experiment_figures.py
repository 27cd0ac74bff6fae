"""Figures of experiments in the size in which they are printed: convergence, fairness, attacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from flamejax.report.curves import name_progress
from flamejax.report.experiment_names import (
    ATTACKS,
    FORMS,
    Block,
    Line,
    Shown,
    attack,
    lines,
    model_name,
    place,
)
from flamejax.report.palette import BAND, GREY, LINES, PAPER, Draw, curve, plain, trace

Methods = Mapping[str, Shown]
Figures = list[tuple[list[str], Draw]]  # what is added to a name, and what draws
WIDTHS = {1: 3.5, 2: 5.2}  # inches for so many panels beside each other; a page for more
PAGE, COLUMNS, ROWS = 7.2, 4, 4
FILLS: dict[str, dict[str, Any]] = {  # of a model's marker
    "pm": {"fillstyle": "full"},
    "gm": {"fillstyle": "full", "mfc": "white"},
    "hm": {"fillstyle": "left", "mfcalt": "white"},
}


def curves(found: Sequence[Block], shown: Methods, form: str) -> Figures:
    """Test accuracy against rounds, a panel per data set and partition."""
    return _pages(found, _columns(found) * ROWS, partial(draw_curves, shown=shown, form=form))


def fairness(found: Sequence[Block], shown: Methods, form: str) -> Figures:
    """Accuracy against the variance of losses, a panel per data set and partition."""
    return _pages(found, _columns(found) * ROWS, partial(draw_fairness, shown=shown, form=form))


def robustness(found: Sequence[Block], shown: Methods, form: str) -> Figures:
    """Accuracy against malicious clients, a row of panels per data set and partition."""
    return _pages(found, ROWS, partial(draw_robustness, shown=shown, form=form))


def _pages(found: Sequence[Block], most: int, draw: Any) -> Figures:
    """As many figures as it takes."""
    starts = range(0, len(found), most)
    return [
        (
            [str(at // most + 1)] if len(starts) > 1 else [],
            partial(draw, found=found[at : at + most]),
        )
        for at in starts
    ]


def _columns(found: Sequence[Block]) -> int:
    """A column per data set if several of them recur, else so many that few places are empty."""
    data, number = len({block[0].data for block in found}), len(found)
    if number <= COLUMNS or 1 < data <= COLUMNS:
        return min(data if data > 1 else COLUMNS, number)
    return min((COLUMNS, COLUMNS - 1), key=lambda columns: -number % columns)


def draw_curves(figure: Figure, found: Sequence[Block], shown: Methods, form: str) -> Figure:
    """PM solid, GM dashed, HM dotted; the mean over seeds, in a band of one deviation."""
    with rc_context(PAPER):
        for axes, block in zip(panels(figure, found), found, strict=True):
            drawn = lines(block[0], shown)
            for line in drawn:
                style = line.shown.style._replace(marker="")
                for model in line.shown.models if line.curves else []:
                    values = line.curves[f"{model}_accuracy"]
                    if np.isfinite(values).any():
                        curve(axes, line.curves["round"], values, model, style)
            name_progress(axes, "rounds")
            axes.set(ylabel="test accuracy")
            within_one(axes)
            _say_diverged(axes, drawn)
        outer(figure.axes, _columns(found))
        hues = [Line2D([], [], color=m.style.color, lw=2, label=m.name) for m in shown.values()]
        legend(figure, [hues, model_lines(found, shown)], form)
    return figure


def draw_fairness(figure: Figure, found: Sequence[Block], shown: Methods, form: str) -> Figure:
    """A point per method and model: the fairest are on the left, the most accurate on top."""
    with rc_context(PAPER):
        for axes, block in zip(panels(figure, found), found, strict=True):
            drawn = lines(block[0], shown)
            spread = [x for line in drawn for x in _marks(axes, line)]
            if spread and max(spread) > 8 * min(spread) > 0:
                axes.set_xscale("log")
                axes.xaxis.set_major_formatter("{x:g}")
            axes.margins(0.1, 0.12)
            axes.set(xlabel="variance of test loss", ylabel="test accuracy")
            _say_diverged(axes, drawn)
        outer(figure.axes, _columns(found))
        arrow = {"arrowstyle": "-|>", "color": GREY, "shrinkA": 0, "shrinkB": 0, "lw": 0.7}
        where: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "axes fraction"}
        where |= {"xy": (0.02, 0.98), "xytext": (0.12, 0.86), "arrowprops": arrow}
        figure.axes[0].annotate("better", color=GREY, fontsize=7, **where)
        dots = [
            Line2D([], [], ls="", marker=m.style.marker, color=m.style.color, ms=5, label=m.name)
            for m in shown.values()
        ]
        look: dict[str, Any] = {"ls": "", "marker": "o", "color": GREY, "ms": 5}
        fills = [
            Line2D([], [], label=model_name(model, found[0][0]), **look, **FILLS[model])
            for model in models_in(shown)
        ]
        if several(found):
            fills.append(Line2D([], [], color=GREY, lw=0.7, label=BAND))
        legend(figure, [dots, fills], form)
    return figure


def _marks(axes: Axes, line: Line) -> list[float]:
    """The models of a method, hung together by a thin line; variances that are drawn."""
    there: list[tuple[float, float]] = []
    for model in line.shown.models:
        x, y = line.row[f"{model}_loss_var_mean"], line.row[f"{model}_accuracy_mean"]
        if x is None or y is None:
            continue
        style, there = line.shown.style, [*there, (x, y)]
        errors = {
            "xerr": line.row[f"{model}_loss_var_std"],
            "yerr": line.row[f"{model}_accuracy_std"],
        }
        axes.errorbar(x, y, **errors, fmt="none", ecolor=(*style.color, 0.5), elinewidth=0.7)
        look: dict[str, Any] = {"marker": style.marker, "color": style.color, "ms": 5, "mew": 0.9}
        axes.plot(x, y, **look, **FILLS[model], ls="", zorder=3)
    if there:
        axes.plot(*zip(*there, strict=True), ":", color=line.shown.style.color, lw=0.7, zorder=1)
    return [x for x, _ in there]


def draw_robustness(figure: Figure, found: Sequence[Block], shown: Methods, form: str) -> Figure:
    """A column per attack; what was reached without any begins every line."""
    attacks = dict.fromkeys(attack(group)[0] for block in found for group in block)
    names = [name for name in attacks if name != "none"] or ["none"]
    with rc_context(PAPER):
        width = WIDTHS.get(len(names), PAGE)
        figure.set_size_inches(width, 1.65 * len(found) + 0.9)
        grid = figure.subplots(len(found), len(names), squeeze=False, sharex=True, sharey="row")
        for row, block in zip(grid, found, strict=True):
            for axes, name in zip(row, names, strict=True):
                _attacked(axes, block, name, shown)
                plain(axes)
            row[0].set(ylabel=f"{place(block[0])}\ntest accuracy")
        for axes, name in zip(grid[0], names, strict=True):
            axes.set_title(ATTACKS.get(name, name))
        for axes in grid[-1]:
            axes.set(xlabel="malicious clients, fraction")
        hues = [
            Line2D([], [], color=m.style.color, marker=m.style.marker, ms=3.5, label=m.name)
            for m in shown.values()
        ]
        legend(figure, [hues, model_lines(found, shown)], form)
    return figure


def _attacked(axes: Axes, block: Block, name: str, shown: Methods) -> None:
    """Figures of the benign clients under one attack."""
    groups = sorted(
        (g for g in block if attack(g)[0] in ("none", name)), key=lambda g: attack(g)[1]
    )
    ticks = [attack(group)[1] for group in groups]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    drawn = [(attack(group)[1], line) for group in groups for line in lines(group, shown)]
    for method in shown.values():
        of_method = [(x, line.row) for x, line in drawn if line.shown is method]
        for model in method.models:
            key = f"{model}_accuracy"
            there = [(x, row) for x, row in of_method if row[f"{key}_mean"] is not None]
            if not there:
                continue
            x = np.array([x for x, _ in there])
            mean, std = (np.array([row[f"{key}_{w}"] for _, row in there], float)
                         for w in ("mean", "std"))  # fmt: skip
            trace(axes, x, mean, None if np.isnan(std).all() else std, model, method.style)
    within_one(axes)
    _say_diverged(axes, [line for _, line in drawn])


def panels(figure: Figure, found: Sequence[Block]) -> list[Axes]:
    """A panel for every data set and partition, with its title."""
    columns = _columns(found)
    rows = -(-len(found) // columns)
    figure.set_size_inches(WIDTHS.get(columns, PAGE), (2.3 if columns == 1 else 1.7) * rows + 0.6)
    grid = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes in grid[len(found) :]:
        axes.remove()
    for axes, (group, *_) in zip(grid, found, strict=False):
        plain(axes)
        axes.set_title(place(group))
    return grid[: len(found)]


def outer(grid: Sequence[Axes], columns: int) -> None:
    """Names of scales only where the panels end, as they are the same for all."""
    for number, axes in enumerate(grid):
        if number % columns:
            axes.set(ylabel="")
        if number + columns < len(grid):
            axes.set(xlabel="")


def within_one(axes: Axes) -> None:
    """Accuracies end at 0 and 1, wherever bands do."""
    low, high = axes.get_ylim()
    axes.set_ylim(max(low, -0.02), min(high, 1.02))


def models_in(shown: Methods) -> list[str]:
    return [model for model in LINES if any(model in method.models for method in shown.values())]


def several(found: Sequence[Block]) -> bool:
    """Whether there are deviations over seeds."""
    return any(len(g.comparison.about["seeds"]) > 1 for block in found for g in block)


def model_lines(found: Sequence[Block], shown: Methods) -> list[Any]:
    """What kinds of lines, and the band, mean."""
    handles: list[Any] = [
        Line2D([], [], color=GREY, ls=LINES[model], lw=1.4, label=model_name(model, found[0][0]))
        for model in models_in(shown)
    ]
    return handles + [Patch(color=GREY, alpha=0.2, lw=0, label=BAND)] * several(found)


def legend(figure: Figure, rows: Sequence[Sequence[Any]], form: str) -> None:
    """Rows of handles below the panels, in as many lines as it takes, and which form it is."""
    wide = max(2, int(figure.get_figwidth() / 1.15))
    split = [list(row[at : at + wide]) for row in rows for at in range(0, len(row), wide)]
    columns = max(map(len, split))
    blank = Line2D([], [], color="none", label=" ")
    full = [row + [blank] * (columns - len(row)) for row in split]
    figure.legend(
        handles=[row[at] for at in range(columns) for row in full],  # Matplotlib goes down first
        title=f"{form} form: {FORMS[form]}" if form in FORMS else form,
        loc="outside lower center",
        ncols=columns,
        frameon=False,
        columnspacing=1.2,
        handlelength=2.4,
    )


def _say_diverged(axes: Axes, drawn: Sequence[Line]) -> None:
    gone = dict.fromkeys(line.shown.name for line in drawn if line.row["status"] == "diverged")
    if gone:
        said = f"diverged: {', '.join(gone)}"
        axes.text(0.98, 0.02, said, transform=axes.transAxes, ha="right", fontsize=6, color=GREY)
