"""The table of a comparison."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from typing import Any

import numpy as np

from flamejax import registry
from flamejax.averages import merit
from flamejax.catalog import size
from flamejax.comparison import Comparison
from flamejax.report.sheet import (
    Columns,
    Sheet,
    cells,
    first_notes,
    hybrid,
    last_notes,
    split,
    title,
)

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


def method_name(row: Mapping[str, Any]) -> str:
    """A method as it is shown, e.g. "ditto + median (published, global_lr 0.05)"."""
    settings = registry.get("methods", row["method"])
    details = [row["preset"]] if len(settings.presets) > 1 else []
    if row["tuned"]:
        finished = row["status"] == "finished"
        details.append(f"global_lr {row['rate']:g}" if finished else "every global_lr")
    aggregator = "" if row["aggregator"] == "mean" else f" + {row['aggregator']}"
    return f"{row['method']}{aggregator}" + (f" ({', '.join(details)})" if details else "")


def sheet(comparison: Comparison) -> Sheet:
    rows, about = comparison.rows, comparison.about
    columns = COLUMNS[about["measure"]]
    shown = [
        [(method_name(row), False), *figures, (_traffic(row), False)]
        for row, figures in zip(rows, cells(rows, columns), strict=True)
    ]
    headings = [*hybrid(columns, about), "traffic"]
    return Sheet(title(about), ["method"], headings, shown, notes(comparison))


def _traffic(row: Mapping[str, Any]) -> str:
    if row["status"] == "diverged":
        return "diverged"
    return size(row["bytes_up_mean"] + row["bytes_down_mean"])


def notes(comparison: Comparison) -> list[str]:
    about = comparison.about
    said = first_notes(about)
    said.append("Traffic: bytes sent up and down in all rounds of one run.")
    for label, group in groupby(comparison.rates, lambda row: row["label"]):
        tried = list(group)
        if tried[0]["tuned"]:
            found = ", ".join(f"{row['rate']:g} ({merit_text(row)})" for row in tried)
            said.append(
                f"{label}: global_lr chosen in the last round by HM {split(about)}: {found}."
            )
    return said + last_notes(comparison.rows, comparison.runs)


def merit_text(row: Mapping[str, Any]) -> str:
    value = merit(row)
    return "diverged" if value == -np.inf else f"{abs(value):.4f}".removeprefix("0")
