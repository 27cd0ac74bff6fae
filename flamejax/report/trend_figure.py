"""The figure of an experiment that varies one setting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from flamejax.report.curves import log_scale, name_progress
from flamejax.report.experiment_figures import (
    PAGE,
    ROWS,
    Figures,
    Methods,
    legend,
    model_lines,
    within_one,
)
from flamejax.report.experiment_names import (
    KEYS,
    Block,
    lines,
    place,
    points,
)
from flamejax.report.palette import PAPER, Style, color, curve, plain, shades, trace
from flamejax.report.sweep_figures import log_spaced

MODELS = ("pm", "gm")


def trend(found: Sequence[Block], shown: Methods, form: str) -> Figures:
    """A figure per method, and several where there are many data sets and partitions."""
    figures: Figures = []
    starts = range(0, len(found), ROWS)
    for label, method in shown.items():
        ending = [label.replace(":", "-")] if len(shown) > 1 else []
        for at in starts:
            more = [str(at // ROWS + 1)] if len(starts) > 1 else []
            rows, only = found[at : at + ROWS], {label: method._replace(models=list(MODELS))}
            figures.append(([*ending, *more], partial(draw, found=rows, shown=only, form=form)))
    return figures


def draw(figure: Figure, found: Sequence[Block], shown: Methods, form: str) -> Figure:
    """Per data set and partition: loss and accuracy against rounds in a shade per value, and the
    last round's against the values. PM solid, GM dashed."""
    (method,) = shown.values()
    key, called = points([group for block in found for group in block])
    hues = dict(zip(called, shades(color(method.method), len(called)), strict=True))
    with rc_context(PAPER):
        figure.set_size_inches(PAGE, 1.75 * len(found) + 0.8)
        grid = figure.subplots(len(found), 3, squeeze=False, width_ratios=(1.25, 1.25, 1))
        for row, block in zip(grid, found, strict=True):
            at = [group.point.get(key) for group in block]
            for axes, name in zip(row, ("loss", "accuracy"), strict=False):
                _rounds(axes, block, shown, name, [hues[value] for value in at])
            _last(row[2], block, shown, called, at)
            row[0].set(ylabel=f"{place(block[0])}\ntest loss")
            row[1].set(ylabel="test accuracy")
            row[2].set(ylabel="last test accuracy")
            row[2].set(xlabel=KEYS.get(key, key))
        for axes in grid[:-1].flat:
            axes.set(xlabel="")
        values = [
            Line2D([], [], color=hue, lw=2, label=f"{KEYS.get(key, key)} = {called[value]}")
            for value, hue in hues.items()
        ]
        legend(figure, [values, model_lines(found, shown)], form)
    return figure


def _rounds(axes: Axes, block: Block, shown: Methods, name: str, hues: Sequence[Any]) -> None:
    for group, hue in zip(block, hues, strict=True):
        for line in lines(group, shown):
            for model in MODELS if line.curves else ():
                values = line.curves[f"{model}_{name}"]
                if np.isfinite(values).any():
                    curve(axes, line.curves["round"], values, model, Style(hue, ""))
    if name == "loss":
        log_scale(axes)
    else:
        within_one(axes)
    name_progress(axes, "rounds")
    plain(axes)


def _last(
    axes: Axes, block: Block, shown: Methods, called: Mapping[Any, str], at: Sequence[Any]
) -> None:
    """The last round's accuracy against the values, evenly spaced where they are no numbers."""
    (method,) = shown.values()
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in called)
    x = np.array(at if numbers else [list(called).index(value) for value in at], float)
    order = np.argsort(x)
    rows = {n: line.row for n, group in enumerate(block) for line in lines(group, shown)}
    for model in MODELS:
        key = f"{model}_accuracy"
        there = [n for n in order if n in rows and rows[n][f"{key}_mean"] is not None]
        mean, std = (
            np.array([rows[n][f"{key}_{what}"] for n in there], float) for what in ("mean", "std")
        )
        if there:
            band = None if np.isnan(std).all() else std
            style = Style(color(method.method), "o" if model == "pm" else "s")
            trace(axes, x[there], mean, band, model, style)
    if numbers and len(x) > 1 and log_spaced(x[order]):
        axes.set_xscale("log")
    axes.set_xticks(x, [called[value] for value in at])
    axes.minorticks_off()
    within_one(axes)
    plain(axes)
