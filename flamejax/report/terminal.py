"""What a person sees at the terminal: a progress bar and a closing table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

Watcher = Callable[[int, Mapping[str, Any] | None], None]  # rounds done, figures if evaluated


@contextmanager
def progress_bar(rounds: int, quiet: bool = False) -> Iterator[Watcher]:
    """A watcher of a run that draws rounds, speed and current accuracies, where someone looks."""
    console = Console(stderr=True)
    quiet = quiet or not (console.is_terminal or console.is_jupyter)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[speed]}"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[figures]}"),
    )
    with Progress(*columns, console=console, disable=quiet) as progress:
        task = progress.add_task("compiling", total=rounds, speed="", figures="")

        def watch(done: int, row: Mapping[str, Any] | None) -> None:
            speed = progress.tasks[0].speed
            shown: dict[str, Any] = {"completed": done, "description": "training"}
            if speed:
                shown["speed"] = f"{speed:.1f} rounds/s"
            if row is not None:
                shown["figures"] = "  ".join(
                    f"{name.upper()} {row[name]['accuracy']:.3f}"
                    for name in ("pm", "gm", "hm")
                    if row[name] and row[name]["accuracy"] is not None
                )
            progress.update(task, **shown)

        yield watch


def show(summary: Mapping[str, Any], folder: Path) -> None:
    """The closing table, and where everything lies."""
    console = Console()
    oracle = " (oracle)" if summary["selection"] == "test" else ""
    names = {"pm": "PM personalized", "gm": "GM global", "hm": f"HM hybrid{oracle}"}
    last, best = summary["last"], summary["best"]
    table = Table(title=f"Test figures over {summary['clients']} clients, round {last['round']}")
    table.add_column("model", no_wrap=True)
    for heading in ("accuracy", "worst10", "best10", "variance", "loss", "best*"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, title in names.items():
        if last[name] is None:
            table.add_row(title, *["-"] * 6)
            continue
        figures = [last[name][k] for k in ("accuracy", "worst10", "best10", "accuracy_var", "loss")]
        table.add_row(title, *(_number(v) for v in (*figures, best[name]["accuracy"])))
    console.print(table)
    console.print(
        f"* accuracy in round {best['round']}, the best by {best['chosen_on']} accuracy{oracle}",
        f"{summary['rounds']} rounds in {summary['seconds']:.1f} s "
        f"({summary['compile_seconds']:.1f} s compiling, "
        f"{1000 * summary['round_seconds']:.1f} ms a round). Results: {folder}",
        sep="\n",
        highlight=False,
        soft_wrap=True,
    )


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
