"""What a person sees at the terminal: a progress bar and a closing table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.progress_bar import ProgressBar
from rich.table import Table

from flamejax.catalog import size
from flamejax.report.run import classes, sheet

if TYPE_CHECKING:
    from flamejax.engine import Facts
    from flamejax.federation import Federation

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
                key, form = ("accuracy", ".3f") if classes(row) else ("loss", ".3g")
                shown["figures"] = "  ".join(
                    f"{name.upper()} {row[name][key]:{form}}"
                    for name in ("pm", "gm", "hm")
                    if row[name] and row[name][key] is not None
                )
            progress.update(task, **shown)

        yield watch


def announce(what: str, done: int, runs: int, name: str, quiet: bool) -> None:
    """Which of so many runs begins, where someone looks; the run shows its own rounds below."""
    console = Console(stderr=True)
    if not quiet and (console.is_terminal or console.is_jupyter):
        grid = Table.grid(padding=(0, 1))
        grid.add_row(f"{what} of {runs}", ProgressBar(runs, done, width=24), name)
        console.print(grid)


def show(summary: Mapping[str, Any], folder: Path) -> None:
    """The closing table, and where everything lies."""
    found = sheet(summary)
    table = Table(title=found.title, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column(*found.names, no_wrap=True)
    for heading in found.headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for row in found.rows:
        table.add_row(*(text for text, _ in row))
    *notes, last = found.notes
    console = Console()
    console.print(table)
    said = [*notes, f"{last} Results: {folder}"]
    console.print(*said, sep="\n", highlight=False, soft_wrap=True)


def show_need(facts: Facts, federation: Federation) -> None:
    """How much memory a run would take."""
    need = facts.need
    assert need
    lines = {
        "clients": f"{federation.clients:,}, {facts.selected:,} in a round",
        "parameters": f"{facts.parameters:,} of a model",
        "samples": size(need.data),
        "states of clients": size(need.states),
        "to compute with": size(need.temporary),
        "in all": f"{size(need.whole)}; {size(need.free)} are free",
    }
    for name, text in lines.items():
        print(f"{name:<18} {text}")
