"""Tables of an experiment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flamejax.experiment.paper import Cell
from flamejax.report.sheet import Sheet


def beside_paper(cells: Sequence[Cell], shown: Mapping[str, Any], title: str) -> list[Sheet]:
    rows = [
        [(str(x), False) for x in (c.data, c.label, c.model, c.ours, c.paper, c.within_2sigma)]
        for c in cells
        if c.paper is not None
    ]
    names, headings = ["data", "method", "model"], ["ours", "paper", "within 2 sigma"]
    return [Sheet(title, names, headings, rows, [])] if rows else []
