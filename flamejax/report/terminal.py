"""What a person sees at the terminal: a progress bar and a closing table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from flamejax.runner import Watcher


@contextmanager
def progress_bar(rounds: int, quiet: bool = False) -> Iterator[Watcher]:
    """A watcher for `runner.run` that draws rounds, speed and current accuracies."""
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TextColumn("{task.fields[speed]}"),
        TimeRemainingColumn(),
        TextColumn("{task.fields[figures]}"),
    )
    with Progress(*columns, console=Console(stderr=True), disable=quiet) as progress:
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
    names = {"pm": "personalized PM", "gm": "global GM", "hm": f"hybrid HM{oracle}"}
    last, best = summary["last"], summary["best"]
    table = Table(title=f"Test figures over {summary['clients']} clients")
    table.add_column("model")
    for heading in ("accuracy", "worst 10 %", "best 10 %", "variance", "loss"):
        table.add_column(heading, justify="right")
    table.add_column(f"accuracy in round {best['round']}*", justify="right")
    for name, title in names.items():
        if last[name] is None:
            table.add_row(title, *["-"] * 6)
            continue
        figures = [last[name][k] for k in ("accuracy", "worst10", "best10", "accuracy_var", "loss")]
        table.add_row(title, *(_number(v) for v in (*figures, best[name]["accuracy"])))
    console.print(table)
    console.print(
        f"Round {last['round']} unless said; * the best round by HM accuracy on "
        f"{best['chosen_on']} data{oracle}.",
        f"{summary['rounds']} rounds in {summary['seconds']:.1f} s "
        f"({summary['compile_seconds']:.1f} s compiling, "
        f"{1000 * summary['round_seconds']:.1f} ms a round). Results: {folder}",
        sep="\n",
        highlight=False,
        soft_wrap=True,
    )


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
