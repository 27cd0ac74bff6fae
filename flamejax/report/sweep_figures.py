"""The picture of a sweep: lines over one key, a heat map over two, a panel of it for each
combination of further ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import LogNorm, Normalize
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle

from flamejax.averages import MODELS, merit
from flamejax.errors import InputError
from flamejax.registry import short
from flamejax.report import sweep as table
from flamejax.report.comparison_figures import headline
from flamejax.report.curves import log_scale
from flamejax.report.palette import BAND, COLOR, GREY, LINES, color, plain
from flamejax.report.sheet import MISSING, number
from flamejax.swept import Sweep

MOST_PANELS, MOST_TICKS = 12, 10
MARKERS = {"pm": "o", "gm": "s", "hm": "D"}
FRAME: dict[str, Any] = {"fill": False, "ec": COLOR, "lw": 2.5}
Row = Mapping[str, Any]


def varying(sweep: Sweep) -> list[str]:
    """The keys that have several values."""
    return [key for key, values in sweep.grid.items() if len(values) > 1]


def draw(figure: Figure, sweep: Sweep, model: str | None = None) -> Figure:
    """Test accuracy, or for a regression loss, of a model in the last round, mean over seeds."""
    keys = varying(sweep)
    if not keys:
        raise InputError("nothing but the seed varies in this sweep: there is nothing to draw")
    if model is None:
        model = "hm" if any(row["hm_loss_mean"] is not None for row in sweep.rows) else "pm"
    if model not in MODELS:
        raise InputError(f"figure = {short(model)} should be {', '.join(map(repr, MODELS))}")
    handles = (_lines if len(keys) == 1 else _maps)(figure, sweep, keys, model)
    named = table.named(sweep)
    fixed = [f"{key} = {named[key][v]}" for key, (v, *_) in sweep.grid.items() if key not in keys]
    headline(figure, " · ".join([table.headline(sweep), *fixed]))
    look: dict[str, Any] = {"ncols": 5 if len(handles) < 6 else 3, "frameon": False, "fontsize": 9}
    figure.legend(handles=handles, loc="outside lower center", **look)
    return figure


def _name(sweep: Sweep, model: str) -> str:
    oracle = model == "hm" and sweep.about["selection"] == "test"
    return f"{model.upper()} (oracle)" if oracle else model.upper()


def _lines(figure: Figure, sweep: Sweep, keys: Sequence[str], model: str) -> list[Any]:
    """All models' figures over the values of one key, the asked one's in front."""
    figure.set_size_inches(6.4, 4.2)
    axes, measure = figure.subplots(), sweep.about["measure"]
    rows, x, lines = _along(axes, sweep, keys[0])
    best = [i for i, row in enumerate(rows) if row["best"]]
    gone = [i for i, row in enumerate(rows) if row["status"] != "finished"]
    hue = color(sweep.about["method"].get("name", "flame"))
    handles: list[Any] = []
    for name in (*(other for other in MODELS if other != model), model):
        mean, std = (_column(rows, f"{name}_{measure}_{what}") for what in ("mean", "std"))
        if not np.isfinite(mean).any():
            continue
        asked = name == model
        look: dict[str, Any] = {"ls": LINES[name] if lines else "", "marker": MARKERS[name]}
        look |= {"color": hue, "lw": 2, "ms": 5} if asked else {"color": GREY, "lw": 1.1, "ms": 4}
        axes.plot(x, mean, zorder=3 if asked else 2, **look)
        handles.append(Line2D([], [], label=_name(sweep, name), **look))
        if asked and np.isfinite(std).any():
            if lines:
                axes.fill_between(x, mean - std, mean + std, color=hue, alpha=0.15, lw=0)
            else:
                axes.errorbar(x, mean, std, ls="", color=hue, alpha=0.4)
            handles.append(Rectangle((0, 0), 1, 1, color=hue, alpha=0.15, label=BAND))
        if asked and best:
            star: dict[str, Any] = {"marker": "*", "ms": 13, "color": hue, "mec": "white"}
            axes.plot(x[best], mean[best], ls="", zorder=4, **star)
            label = f"best by {table.chosen_by(sweep)}"
            handles.append(Line2D([], [], ls="", label=label, **star))
    if gone:
        cross: dict[str, Any] = {"marker": "x", "color": "black", "ls": ""}
        below: dict[str, Any] = {"transform": axes.get_xaxis_transform(), "clip_on": False}
        axes.plot(x[gone], np.zeros(len(gone)), **cross, **below)
        handles.append(Line2D([], [], label="diverged", **cross))
    axes.set(xlabel=keys[0], ylabel=f"test {measure}, mean over clients")
    if measure == "loss":
        log_scale(axes)
    plain(axes)
    return handles


def _along(axes: Axes, sweep: Sweep, key: str) -> tuple[list[Row], np.ndarray, bool]:
    """Rows in their order from left to right, where they are, and whether lines may join them."""
    rows, values = list(sweep.rows), sweep.grid[key]
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
    x = np.array(values if numbers else range(len(rows)), float)
    order = np.argsort(x)
    x = x[order]
    if numbers and log_spaced(x):
        axes.set_xscale("log")
    if not numbers or len(x) <= MOST_TICKS:
        _ticks(axes, x, [table.labels(values)[i] for i in order], 6 / len(x))
        axes.minorticks_off()
    return [rows[i] for i in order], x, numbers


def _ticks(axes: Axes, x: Any, labels: Sequence[str], width: float) -> None:
    """Labels below the horizontal axis, slanted if they are wider than so many inches each."""
    look: dict[str, Any] = {"rotation": 35, "ha": "right", "rotation_mode": "anchor"}
    axes.set_xticks(x, labels, **(look if _slanted(labels, width) else {}))


def _slanted(labels: Sequence[str], width: float) -> float:
    """Inches that slanted labels need; 0 if they fit as they are."""
    needed = 0.09 * max(map(len, labels))
    return 0.6 * needed if needed > width else 0.0


def log_spaced(x: np.ndarray) -> bool:
    """Whether increasing values lie more evenly on a logarithmic scale.

    >>> [log_spaced(np.array(x)) for x in ([0.1, 0.3, 1, 3], [1, 2, 3], [1, 10], [0, 1, 10])]
    [True, False, True, False]
    """
    if x[0] <= 0:
        return False
    if len(x) == 2:
        return bool(x[1] >= 8 * x[0])
    uneven = [np.std(step) / np.mean(step) for step in (np.diff(np.log(x)), np.diff(x))]
    return bool(uneven[0] < uneven[1])


def _maps(figure: Figure, sweep: Sweep, keys: Sequence[str], model: str) -> list[Any]:
    """The first key goes down, the second to the right, and others from panel to panel."""
    down, right, *others = keys
    tall, wide = len(sweep.grid[down]), len(sweep.grid[right])
    panels = _panels(sweep, others)
    by_merit = sorted(panels, key=lambda point: max(map(merit, panels[point])))
    shown = [point for point in panels if point in by_merit[-MOST_PANELS:]]
    columns = int(np.ceil(np.sqrt(len(shown)))) if len(shown) > 3 else len(shown)
    lines = -(-len(shown) // columns)
    width, height = _cell(columns * wide, lines * tall)
    below = _slanted(table.labels(sweep.grid[right]), width)
    named = table.named(sweep)
    titles = [[f"{key} = {named[key][v]}" for key, v in zip(others, p, strict=True)] for p in shown]
    broad = max([wide * width, 1.5, *(0.08 * len(line) for title in titles for line in title)])
    figure.set_size_inches(
        max(5, columns * broad + 2.6),
        max(3.2, lines * max(tall * height + 0.2 + 0.15 * len(others), 1) + 1.5) + below,
    )
    places = list(figure.subplots(lines, columns, squeeze=False).flat)
    for place in places[len(shown) :]:
        place.remove()
    places, measure = places[: len(shown)], sweep.about["measure"]
    name = f"{model}_{measure}_mean"
    norm = _norm(_column(sweep.rows, name), measure)
    for index, (axes, point) in enumerate(zip(places, shown, strict=True)):
        lowest, first = index + columns >= len(shown), index % columns == 0
        image = _map(axes, panels[point], (tall, wide), name, norm, width)
        _ticks(axes, range(wide), table.labels(sweep.grid[right]) if lowest else [""] * wide, width)
        axes.set_yticks(range(tall), table.labels(sweep.grid[down]) if first else [""] * tall)
        axes.set(xlabel=right if lowest else "", ylabel=down if first else "")
        axes.set_title("\n".join(titles[index]), fontsize=9)
    seeds = len(sweep.about["seeds"])
    label = f"{_name(sweep, model)} test {measure}" + f", mean of {seeds} seeds" * (seeds > 1)
    figure.colorbar(image, ax=places).set_label(label, fontsize=9)
    handles: list[Any] = []
    if sweep.best():
        handles.append(Rectangle((0, 0), 1, 1, label=f"best by {table.chosen_by(sweep)}", **FRAME))
    if len(shown) < len(panels):
        said = f"the {len(shown)} best of {len(panels)} panels"
        handles.append(Line2D([], [], ls="", label=said))
    return handles


def _panels(sweep: Sweep, keys: Sequence[str]) -> dict[tuple[Any, ...], list[Row]]:
    """Values of these keys -> the rows with them, in the order of the grid."""
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in sweep.rows:
        found.setdefault(tuple(row[key] for key in keys), []).append(row)
    return found


def _cell(columns: int, lines: int) -> tuple[float, float]:
    """Inches of a cell: less where there are many, so that a picture stays one."""
    return float(np.clip(14 / columns, 0.3, 0.75)), float(np.clip(12 / lines, 0.2, 0.42))


def _norm(values: np.ndarray, measure: str) -> Normalize:
    """From the worst to the best; losses that are far apart in decades."""
    there = values[np.isfinite(values)]
    low, high = (there.min(), there.max()) if len(there) else (0.0, 1.0)
    far = measure == "loss" and 0 < 20 * low < high
    return LogNorm(low, high) if far else Normalize(low, high)


def _map(
    axes: Axes, rows: Sequence[Row], shape: tuple[int, int], name: str, norm: Any, width: float
) -> AxesImage:
    """Rows [tall * wide] as colours with the value in every cell, and the best framed."""
    values = _column(rows, name).reshape(shape)
    accuracy = "accuracy" in name
    colors, form = ("viridis", ".3f") if accuracy else ("viridis_r", ".3g")
    axes.set_facecolor("#e8e8e8")  # where there is none
    image = axes.imshow(np.ma.masked_invalid(values), cmap=colors, norm=norm, aspect="auto")
    for row, (i, j) in zip(rows, np.ndindex(*shape), strict=True):
        value = row[name]
        shown = number(value, form)
        if shown is None:
            shown = "div." if row["status"] != "finished" else MISSING
        dark = value is not None and np.dot(image.to_rgba(value)[:3], (0.3, 0.59, 0.11)) < 0.5
        look: dict[str, Any] = {
            "ha": "center",
            "va": "center",
            "color": "white" if dark else "black",
        }
        axes.text(j, i, shown, fontsize=min(9, 18 * width), **look)
        if row["best"]:
            axes.add_patch(Rectangle((j - 0.5, i - 0.5), 1, 1, clip_on=False, zorder=3, **FRAME))
    axes.spines[:].set_visible(False)
    axes.tick_params(length=0)
    return image


def _column(rows: Sequence[Row], name: str) -> np.ndarray:
    """A figure of every row; NaN where there is none."""
    return np.array([row[name] for row in rows], float)
