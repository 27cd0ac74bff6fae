"""The picture of one run: PM solid, GM dashed, HM dotted."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

if TYPE_CHECKING:
    from flamejax.runner import Result

LINES = {"pm": "-", "gm": "--", "hm": ":"}
COLOR, GREY = "#c1440e", "#666666"


def draw(figure: Figure, result: Result) -> Figure:
    """Test accuracy on the left, losses on the right."""
    config, metrics = result.config, result.metrics
    accuracy, loss = figure.subplots(1, 2)
    rounds = metrics["round"]
    style = {"marker": "o", "markersize": 3} if len(rounds) < 3 else {}
    labels = {"pm": "PM", "gm": "GM", "hm": "HM"}
    if config.selection.on == "test":
        labels["hm"] = "HM (oracle)"
    for name, line in LINES.items():
        for axes, key in ((accuracy, "accuracy"), (loss, "loss")):
            values = metrics[f"{name}_{key}"]
            if np.isfinite(values).any() and not (name == "hm" and key == "loss"):
                label = labels[name] if key == "accuracy" else f"{labels[name]}, test"
                width = 2.2 if name == "hm" else 1.5
                axes.plot(rounds, values, line, color=COLOR, lw=width, label=label, **style)
    loss.plot(rounds, metrics["train_loss"], "-", color=GREY, lw=1.2, label="training", **style)
    accuracy.set(ylabel="test accuracy, mean over clients")
    loss.set(ylabel="loss", yscale="log")
    loss.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    loss.yaxis.set_major_formatter("{x:g}")
    loss.yaxis.set_minor_formatter(NullFormatter())
    for axes in (accuracy, loss):
        axes.set(xlabel="communication round")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.25, lw=0.6)
        axes.spines[["top", "right"]].set_visible(False)
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


def png(result: Result) -> bytes:
    buffer = io.BytesIO()
    figure = Figure(figsize=(9, 3.6), dpi=150, layout="constrained")
    draw(figure, result).savefig(buffer, format="png")
    return buffer.getvalue()
