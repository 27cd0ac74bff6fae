"""The table of a comparison: in Markdown, in CSV and at the terminal."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from flamejax import registry
from flamejax.catalog import size
from flamejax.comparison import Comparison, merit

MISSING = "\u2013"
# heading -> figure, its sign if more is better, its form
Columns = dict[str, tuple[str, int, str]]
COLUMNS: dict[str, Columns] = {  # by what is measured
    "accuracy": {
        "PM": ("pm_accuracy", 1, ".4f"),
        "GM": ("gm_accuracy", 1, ".4f"),
        "HM": ("hm_accuracy", 1, ".4f"),
        "PM worst 10 %": ("pm_worst10", 1, ".4f"),
        "PM loss variance": ("pm_loss_var", -1, ".3g"),
    },
    "loss": {
        "PM": ("pm_loss", -1, ".4g"),
        "GM": ("gm_loss", -1, ".4g"),
        "HM": ("hm_loss", -1, ".4g"),
        "PM loss variance": ("pm_loss_var", -1, ".3g"),
    },
}
# the settings that a partition has
SHAPED_BY = {"qlabel": ["q"], "dirichlet": ["beta"], "quality": ["sigma"], "quantity": ["beta"]}
SHAPED_BY["hybrid"] = ["q", "beta"]


def method_name(row: Mapping[str, Any]) -> str:
    """A method as it is shown, e.g. "ditto + median (published, global_lr 0.05)"."""
    settings = registry.get("methods", row["method"])
    details = [row["preset"]] if len(settings.presets) > 1 else []
    if row["tuned"]:
        finished = row["status"] == "finished"
        details.append(f"global_lr {row['rate']:g}" if finished else "every global_lr")
    aggregator = "" if row["aggregator"] == "mean" else f" + {row['aggregator']}"
    return f"{row['method']}{aggregator}" + (f" ({', '.join(details)})" if details else "")


def headings(comparison: Comparison) -> list[str]:
    oracle = {"HM": "HM (oracle)"} if comparison.about["selection"] == "test" else {}
    columns = COLUMNS[comparison.about["measure"]]
    return ["method", *(oracle.get(heading, heading) for heading in columns), "traffic"]


def cells(comparison: Comparison) -> list[list[tuple[str, bool]]]:
    """Per row and column of figures what is shown, and whether it is the best of its column."""
    columns, rows = [], comparison.rows
    for figure, sign, form in COLUMNS[comparison.about["measure"]].values():
        means = [row[f"{figure}_mean"] for row in rows]
        shown = [_number(mean, form) for mean in means]
        there = [i for i, mean in enumerate(means) if mean is not None]
        best = shown[max(there, key=lambda i: sign * means[i])] if there else None
        column = []
        for row, text in zip(rows, shown, strict=True):
            std = row[f"{figure}_std"]
            spread = "" if std is None else f" ± {_number(std, re.sub('[34]g', '2g', form))}"
            missing = "diverged" if row["status"] == "diverged" else MISSING
            column.append(
                (missing if text is None else text + spread, text is not None and text == best)
            )
        columns.append(column)
    columns.append([(_traffic(row), False) for row in rows])
    return [list(row) for row in zip(*columns, strict=True)]


def _traffic(row: Mapping[str, Any]) -> str:
    if row["status"] == "diverged":
        return "diverged"
    return size(row["bytes_up_mean"] + row["bytes_down_mean"])


def _number(value: float | None, form: str) -> str | None:
    """As README and paper print them: .9823; equal figures look equal, and both are best."""
    if value is None:
        return None
    text = format(value, form)
    return text.removeprefix("0") if form.endswith("f") else text


def title(comparison: Comparison) -> str:
    """What all rows have in common, in one line."""
    about, partition = comparison.about, comparison.about["partition"]
    shape = ", ".join(f"{key} = {partition[key]:g}" for key in SHAPED_BY.get(partition["name"], []))
    shape = f" ({shape})" if shape else ""
    some = about["clients_per_round"] < about["clients"]
    who = f"{about['clients_per_round']} of " if some else ""
    a_round = " a round" if some else ""
    attack, malicious = about["attack"], about["clients"] - about["benign_clients"]
    return " · ".join(
        [
            f"{about['data']} data",
            f"{partition['name']}{shape}",
            f"{who}{about['clients']} clients{a_round}",
            *([f"{attack['name']} attack by {malicious}"] if attack["name"] != "none" else []),
            f"{about['model']} model",
            f"{about['rounds']} rounds",
            f"seed{'s' * (len(about['seeds']) > 1)} {', '.join(map(str, about['seeds']))}",
        ]
    )


def notes(comparison: Comparison) -> list[str]:
    """How the figures came about, a sentence or two each."""
    about, rows = comparison.about, comparison.rows
    over = f"{about['clients']} clients"
    if about["attack"]["name"] != "none":
        over = f"the {about['benign_clients']} benign of {over}"
    spread = ", ± sample standard deviation over seeds" if len(about["seeds"]) > 1 else ""
    oracle = about["selection"] == "test"
    measure = about["measure"]
    split = f"test {measure} itself (oracle)" if oracle else f"validation {measure}"
    many = {"accuracy": "accuracies", "loss": "losses"}[measure]
    said = [
        f"Last round, test split; {many} are means over {over}{spread}. Bold: best of its column.",
        "PM: personalized models; GM: global model; HM: for each client the one of the two with "
        f"the better {split}.",
        "Traffic: bytes sent up and down in all rounds of one run.",
    ]
    for label, group in groupby(comparison.rates, lambda row: row["label"]):
        tried = list(group)
        if tried[0]["tuned"]:
            found = ", ".join(f"{row['rate']:g} ({_merit_text(row)})" for row in tried)
            said.append(f"{label}: global_lr chosen in the last round by HM {split}: {found}.")
    if any(row["gm_loss_mean"] is None and row["status"] == "finished" for row in rows):
        said.append(f"{MISSING}: no usable global model, and so no hybrid.")
    diverged = [str(run["name"]) for run in comparison.runs if run["status"] != "finished"]
    if diverged:
        said.append(f"Diverged: {'; '.join(diverged)}.")
    return said


def _merit_text(row: Mapping[str, Any]) -> str:
    value = merit(row)
    return "diverged" if value == -np.inf else f"{abs(value):.4f}".removeprefix("0")


def markdown(comparison: Comparison) -> str:
    head = headings(comparison)
    lines = [f"**{title(comparison)}**", "", f"| {' | '.join(head)} |"]
    lines.append("|" + "---|" * len(head))
    for row, values in zip(comparison.rows, cells(comparison), strict=True):
        shown = [f"**{text}**" if best else text for text, best in values]
        lines.append(f"| {' | '.join([method_name(row), *shown])} |")
    return "\n".join([*lines, "", *(f"- {note}" for note in notes(comparison))]) + "\n"


def table_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """A line per row; seeds stand with spaces between them."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows({**row, "seeds": " ".join(map(str, row["seeds"]))} for row in rows)
    return buffer.getvalue()


def show(comparison: Comparison, folder: Path) -> None:
    """The table at the terminal, and where everything lies."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=140)  # a file is as wide as it takes
    table = Table(title=title(comparison), box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for number, heading in enumerate(headings(comparison)):
        table.add_column(heading, justify="right" if number else "left")
    for row, values in zip(comparison.rows, cells(comparison), strict=True):
        shown = [Text(text.replace("± ", "±"), "bold" if best else "") for text, best in values]
        table.add_row(method_name(row), *shown)
    console.print(table)
    lines = [*notes(comparison), f"Results: {folder}"]
    console.print(*lines, sep="\n", highlight=False, soft_wrap=True)


def announce(name: str, number: int, runs: int, quiet: bool) -> None:
    """Which of so many runs begins, where someone looks; the run shows its own rounds below."""
    console = Console(stderr=True)
    if not quiet and (console.is_terminal or console.is_jupyter):
        grid = Table.grid(padding=(0, 1))
        grid.add_row(f"run {number + 1} of {runs}", ProgressBar(runs, number, width=24), name)
        console.print(grid)
