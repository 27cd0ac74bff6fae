"""What a person sees at the terminal: a progress bar and a closing table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich import box
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
    benign, clients = summary["benign_clients"], summary["clients"]
    who = f"{clients} clients" if benign == clients else f"the {benign} benign of {clients} clients"
    title = f"Test figures over {who}, round {last['round']}"
    table = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("model", no_wrap=True)
    for heading in ("accuracy", "worst10", "best10", "Jain", "loss", "loss var", "best*"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, title in names.items():
        if last[name] is None:
            table.add_row(title, *["-"] * 7)
            continue
        keys = ("accuracy", "worst10", "best10", "jain", "loss", "loss_var")
        figures = [last[name][key] for key in keys]
        table.add_row(title, *(_number(v) for v in (*figures, best[name]["accuracy"])))
    console.print(table)
    if summary["nonfinite"]:
        times = f"{summary['nonfinite']} time(s)"
        console.print(f"A client's numbers were not finite and left out {times}.", highlight=False)
    if last["gm"] is None:
        console.print("This method has no usable global model.", highlight=False)
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
