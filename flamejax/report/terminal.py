"""What a person sees at the terminal: a progress bar and a closing table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.progress_bar import ProgressBar
from rich.table import Table

from flamejax.catalog import size
from flamejax.theory.rate import speed

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
                key, form = ("accuracy", ".3f") if _classes(row) else ("loss", ".3g")
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
    console = Console()
    oracle = " (oracle)" if summary["selection"] == "test" else ""
    names = {"pm": "PM personalized", "gm": "GM global", "hm": f"HM hybrid{oracle}"}
    last, best = summary["last"], summary["best"]
    benign, clients = summary["benign_clients"], summary["clients"]
    who = f"{clients} clients" if benign == clients else f"the {benign} benign of {clients} clients"
    if summary["evaluated_clients"] < benign:
        who = f"{summary['evaluated_clients']} of {who}, drawn by the seed"
    title = f"Test figures over {who}, round {last['round']}"
    table = Table(title=title, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("model", no_wrap=True)
    keys = {"loss": "loss", "loss_var": "loss var"}  # all that a regression has
    if _classes(last):
        first = {"accuracy": "accuracy", "worst10": "worst10", "best10": "best10", "jain": "Jain"}
        keys = first | keys
    measure = next(iter(keys))
    for heading in (*keys.values(), "best*"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, title in names.items():
        if last[name] is None:
            table.add_row(title, *["-"] * (len(keys) + 1))
            continue
        figures = [last[name][key] for key in keys]
        table.add_row(title, *(_number(v) for v in (*figures, best[name][measure])))
    console.print(table)
    if summary["nonfinite"]:
        times = f"{summary['nonfinite']} time(s)"
        console.print(f"A client's numbers were not finite and left out {times}.", highlight=False)
    if last["gm"] is None:
        console.print("This method has no usable global model.", highlight=False)
    if "theory" in summary:
        console.print(_theory(summary["theory"]), highlight=False, soft_wrap=True)
    console.print(
        f"* {measure} in round {best['round']}, the best by {best['chosen_on']} {measure}{oracle}",
        f"Traffic: {size(summary['bytes_up'])} up, {size(summary['bytes_down'])} down.",
        f"{summary['rounds']} rounds in {summary['seconds']:.1f} s "
        f"({summary['compile_seconds']:.1f} s compiling, "
        f"{1000 * summary['round_seconds']:.1f} ms a round). Results: {folder}",
        sep="\n",
        highlight=False,
        soft_wrap=True,
    )


def _theory(found: Mapping[str, Any]) -> str:
    """What a run that records the theory says of it, in a line or two."""
    lost = [f"({name})" for name, holds in found["conditions"].items() if not holds]
    held = f"{' and '.join(lost)} violated" if lost else "all hold"
    descent, rate = found["descent"], found["rates"]["lagrangian"]
    text = (
        f"Theory: convergence conditions with L = {found['smoothness']:.3g}: {held}. "
        f"The Lagrangian rose in {descent['rises']} of {descent['rounds']} rounds"
    )
    if "lemma1_shortfalls" in descent:
        text += f", fell short of Lemma 1 in {descent['lemma1_shortfalls']}"
    if rate:
        text += f", and goes to its limit like {speed(rate)} ({rate['kind']})"
    return text + "."


def _classes(row: Mapping[str, Any]) -> bool:
    """Whether figures are of a classification, which has accuracies."""
    return row["pm"] is not None and row["pm"]["accuracy"] is not None


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
