"""The picture of one run: PM solid, GM dashed, HM dotted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

from flamejax.errors import InputError
from flamejax.registry import short
from flamejax.report.palette import GREY, LINES, color, plain, render

if TYPE_CHECKING:
    from flamejax.lane import Result

AXES = {"rounds": "communication round", "bytes": "sent up and down since round 0, MB"}


def draw(figure: Figure, result: Result, against: str = "rounds") -> Figure:
    """Test accuracy on the left, losses on the right; for a regression losses only."""
    config, metrics = result.config, result.metrics
    classes = np.isfinite(metrics["pm_accuracy"]).any()
    panels = figure.subplots(1, 1 + classes, squeeze=False)[0]
    loss = panels[-1]
    x = progress(metrics["round"], metrics["bytes_up"] + metrics["bytes_down"], against)
    if not x.all():
        raise InputError("against = 'bytes': nothing was sent; draw it against 'rounds'")
    style: dict[str, Any] = {"marker": "o", "markersize": 3} if len(x) < 3 else {}
    labels = {"pm": "PM", "gm": "GM", "hm": "HM"}
    if config.selection.on == "test":
        labels["hm"] = "HM (oracle)"
    hue = color(config.method.name)
    for name, line in LINES.items():
        for axes, key in zip(panels[::-1], ("loss", "accuracy"), strict=False):
            values = metrics[f"{name}_{key}"]
            if np.isfinite(values).any() and not (name == "hm" and key == "loss" and classes):
                label = labels[name] if key == "accuracy" else f"{labels[name]}, test"
                width = 2.2 if name == "hm" else 1.5
                axes.plot(x, values, line, color=hue, lw=width, label=label, **style)
    loss.plot(x, metrics["train_loss"], "-", color=GREY, lw=1.2, label="training", **style)
    if classes:
        panels[0].set(ylabel="test accuracy, mean over clients")
    loss.set(ylabel="loss")
    log_scale(loss)
    for axes in panels:
        name_progress(axes, against)
        plain(axes)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(frameon=False, loc="best")
    selected, clients = result.summary["clients_per_round"], result.summary["clients"]
    who = (
        f"{clients} clients" if selected == clients else f"{selected} of {clients} clients a round"
    )
    malicious = clients - result.summary["benign_clients"]
    attacked = f" · {config.attack.name} attack by {malicious}" if malicious else ""
    if config.aggregator.name != "mean":
        attacked += f" · {config.aggregator.name}"
    figure.suptitle(
        f"{config.method.name} ({config.method.preset}) · {result.summary['data']} data · "
        f"{config.partition.name} · {who}{attacked} · seed {config.seed}",
        fontsize=10,
    )
    return figure


def progress(rounds: np.ndarray, sent: np.ndarray, against: str) -> np.ndarray:
    """What curves are drawn against: rounds [R], or the bytes sent until then [R] in MB."""
    if against not in AXES:
        raise InputError(f"against = {short(against)} should be {' or '.join(map(repr, AXES))}")
    return rounds if against == "rounds" else sent / 1e6


def name_progress(axes: Axes, against: str) -> None:
    axes.set(xlabel=AXES[against])
    if against == "rounds":
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, steps=[1, 2, 5, 10]))


def log_scale(axes: Axes) -> None:
    """A logarithmic vertical axis with plain numbers, several of them on a short one as well."""
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    subs = (1, 2, 5) if high > 8 * low else tuple(range(1, 10))
    axes.yaxis.set_major_locator(LogLocator(subs=subs))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter(NullFormatter())


def png(result: Result, against: str = "rounds") -> bytes:
    def sized(figure: Figure) -> Figure:
        figure.set_size_inches(9, 3.6)
        return draw(figure, result, against)

    return render(sized)
