"""The picture of where the convergence conditions hold."""

from __future__ import annotations

import io
import math
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from flamejax.report.palette import COLOR, GREY
from flamejax.theory import conditions
from flamejax.theory.conditions import PAPER, Point

FLAT, HOLDS, BLUE, DARK = "#dddddd", "#f0b48f", "#1f6f8b", "#222222"
LOWEST, HIGHEST = 0.97, 1.1  # of the magnified panel


class Spot(NamedTuple):
    """A point that is marked."""

    point: Point
    marker: str
    color: str
    label: str


class Region(NamedTuple):
    """Boundaries in x at each rho; NaN where (c) has none."""

    rho: np.ndarray  # [n]
    above: np.ndarray  # [n] (a) holds below
    below: np.ndarray  # [n] (c) holds above
    flat: np.ndarray  # [n] the same at L = 0
    empty: bool


def render(point: Point, form: str) -> bytes:
    """As a file of this form: png, pdf or svg."""
    buffer = io.BytesIO()
    figure = Figure(figsize=(10, 4.8), dpi=150, layout="constrained")
    draw(figure, point).savefig(buffer, format=form)
    return buffer.getvalue()


def draw(figure: Figure, point: Point) -> Figure:
    """x against rho with the three boundaries; beside it the same region, magnified."""
    spots = _spots(point)
    asked = [spot.point.rho for spot in spots]
    low, high = min(1e-3, min(asked) / 2), max(1.0, max(asked) * 2)
    region = _region(low, high, point.la)
    panels = figure.subplots(1, 2, sharex=True)
    _plane(panels[0], region, spots)
    _magnified(panels[1], region, spots)
    for axes in panels:
        axes.set(xscale="log", xlim=(low, high), xlabel="ρ")  # noqa: RUF001
        axes.grid(alpha=0.25, lw=0.6)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        axes.title.set_size(9)
    figure.legend(loc="outside lower center", ncols=4, frameon=False, fontsize=8)
    figure.suptitle(
        f"Where all convergence conditions hold, Lα = {point.la:g}: {_extent(point.la)}",  # noqa: RUF001
        fontsize=10,
    )
    return figure


def _extent(la: float) -> str:
    low, high = conditions.feasible_rho(la)
    if math.isnan(low):
        return f"empty, as Lα is not below {conditions.limit()[0]:.4f}"  # noqa: RUF001
    return f"a thin band, {low:.3g} < ρ < {high:.3g}"  # noqa: RUF001


def _spots(point: Point) -> list[Spot]:
    spots = [Spot(point, "o", COLOR, "asked for")]
    if math.isclose(point.x, PAPER.x) and math.isclose(point.rho, PAPER.rho):
        spots = [Spot(point, "o", COLOR, "asked for, as in the paper's experiments")]
    else:
        spots.append(Spot(PAPER, "X", DARK, "the paper's experiments"))
    nearest = conditions.nearest(point)
    if nearest is not None and nearest != point:
        spots.append(Spot(nearest, "D", BLUE, "nearest where all hold"))
    return spots


def _region(low: float, high: float, la: float) -> Region:
    """Most finely where the band is."""
    rho = np.unique(np.r_[np.geomspace(low, high, 600), np.linspace(0.001, 0.3, 600)])
    (below, above), (flat, _) = (
        np.array([conditions.band(r, curved) for r in rho.tolist()]).T for curved in (la, 0.0)
    )
    below[np.isinf(below)] = flat[np.isinf(flat)] = np.nan
    return Region(rho, above, below, flat, empty=not la < conditions.limit()[0])


def _plane(axes: Axes, region: Region, spots: list[Spot]) -> None:
    """The band is drawn thicker than it is: at its widest it spans 6 % in x."""
    rho, above, below, flat, empty = region
    low, color = (flat, GREY) if empty else (below, COLOR)
    middle = np.where(low < above, np.sqrt(low * above), np.nan)
    axes.plot(rho, middle, color=color, lw=6, alpha=0.45, solid_capstyle="butt")
    axes.plot(rho, above, "--", color=DARK, lw=0.9, label="(a) holds below")
    axes.plot(rho, rho, ":", color=GREY, lw=1.2, label="(b) holds below")
    axes.plot(rho, below, "-", color=BLUE, lw=0.9, label="(c) holds above")
    for p, marker, color, label in spots:
        axes.plot(p.rho, p.x, marker, color=color, ms=8, mec="white", label=label, ls="", zorder=5)
    heights = [spot.point.x for spot in spots]
    axes.set(yscale="log", ylabel="x = λα", title="the plane (the band is drawn thicker)")
    axes.set_ylim(min(flat[0], min(heights) / 3), max(1.0, max(heights) * 3))


def _magnified(axes: Axes, region: Region, spots: list[Spot]) -> None:
    """x divided by the boundary of (c) at L = 0; spots out of sight are named at the edge."""
    rho, above, below, flat, empty = region
    top, bottom = above / flat, below / flat
    if np.nanmax(bottom) > 1:
        axes.fill_between(rho, 1, top, top > 1, color=FLAT, lw=0, label="all hold if L = 0")
    if not empty:
        axes.fill_between(rho, bottom, top, bottom < top, color=HOLDS, lw=0, label="all hold")
    axes.plot(rho, top, "--", color=DARK, lw=1)
    axes.plot(rho, bottom, "-", color=BLUE, lw=1.2)
    axes.set(ylim=(LOWEST, HIGHEST), ylabel="x / boundary of (c) at L = 0", title="the band")
    for p, marker, color, _ in spots:
        height = p.x / conditions.band(p.rho, 0.0)[0]
        if LOWEST < height < HIGHEST:
            axes.plot(p.rho, height, marker, color=color, ms=8, mec="white", zorder=5)
        elif p.rho < 1:
            up = height > 1
            edge = HIGHEST - 0.002 if up else LOWEST + 0.002
            axes.plot(p.rho, edge, "^" if up else "v", color=color, ms=7, zorder=5, clip_on=False)
            axes.annotate(
                f"{height:.3g}", (p.rho, edge), (6, -3), textcoords="offset points", fontsize=8,
                color=color, va="center", zorder=5,
                bbox={"fc": "white", "ec": "none", "pad": 1},
            )  # fmt: skip
