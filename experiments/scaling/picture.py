"""The pictures of the scaling measurements."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

COLORS = ("#c1440e", "#1f5f8b", "#666666")
Rows = list[dict[str, Any]]


def draw(found: dict[str, Rows]) -> Figure:
    """Rounds, memory and setup over clients; rounds over those selected and over devices."""
    figure = Figure(figsize=(13.5, 7), layout="constrained")
    over, memory, disk, chosen, each, devices = figure.subplots(2, 3).flat
    for color, selected in zip(COLORS, (10, 100), strict=False):
        rows = [row for row in found.get("clients", []) if row["selected"] == selected]
        line(over, rows, "clients", "round_seconds", 1e3, color, f"{selected} selected")
        line(memory, rows, "clients", "rss", 1e-9, color, f"memory, GB ({selected} selected)")
        setup, style = f"setup, s ({selected} selected)", {"linestyle": "--", "marker": "s"}
        line(memory, rows, "clients", "setup_seconds", 1, color, setup, **style)
    name(over, "A round, over clients", "clients", "ms a round", (0.1, 100))
    name(memory, "Getting there, over clients", "clients", "GB, or seconds", (0.05, 20))

    rows = found.get("selected", [])
    line(chosen, rows, "selected", "round_seconds", 1e3, COLORS[0], "of a million clients")
    in_proportion(chosen, rows[-1:], [row["selected"] for row in rows], "selected")
    name(chosen, "A round, over those selected", "selected", "ms a round", (0.02, 1000))
    rows = [{**r, "each": r["round_seconds"] / r["clients"]} for r in found.get("everyone", [])]
    line(each, rows, "clients", "each", 1e6, COLORS[1], "everyone takes part")
    name(each, "A client's part of a round", "clients", "µs", (1, 1000))

    inside = found.get("devices", [])
    line(devices, inside, "devices", "round_seconds", 1e3, COLORS[0], "devices of a process")
    between = found.get("processes", [])
    line(devices, between, "processes", "round_seconds", 1e3, COLORS[1], "processes, a device each")
    title = "A round of 100 clients, over devices (2 cores)"
    name(devices, title, "devices", "ms a round", (10, 1000))
    devices.set_xticks([1, 2, 4, 8])
    _bars(disk, found.get("disk", []))
    return figure


def line(
    axes: Axes, rows: Rows, x: str, y: str, scale: float, color: str, label: str, **style: Any
) -> None:
    if rows:
        values = [scale * row[y] for row in rows]
        options = {"marker": "o", "markersize": 4, **style}
        axes.plot([row[x] for row in rows], values, color=color, label=label, **options)


def in_proportion(axes: Axes, last: Rows, x: list[int], key: str) -> None:
    for row in last:
        slope = row["round_seconds"] * 1e3 / row[key]
        axes.plot(x, [slope * value for value in x], ":", color=COLORS[2], label="in proportion")


def name(axes: Axes, title: str, x: str, y: str, limits: tuple[float, float]) -> None:
    axes.set(title=title, xlabel=x, ylabel=y, xscale="log", yscale="log", ylim=limits)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(_plain))
        axis.set_minor_formatter(NullFormatter())
    axes.grid(alpha=0.25, lw=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, fontsize=8)


def _plain(value: float, _: Any) -> str:
    return f"{value:g}" if value < 1e4 else f"$10^{len(str(int(value))) - 1}$"


def _bars(axes: Axes, rows: Rows) -> None:
    """The best turn of each budget: time of a round, and the memory that it took."""
    best = {row["budget"]: row for row in sorted(rows, key=lambda r: -r["round_seconds"])}
    for place, (budget, row) in enumerate(sorted(best.items(), key=lambda item: item[1]["rss"])):
        axes.barh(place, 1e3 * row["round_seconds"], color=COLORS[place % 2], height=0.5)
        text = f" {1e3 * row['round_seconds']:.0f} ms, {row['rss'] / 1e9:.1f} GB"
        axes.text(1e3 * row["round_seconds"], place, text, va="center", fontsize=9)
        axes.text(0, place + 0.36, f"engine.state_budget = {budget}", fontsize=9)
    axes.set(title="200 of 100,000 clients, 109,386 parameters", xlabel="ms a round", yticks=[])
    axes.set_xlim(0, 1.6e3 * max((r["round_seconds"] for r in best.values()), default=1))
    axes.set_ylim(-0.5, len(best) - 0.2)
    axes.spines[["top", "right", "left"]].set_visible(False)
