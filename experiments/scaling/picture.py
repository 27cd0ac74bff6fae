"""The pictures of the scaling measurements."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

COLORS = ("#c1440e", "#1f5f8b", "#666666")


def draw(found: dict[str, list[dict[str, Any]]]) -> Figure:
    """Rounds, memory and setup over clients; rounds over those selected; the cost of a client."""
    figure = Figure(figsize=(11, 7), layout="constrained")
    over, memory, chosen, each = figure.subplots(2, 2).flat
    for color, selected in zip(COLORS, (10, 100), strict=False):
        rows = [row for row in found.get("clients", []) if row["selected"] == selected]
        line(over, rows, "clients", "round_seconds", 1e3, color, f"{selected} selected")
        line(memory, rows, "clients", "rss", 1e-9, color, f"memory, GB ({selected} selected)")
        style = {"linestyle": "--", "marker": "s"}
        what = f"setup, s ({selected} selected)"
        line(memory, rows, "clients", "setup_seconds", 1, color, what, **style)
    over.set(title="A round, over clients", xlabel="clients", ylabel="ms a round")
    memory.set(title="Getting there, over clients", xlabel="clients", ylabel="GB, or seconds")
    rows = found.get("selected", [])
    line(chosen, rows, "selected", "round_seconds", 1e3, COLORS[0], "of a million clients")
    if rows:
        last = rows[-1]
        slope = last["round_seconds"] * 1e3 / last["selected"]
        x = [row["selected"] for row in rows]
        proportional = [slope * s for s in x]
        chosen.plot(x, proportional, ":", color=COLORS[2], label="in proportion")
    chosen.set(title="A round, over those selected", xlabel="selected", ylabel="ms a round")
    rows = [
        {**row, "each": row["round_seconds"] / row["clients"]} for row in found.get("everyone", [])
    ]
    line(each, rows, "clients", "each", 1e6, COLORS[1], "everyone takes part")
    each.set(title="A client's part of a round", xlabel="clients", ylabel="µs a client")
    each.set_ylim(bottom=10, top=10_000)
    for axes in (over, memory, chosen, each):
        axes.set(xscale="log", yscale="log")
        axes.grid(alpha=0.25, lw=0.6)
        axes.spines[["top", "right"]].set_visible(False)
        if axes.get_legend_handles_labels()[0]:
            axes.legend(frameon=False, fontsize=8)
    over.set_ylim(bottom=0.1)
    return figure


def line(
    axes: Axes,
    rows: list[dict[str, Any]],
    x: str,
    y: str,
    scale: float,
    color: str,
    label: str,
    **style: Any,
) -> None:
    if rows:
        values = [scale * row[y] for row in rows]
        options = {"marker": "o", "markersize": 4, **style}
        axes.plot([row[x] for row in rows], values, color=color, label=label, **options)
