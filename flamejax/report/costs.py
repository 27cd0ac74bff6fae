"""The table of what a round and an evaluation cost."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from flamejax.costs import STAGES

WIDTH = 80
CAPTION = """\
All devices together. Each kernel of the compiled program (a fusion is one) counts as often as it \
ran in the trace, with the stage of its last operation. flop: 2MNK in a matrix product, one for \
each number that other floating-point arithmetic makes or a reduction takes in. Bytes: read and \
written by kernels, of slices and gathers only the part; caches spare memory much of it. ms: the \
measured time (median, not traced), shared out as in the trace; waiting for other devices is time \
of the server."""


def show(folder: Path) -> None:
    """Print the costs that a profiled run left in a folder, and how to open its trace."""
    console = Console()
    if (folder / "costs.json").exists():
        table = json.loads((folder / "costs.json").read_text("utf-8"))
        _print(console, table)
    trace = folder / "perfetto_trace.json.gz"
    if trace.exists():
        console.print(
            f"Trace: {trace}, opens at https://ui.perfetto.dev",
            f"  or, after pip install tensorboard xprof: tensorboard --logdir {folder}",
            sep="\n",
            highlight=False,
            soft_wrap=True,
        )


def as_text(table: Mapping[str, Any]) -> str:
    """The same for a file."""
    text = io.StringIO()
    _print(Console(file=text, width=WIDTH, color_system=None, force_jupyter=False), table)
    return "".join(line.rstrip() + "\n" for line in text.getvalue().splitlines())


def _print(console: Console, table: Mapping[str, Any]) -> None:
    devices = f"{table['devices']} device{'s' if table['devices'] > 1 else ''}"
    titles = {"rounds": f"Round {table['round']}", "evaluation": "An evaluation"}
    for name, title in titles.items():
        console.print(_stages(f"{title}, {devices}", table["programs"][name]))
    console.print(memory_table({n: program["memory"] for n, program in table["programs"].items()}))
    console.print(CAPTION, width=min(console.width, WIDTH), style="dim", highlight=False)


def _stages(title: str, program: Mapping[str, Any]) -> Table:
    table = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), show_footer=True)
    total, seconds = program["total"], program["seconds"]
    unit = "G" if max(total["flops"], total["bytes"]) >= 1e10 else "M"
    headings = (f"{unit}flop", "", f"{unit}B", "", "flop/B", "ms", "", "GF/s", "GB/s")
    table.add_column("stage", "total", no_wrap=True)
    for heading, figure in zip(headings, _figures(total, total, seconds, unit), strict=True):
        table.add_column(heading, figure, justify="right", no_wrap=True)
    for stage, sums in program["stages"].items():
        table.add_row(STAGES[stage], *_figures(sums, total, seconds, unit))
    return table


def _figures(
    sums: Mapping[str, float], total: Mapping[str, float], seconds: float | None, unit: str
) -> list[str]:
    """Of one stage: what, and its share of the total; then ratios."""
    scale = {"M": 1e6, "G": 1e9}[unit]
    flops, nbytes = sums["flops"], sums["bytes"]
    share = {key: sums[key] / total[key] if total[key] else 0.0 for key in total}
    time = None if seconds is None else seconds * share["device_seconds"]
    return [
        _number(flops / scale),
        f"{share['flops']:.0%}",
        _number(nbytes / scale),
        f"{share['bytes']:.0%}",
        _number(flops / nbytes if nbytes else 0),
        "-" if time is None else _number(1e3 * time),
        f"{share['device_seconds']:.0%}",
        _number(flops / time / 1e9) if time else "-",
        _number(nbytes / time / 1e9) if time else "-",
    ]


def memory_table(programs: Mapping[str, Mapping[str, int] | None]) -> Table:
    """What `costs.memory` found."""
    table = Table(title="Memory of a device, MB", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("program", no_wrap=True)
    known = {name: sizes for name, sizes in programs.items() if sizes}
    keys = list(next(iter(known.values()), {}))
    for key in keys:
        table.add_column(key, justify="right", no_wrap=True)
    for name, sizes in known.items():
        table.add_row(name, *(_number(sizes[key] / 1e6) for key in keys))
    return table


def _number(value: float) -> str:
    """Three digits, or all of those before the point."""
    if value == 0:
        return "0"
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 0.005 else "<.01"
