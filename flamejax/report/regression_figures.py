"""The picture of federated linear regression: losses against q, by formula and by simulation."""

from __future__ import annotations

import io

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from flamejax.report.palette import COLOR, GREY
from flamejax.report.regression import describe
from flamejax.theory import regression
from flamejax.theory.study import Study

SHADE, DARK = "#f6e3da", "#222222"
ROWS = {"gm": "global model", "pm": "personalized models"}
MARKERS = {"pfedme": ("s", "pFedMe, simulated"), "ditto": ("D", "Ditto, simulated")}
ERRORS = 2  # standard errors that bars show


def draw(figure: Figure, study: Study) -> Figure:
    """Rows: models; columns: attacks."""
    panels = figure.subplots(len(ROWS), len(regression.ATTACKS), sharex=True)
    for row, model in zip(panels, ROWS, strict=True):
        for axes, attack in zip(row, regression.ATTACKS, strict=True):
            _panel(axes, study, attack, model)
        row[0].set(ylabel=f"test loss, {ROWS[model]}")
    for axes, attack in zip(panels[0], regression.ATTACKS, strict=True):
        heading = "no attack" if attack == "none" else attack.replace("_", "-")
        axes.set_title(f"{heading}\n{axes.get_title()}", fontsize=9)
    for axes in panels[-1]:
        axes.set(xlabel="q")
    handles, labels = panels[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4, frameon=False, fontsize=8.5)
    figure.suptitle(f"Federated linear regression, one round: {describe(study)}", fontsize=10)
    return figure


def _panel(axes: Axes, study: Study, attack: str, model: str) -> None:
    lab = study.lab
    right = max(1.0, *lab.qs)
    q = np.linspace(0.02, 1.03 * right, 200)
    curve = [regression.average_loss(lab.problem, attack, x, model) for x in q]
    at_one = regression.average_loss(lab.problem, attack, 1.0, model)
    least = regression.threshold(lab.problem, attack, model)
    even = regression.break_even(lab.problem, attack, model)

    axes.axvspan(
        min(max(even, 0.0), 1.0), 1.0, color=SHADE, lw=0,
        label="q from break-even to 1: FLAME no worse",
    )  # fmt: skip
    axes.axhline(at_one, color=GREY, lw=1.2, ls="--", label="pFedMe = Ditto (q = 1)")
    axes.plot(q, curve, color=COLOR, lw=1.6, label="FLAME, closed form")
    # drawn also where it is outside, so that the legend has it
    axes.axvline(least, color=COLOR, lw=1.1, ls=":", label="q*, least loss")
    for method, (marker, label) in MARKERS.items():
        _points(axes, study, attack, model, method, marker, label)
    _points(axes, study, attack, model, "flame", "o", f"FLAME, simulated ± {ERRORS} SE")
    here = regression.average_loss(lab.problem, attack, lab.q, model)
    axes.plot(
        lab.q, here, "o", ms=11, mfc="none", mec=DARK, mew=1.1, label=f"FLAME's q = {lab.q:.3g}"
    )
    axes.set_title(f"q* = {least:.2f}, break-even {even:.2f}", fontsize=8.5, color=DARK)
    axes.set_xlim(0, 1.03 * right)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.tick_params(labelsize=8)
    axes.grid(alpha=0.25, lw=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_axisbelow(True)


def _points(
    axes: Axes, study: Study, attack: str, model: str, method: str, marker: str, label: str
) -> None:
    of = {"attack": attack, "model": model, "method": method}
    rows = [row for row in study.points if of.items() <= row.items()]
    axes.errorbar(
        [row["q"] for row in rows],
        [row["measured"] for row in rows],
        [ERRORS * row["error"] for row in rows],
        fmt=marker,
        ms=4 if method == "flame" else 7,
        mfc=COLOR if method == "flame" else "none",
        mec=COLOR if method == "flame" else GREY,
        ecolor=DARK,
        elinewidth=1,
        capsize=2,
        zorder=3,
        label=label,
    )


def png(study: Study) -> bytes:
    buffer = io.BytesIO()
    figure = Figure(figsize=(12, 6.2), dpi=150, layout="constrained")
    draw(figure, study).savefig(buffer, format="png")
    return buffer.getvalue()
