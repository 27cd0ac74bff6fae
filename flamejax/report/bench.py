"""What `flamejax bench` found, as a table and a picture."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.figure import Figure
from rich import box
from rich.table import Table

from flamejax.bench.workloads import WORKLOADS

COLUMNS = ("", "contestant", "ms", "x PyTorch", "of peak", "RSS", "compile", "loss", "clean turns")
COLORS = {"flamejax": "#c1440e", "PyTorch": "#1f6fb4", "FedJAX": "#2b8f57", "pfl": "#7a4fa0",
          "Flower": "#e0a100"}  # fmt: skip


def rows(results: Mapping[str, Sequence[Mapping[str, Any]]]) -> list[tuple[str, ...]]:
    """Cells of the table, contestants of a race by falling speed."""
    found: list[tuple[str, ...]] = []
    for name, race in results.items():
        for row in sorted(race, key=lambda row: row["seconds"]):
            clean = row["turns"] - row.get("disturbed", 0)
            loss = row["found"].get("loss", row["found"].get("pm"))
            found.append(
                (
                    name,
                    row["contestant"],
                    f"{row['seconds'] * 1e3:,.1f}",
                    _shown(row.get("ratio"), ".2f"),
                    _shown(row.get("share"), ".0%"),
                    _shown((row.get("rss") or 0) / 1e6 or None, ",.0f", " MB"),
                    _shown(row.get("compile_seconds"), ".1f", " s"),
                    _shown(loss, ".4f"),
                    f"{clean} of {row['turns']}",
                )
            )
    return found


def _shown(value: float | None, form: str, unit: str = "") -> str:
    return "-" if value is None else f"{value:{form}}{unit}"


def terminal_table(results: Mapping[str, Sequence[Mapping[str, Any]]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for i, name in enumerate(COLUMNS):
        table.add_column(name, justify="left" if i < 2 else "right", no_wrap=i < 2)
    last = ""
    for cells in rows(results):
        ours = cells[1].startswith("flamejax")
        table.add_row("" if cells[0] == last else cells[0], *cells[1:], style="bold" * ours)
        last = cells[0]
    return table


def programs(results: Mapping[str, Sequence[Mapping[str, Any]]]) -> dict[str, Any]:
    """Memory of the programs that flamejax compiled, by workload."""
    return {
        f"{row['workload']} {program}": sizes
        for race in results.values()
        for row in race
        for program, sizes in (row.get("memory") or {}).items()
    }


def markdown(results: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    lines = [COLUMNS, ("---",) * 2 + ("---:",) * (len(COLUMNS) - 2), *rows(results)]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def picture(results: Mapping[str, Sequence[Mapping[str, Any]]]) -> bytes:
    """Bars of speed, a plain PyTorch loop being 1; races without it are left out."""
    races = {name: race for name, race in results.items() if all(r.get("ratio") for r in race)}
    figure = Figure(figsize=(9, 1 + 0.24 * sum(len(race) + 1 for race in races.values())))
    axes = figure.add_subplot()
    at, places, names = 0.0, [], []
    for name, race in races.items():
        first = race[0]
        known = WORKLOADS.get(first["workload"])
        text = known.text if known else f"{first['workload']}, {first['command']}"
        axes.annotate(f"{name}  {text}", (0, at), fontsize=8, weight="bold", va="center",
                      xytext=(3, 0), textcoords="offset points")  # fmt: skip
        at += 1
        for row in sorted(race, key=lambda row: -row["ratio"]):
            color = next((c for k, c in COLORS.items() if row["contestant"].startswith(k)), "grey")
            axes.barh(at, row["ratio"], color=color, height=0.8)
            axes.annotate(f"{row['ratio']:.2f}", (row["ratio"], at), fontsize=7, va="center",
                          xytext=(3, 0), textcoords="offset points")  # fmt: skip
            places.append(at)
            names.append(row["contestant"])
            at += 1
    axes.axvline(1, color="#555555", linewidth=0.8, linestyle=":")
    axes.set_yticks(places, names, fontsize=7)
    axes.set_ylim(at - 0.4, -0.8)
    axes.margins(x=0.06)
    axes.set_xlabel("speed, a plain PyTorch loop in its faster layout being 1")
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    stream = io.BytesIO()
    figure.savefig(stream, format="png", dpi=130)
    return stream.getvalue()


def against_baseline(share: float, before: float) -> str:
    return f"{share:.1%} of the matmul peak, {before:.1%} in the baseline: {share / before:.2f}x"
