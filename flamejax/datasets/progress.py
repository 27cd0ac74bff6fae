"""A progress bar on stderr while data is read, where someone looks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


@contextmanager
def progress(what: str, total: int, quiet: bool) -> Iterator[Callable[[int], None]]:
    """Gives a function to be told how many more are done."""
    console = Console(stderr=True)
    quiet = quiet or not (console.is_terminal or console.is_jupyter)
    columns = (TextColumn("{task.description}"), BarColumn(bar_width=24), MofNCompleteColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console, disable=quiet) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.advance(task, done)
