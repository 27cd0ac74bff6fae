"""The table of a sweep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from flamejax import registry
from flamejax.grid import text
from flamejax.report.comparison import merit_text
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
from flamejax.swept import Sweep

STAR = "\u2605"
LOSSES: Columns = {model: (f"{model.lower()}_loss", -1, ".4g") for model in ("PM", "GM", "HM")}
COLUMNS: dict[str, Columns] = {  # by what is measured
    "accuracy": {
        **{model: (f"{model.lower()}_accuracy", 1, ".4f") for model in LOSSES},
        **{f"{model} loss": column for model, column in LOSSES.items()},
    },
    "loss": LOSSES,
}


def sheet(sweep: Sweep) -> Sheet:
    rows, about = sweep.rows, sweep.about
    columns = COLUMNS[about["measure"]]
    values = named(sweep)
    shown = []
    for row, figures in zip(rows, cells(rows, columns), strict=True):
        names = [values[key][row[key]] for key in sweep.grid]
        if row["best"] and len(rows) > 1:
            names[-1] += f" {STAR}"
        shown.append([*((name, False) for name in names), *figures])
    return Sheet(headline(sweep), list(sweep.grid), hybrid(columns, about), shown, notes(sweep))


def labels(values: Sequence[Any], width: int = 24) -> list[str]:
    """Values of one key in few digits and letters, as long as they stay apart.

    >>> labels([0.1, 1 / 3, 1e-05]), labels([1.00001, 1.00002])
    (['0.1', '0.3333', '1e-05'], ['1.00001', '1.00002'])
    """
    whole = [text(value) for value in values]
    brief = [f"{v:.4g}" if isinstance(v, float) else t for v, t in zip(values, whole, strict=True)]
    brief = [t if len(t) <= width else f"\u2026{t[1 - width :]}" for t in brief]  # paths end apart
    return brief if len({*brief}) == len(brief) else whole


def named(sweep: Sweep) -> dict[str, dict[Any, str]]:
    """Key -> its values and what they are called."""
    return {key: dict(zip(v, labels(v), strict=True)) for key, v in sweep.grid.items()}


def headline(sweep: Sweep) -> str:
    """What all points have in common, in one line."""
    method, aggregator = sweep.about["method"], sweep.about["aggregator"].get("name", "mean")
    said = []
    if "name" in method:
        several = len(registry.get("methods", method["name"]).presets) > 1
        preset = f" ({method['preset']})" if several and "preset" in method else ""
        said.append(f"{method['name']}{preset}")
    if aggregator != "mean":
        said.append(aggregator)
    return " · ".join([*said, title(sweep.about)])


def notes(sweep: Sweep) -> list[str]:
    said, best = first_notes(sweep.about), sweep.best()
    if best and len(sweep.rows) > 1:
        mean = ", mean over seeds" if len(sweep.about["seeds"]) > 1 else ""
        by = f"best in the last round by {chosen_by(sweep)}{mean}"
        said.append(f"{STAR}: {by}: {merit_text(best)}.")
    return said + last_notes(sweep.rows, sweep.runs)


def chosen_by(sweep: Sweep) -> str:
    """What the best point is best at."""
    hybrids = any(row["hm_loss_mean"] is not None for row in sweep.rows)
    return f"{'HM' if hybrids else 'PM'} {split(sweep.about)}"
