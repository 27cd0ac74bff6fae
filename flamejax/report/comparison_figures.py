"""The pictures of a comparison: curves of all methods, and accuracy against fairness."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Patch

from flamejax.comparison import Comparison
from flamejax.report.comparison import method_name
from flamejax.report.curves import log_scale, name_progress, progress
from flamejax.report.palette import (
    BAND,
    GREY,
    LINES,
    MODEL_NAMES,
    Style,
    curve,
    plain,
    render,
    styles,
)
from flamejax.report.sheet import title


def draw_curves(figure: Figure, comparison: Comparison, against: str = "rounds") -> Figure:
    """Test accuracy on the left, unless it is a regression, test loss on the right; PM solid, GM
    dashed; against "rounds", or "bytes" sent."""
    names = ["accuracy", "loss"] if comparison.about["measure"] == "accuracy" else ["loss"]
    figure.set_size_inches(10.5 if len(names) == 2 else 7, 3.9)
    panels = dict(zip(names, figure.subplots(1, len(names), squeeze=False)[0], strict=True))
    handles: list[Any] = []
    ends: list[float] = []
    seen = styles(comparison.rows)
    several = Counter(row["method"] for row in comparison.rows)
    for row, curves, style in zip(comparison.rows, comparison.curves, seen, strict=True):
        label, models = method_name(row), ["pm", "gm"]
        if not curves:
            label, models = f"{label}: diverged", []
        elif np.array_equal(curves["pm_loss"], curves["gm_loss"]):
            label, models = f"{label}: PM = GM", ["pm"]
        x = progress(curves["round"], curves["bytes"], against) if curves else np.zeros(0)
        if x.any():
            ends.append(x[-1])
        elif curves:
            label += ": last round, nothing is sent"
        if several[row["method"]] == 1:
            style = style._replace(marker="")
        look: dict[str, Any] = {"color": style.color, "marker": style.marker, "ms": 4}
        handles.append(Line2D([], [], lw=2, label=label, **look))
        for model in models:
            for name, axes in panels.items():
                values = curves[f"{model}_{name}"]
                if np.isfinite(values).any():
                    _line(axes, x, values, model, style)
    handles.append(Line2D([], [], color="none", label=" "))
    for model in ("pm", "gm"):
        handles.append(Line2D([], [], color=GREY, ls=LINES[model], label=MODEL_NAMES[model]))
    if len(comparison.about["seeds"]) > 1:
        handles.append(Patch(color=GREY, alpha=0.2, lw=0, label=BAND))
    if "accuracy" in panels:
        panels["accuracy"].set(ylabel="test accuracy, mean over clients")
    panels["loss"].set(ylabel="test loss, mean over clients")
    log_scale(panels["loss"])
    for axes in panels.values():
        name_progress(axes, against)
        if ends and max(ends) > 10 * min(ends):
            axes.set_xscale("log")
            axes.xaxis.set_major_formatter("{x:g}")
    _finish(figure, comparison, list(panels.values()))
    figure.legend(handles=handles, loc="outside right center", frameon=False, fontsize=9)
    return figure


def _line(axes: Axes, x: np.ndarray, values: np.ndarray, model: str, style: Style) -> None:
    """A curve; what the last round reached all along where x [R] is zero, for nothing was sent."""
    if x.any():
        curve(axes, x, values, model, style)
        return
    mean, std = values[:, -1].mean(), values[:, -1].std(ddof=min(1, len(values) - 1))
    axes.axhline(mean, color=style.color, ls=LINES[model], lw=1.5)
    axes.axhspan(mean - std, mean + std, color=style.color, alpha=0.15, lw=0, zorder=1)


class Point(NamedTuple):
    x: float  # variance of the loss over clients
    y: float  # accuracy, or loss
    size: float  # of the marker, in points


def draw_fairness(figure: Figure, comparison: Comparison) -> Figure:
    """A point per method and model: the fairest are on the left, the most accurate on top."""
    figure.set_size_inches(6.6, 4.8)
    axes, measure = figure.subplots(), comparison.about["measure"]
    points: list[Point] = []
    names: list[tuple[Point, str, Style]] = []
    for row, style in zip(comparison.rows, styles(comparison.rows), strict=True):
        pair = [_mark(axes, row, model, measure, style, points) for model in ("pm", "gm")]
        there = [point for point in pair if point is not None]
        if there:  # a method's models hang together
            x, y, _ = zip(*there, strict=True)
            axes.plot(x, y, ":", color=style.color, lw=1, zorder=1)
            names.append((there[0], row["label"], style))
    axes.set(
        xlabel="variance of test loss over clients", ylabel=f"test {measure}, mean over clients"
    )
    axes.yaxis.set_inverted(measure == "loss")
    spread = [point.x for point in points if point.x > 0]
    if spread and max(spread) > 8 * min(spread):
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter("{x:g}")
    axes.margins(0.14, 0.16)
    arrow = {"arrowstyle": "-|>", "color": GREY, "shrinkA": 0, "shrinkB": 0}
    place: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "axes fraction"}
    place |= {"xy": (0.01, 0.99), "xytext": (0.07, 0.92)}
    axes.annotate("better", color=GREY, fontsize=9, arrowprops=arrow, **place)
    dot: dict[str, Any] = {"color": GREY, "ls": "", "marker": "o"}
    handles = [
        Line2D([], [], ms=6, label=MODEL_NAMES["pm"], **dot),
        Line2D([], [], ms=10, mfc="none", mew=1.4, label=MODEL_NAMES["gm"], **dot),
    ]
    if len(comparison.about["seeds"]) > 1:
        handles.append(Line2D([], [], color=GREY, lw=0.8, label=BAND))
    _finish(figure, comparison, [axes])
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False, fontsize=9)
    _name(figure, axes, names, points)
    return figure


def _mark(
    axes: Axes,
    row: Mapping[str, Any],
    model: str,
    measure: str,
    style: Style,
    points: list[Point],
) -> Point | None:
    """Draw a method's PM or GM, and add it to the points; rings in one place grow outwards."""
    x, y = row[f"{model}_loss_var_mean"], row[f"{model}_{measure}_mean"]
    if x is None or y is None:
        return None
    here = [point.size for point in points if np.allclose(point[:2], (x, y), rtol=1e-3, atol=0)]
    look: dict[str, Any] = {"markersize": 6.0, "zorder": 4}
    if model == "gm":
        size = max([6.0, *here]) + 4
        look = {"markersize": size, "zorder": 3 - size / 100, "mfc": "white"}
    axes.errorbar(
        x,
        y,
        xerr=row[f"{model}_loss_var_std"],
        yerr=row[f"{model}_{measure}_std"],
        fmt=style.marker,
        color=style.color,
        ecolor=(*style.color, 0.4),
        elinewidth=0.8,
        mew=1.4,
        **look,
    )
    points.append(Point(x, y, look["markersize"]))
    return points[-1]


def _name(
    figure: Figure, axes: Axes, names: Sequence[tuple[Point, str, Style]], points: Sequence[Point]
) -> None:
    """A name beside the first point of each method, near it and where it covers nothing."""
    figure.draw_without_rendering()  # settles where everything is
    unit = figure.dpi / 72
    spots = [(axes.transData.transform(point[:2]), (point.size / 2 + 1) * unit) for point in points]
    ups = (5, -12, 17, -24, 29, -36)
    steps = [(right, up) for up in ups for right in (7, -7, 13, -13)]
    taken: list[Any] = []
    for point, name, style in names:
        best: tuple[float, Any, Any] | None = None
        for distance, (right, up) in enumerate(steps):
            look = {"color": style.color, "fontsize": 9, "ha": "left" if right > 0 else "right"}
            text = axes.annotate(name, point[:2], (right, up), textcoords="offset points", **look)
            box = text.get_window_extent()
            covers = box.count_overlaps(taken)
            covers += sum(box.padded(radius).contains(*spot) for spot, radius in spots)
            covers += sum(not axes.bbox.contains(*corner) for corner in box.corners())
            cost = covers + distance / 100
            if best is not None and best[0] <= cost:
                text.remove()
                continue
            if best is not None:
                best[1].remove()
            best = cost, text, box
        taken += [best[2]] if best else []


def _finish(figure: Figure, comparison: Comparison, panels: list[Axes]) -> None:
    for axes in panels:
        plain(axes)
    headline(figure, title(comparison.about))


def headline(figure: Figure, text: str) -> None:
    """A title in as many lines as it takes, broken where the pieces of `text` meet."""
    solid = text.replace(" ", "\u00a0").replace("\u00a0·\u00a0", "\u00a0· ")
    lines = textwrap.wrap(solid, int(13 * figure.get_figwidth()))
    figure.suptitle("\n".join(line.rstrip("\u00a0·") for line in lines), fontsize=9)


def png(draw: Callable[[Figure, Any], Figure], found: Any) -> bytes:
    return render(lambda figure: draw(figure, found))
