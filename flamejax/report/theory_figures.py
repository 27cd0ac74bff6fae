"""The picture of a run that records the theory: what falls, and what vanishes."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from flamejax.errors import InputError
from flamejax.report.curves import name_progress
from flamejax.report.palette import COLOR, GREY
from flamejax.theory.rate import NOISE, speed

if TYPE_CHECKING:
    from flamejax.lane import Result

ENERGIES = {  # name -> label, line, color
    "lyapunov": ("Lyapunov function", "-", GREY),
    "lagrangian": ("Lagrangian", "-", COLOR),
    "f": ("f(Θ, w)", "--", "#1f6f8b"),
    "f_tilde": ("f̃(Θ, W)", ":", "#3f8f4f"),
    "envelope": ("Σ αᵢFᵢ(w), Moreau", "-.", "#7a4fa0"),  # noqa: RUF001
}
RESIDUALS = {
    "residual_theta": ("|∇fᵢ + λ(θᵢ − wᵢ)|", "-", COLOR),  # noqa: RUF001
    "residual_w": ("|αᵢλ(wᵢ − θᵢ) + πᵢ|", ":", "#3f8f4f"),  # noqa: RUF001
    "residual_consensus": ("|wᵢ − w|", "--", "#1f6f8b"),  # noqa: RUF001
    "residual_dual": ("|Σ πᵢ|", "-.", GREY),
    "envelope_gradient": ("|Σ αᵢ∇Fᵢ(w)|, Moreau", "-.", "#7a4fa0"),
}


def draw(figure: Figure, result: Result) -> Figure:
    """Distances of the Lagrangian and its relatives to the limit on the left, residuals of
    stationarity on the right, both on log scales."""
    if "theory" not in result.summary:
        raise InputError("there is nothing recorded of the theory; run with record.theory = true")
    left, right = figure.subplots(1, 2)
    energies(left, result)
    table = result.theory
    for name, (label, line, color) in RESIDUALS.items():
        values = table.get(name, np.zeros(0))
        if (values > 0).any():
            shown = np.where(values > 0, values, np.nan)
            right.plot(table["round"], shown, line, color=color, lw=1.5, label=label)
    right.set(yscale="log", ylabel="residuals of stationarity")
    for axes in (left, right):
        name_progress(axes, "rounds")
        axes.grid(alpha=0.25, lw=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(frameon=False, loc="best", fontsize=8)
    figure.suptitle(_title(result), fontsize=10)
    return figure


def energies(axes: Axes, result: Result) -> None:
    """Distances to the fitted limit, or values if there is no fit. What is below the limit, as f~
    may be, is drawn by its size; what is as close to it as rounding is not drawn."""
    table, rate = result.theory, result.summary["theory"]["rates"]["lagrangian"]
    limit = rate["limit"] if rate else 0.0
    least = NOISE * np.finfo(result.config.engine.precision).eps * abs(limit)
    for name, (label, line, color) in ENERGIES.items():
        values = table.get(name, np.full(1, np.nan))
        if np.isfinite(values).any():
            far = np.abs(values - limit)
            shown = np.where(far > least, far, np.nan)
            axes.plot(table["round"], shown, line, color=color, lw=1.5, label=label)
    axes.set(yscale="log", ylabel="distance to the limit" if rate else "value")
    if rate:
        axes.set_title(f"Lagrangian: {rate['kind']}, about {speed(rate)}", fontsize=9)


def _title(result: Result) -> str:
    config, found = result.config, result.summary["theory"]
    held = [name for name, holds in found["conditions"].items() if holds]
    those = "all convergence conditions hold" if len(held) == 3 else "not all conditions hold"
    rises, rounds = found["descent"]["rises"], found["descent"]["rounds"]
    return (
        f"{config.method.name} · {result.summary['data']} data · {result.summary['model']} · "
        f"{those} · Lagrangian rose in {rises} of {rounds} rounds"
    )


def png(result: Result) -> bytes:
    buffer = io.BytesIO()
    figure = Figure(figsize=(9, 3.8), dpi=150, layout="constrained")
    draw(figure, result).savefig(buffer, format="png")
    return buffer.getvalue()
