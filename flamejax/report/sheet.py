"""A table of results with its title and notes: in Markdown, in CSV and at the terminal."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

MISSING = "\u2013"
# heading -> figure, its sign if more is better, its form
Columns = Mapping[str, tuple[str, int, str]]
Cell = tuple[str, bool]  # what is shown, and whether it is the best of its column
# the settings that a partition has
SHAPED_BY = {"qlabel": ["q"], "dirichlet": ["beta"], "quality": ["sigma"], "quantity": ["beta"]}
SHAPED_BY["hybrid"] = ["q", "beta"]


class Sheet(NamedTuple):
    title: str
    names: list[str]  # headings of the columns that say what a row is,
    headings: list[str]  # and of those with figures
    rows: list[list[Cell]]
    notes: list[str]  # how the figures came about, a sentence or two each


def cells(rows: Sequence[Mapping[str, Any]], columns: Columns) -> list[list[Cell]]:
    """Per row and column of figures what is shown: the mean over seeds, and the deviation."""
    shown_columns = []
    for figure, sign, form in columns.values():
        means = [row[f"{figure}_mean"] for row in rows]
        shown = [number(mean, form) for mean in means]
        there = [i for i, mean in enumerate(means) if mean is not None]
        best = shown[max(there, key=lambda i: sign * means[i])] if there else None
        column = []
        for row, text in zip(rows, shown, strict=True):
            std = row[f"{figure}_std"]
            spread = "" if std is None else f" ± {number(std, re.sub('[34]g', '2g', form))}"
            missing = "diverged" if row["status"] == "diverged" else MISSING
            column.append(
                (missing if text is None else text + spread, text is not None and text == best)
            )
        shown_columns.append(column)
    return [list(row) for row in zip(*shown_columns, strict=True)]


def number(value: float | None, form: str) -> str | None:
    """As README and paper print them: .9823; equal figures look equal, and both are best."""
    if value is None:
        return None
    text = format(value, form)
    return text.removeprefix("0") if form.endswith("f") else text


def hybrid(columns: Columns, about: Mapping[str, Any]) -> list[str]:
    """The headings; a hybrid chosen on the test set says so."""
    oracle = about["selection"] == "test"
    return [f"{h} (oracle)" if h == "HM" and oracle else h for h in columns]


def title(about: Mapping[str, Any]) -> str:
    """What all rows have in common, in one line; None and absent is what they do not."""
    partition, attack = about["partition"], about["attack"]
    held = [key for key in SHAPED_BY.get(partition.get("name"), []) if key in partition]
    shape = ", ".join(f"{key} = {partition[key]:g}" for key in held)
    clients, selected = about["clients"], about["clients_per_round"]
    pieces = [about["data"] and f"{about['data']} data"]
    if "name" in partition:
        pieces.append(f"{partition['name']} ({shape})" if shape else partition["name"])
    if clients and selected:
        who, a_round = (f"{selected} of ", " a round") if selected < clients else ("", "")
        pieces.append(f"{who}{clients} clients{a_round}")
    if attack.get("name", "none") != "none" and clients and about["benign_clients"]:
        pieces.append(f"{attack['name']} attack by {clients - about['benign_clients']}")
    seeds = about["seeds"]
    pieces += [
        about["model"] and f"{about['model']} model",
        about["rounds"] and f"{about['rounds']} rounds",
        f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}",
    ]
    return " · ".join(piece for piece in pieces if piece)


def split(about: Mapping[str, Any]) -> str:
    """What hybrids and settings are chosen by."""
    measure = about["measure"]
    if about["selection"] == "test":
        return f"test {measure} itself (oracle)"
    return f"{about['selection'] or 'the chosen'} {measure}"


def first_notes(about: Mapping[str, Any]) -> list[str]:
    """What the figures of every table are."""
    over = f"{about['clients']} clients" if about["clients"] else "clients"
    if about["attack"].get("name") != "none":
        benign = (
            f"{about['benign_clients']} benign of " if about["benign_clients"] else "benign of "
        )
        over = f"the {benign}{over}"
    if (about["evaluated_clients"] or 0) < (about["benign_clients"] or 0):
        some = about["evaluated_clients"] or "some"
        over = f"{some} of {over}, drawn by the seed"
    spread = ", ± sample standard deviation over seeds" if len(about["seeds"]) > 1 else ""
    many = {"accuracy": "accuracies", "loss": "losses"}[about["measure"]]
    return [
        f"Last round, test split; {many} are means over {over}{spread}. Bold: best of its column.",
        "PM: personalized models; GM: global model; HM: for each client the one of the two with "
        f"the better {split(about)}.",
    ]


def last_notes(rows: Sequence[Mapping[str, Any]], runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """What is not in the table, and why."""
    said = []
    if any(row["gm_loss_mean"] is None and row["status"] == "finished" for row in rows):
        said.append(f"{MISSING}: no usable global model, and so no hybrid.")
    diverged = [str(run["name"]) for run in runs if run["status"] != "finished"]
    if diverged:
        said.append(f"Diverged: {'; '.join(diverged)}.")
    return said


def markdown(sheet: Sheet) -> str:
    head = [*sheet.names, *sheet.headings]
    lines = [f"**{sheet.title}**", "", f"| {' | '.join(head)} |", "|" + "---|" * len(head)]
    for row in sheet.rows:
        shown = [f"**{text}**" if best else text for text, best in row]
        lines.append(f"| {' | '.join(shown)} |")
    return "\n".join([*lines, "", *(f"- {note}" for note in sheet.notes)]) + "\n"


def sheet_csv(sheet: Sheet) -> str:
    """The table as it is shown."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow([*sheet.names, *sheet.headings])
    writer.writerows([text for text, _ in row] for row in sheet.rows)
    return buffer.getvalue()


def table_csv(rows: Sequence[Mapping[str, Any]]) -> str:
    """A line per row; seeds stand with spaces between them."""
    buffer = io.StringIO()
    writer = csv.DictWriter(buffer, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows({**row, "seeds": " ".join(map(str, row["seeds"]))} for row in rows)
    return buffer.getvalue()


def show(sheet: Sheet, folder: Path) -> None:
    """The table at the terminal, and where everything lies."""
    show_all([sheet], sheet.notes, folder)


def show_all(sheets: Sequence[Sheet], notes: Sequence[str], folder: Path) -> None:
    """Several tables with notes on all of them."""
    console = Console()
    if not console.is_terminal:
        console = Console(width=140)  # a file is as wide as it takes
    for sheet in sheets:
        console.print(_table(sheet))
    console.print(*notes, f"Results: {folder}", sep="\n", highlight=False, soft_wrap=True)


def _table(sheet: Sheet) -> Table:
    table = Table(title=sheet.title, box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name in sheet.names:
        table.add_column(name)
    for heading in sheet.headings:
        table.add_column(heading, justify="right")
    for row in sheet.rows:
        table.add_row(
            *(Text(text.replace("± ", "±"), "bold" if best else "") for text, best in row)
        )
    return table
