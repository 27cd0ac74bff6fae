"""Figures of several seeds of one setting: means and deviations, and which setting is best."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from flamejax.records import Record

MODELS = ("pm", "gm", "hm")
FIGURES = ("accuracy", "accuracy_var", "loss", "loss_var", "worst10", "best10")


def over_seeds(found: Sequence[Record]) -> dict[str, Any]:
    """What the runs of one setting come to: "seeds" apart, a row of a table.

    "status" is "finished", or "diverged" if one of them did. Of every figure of the last round,
    and of the bytes sent until then, "..._mean" and "..._std", the sample standard deviation; None
    where there is no such figure, as there is no mean over some of the seeds.
    """
    finished = all(record.summary["status"] == "finished" for record in found)
    row: dict[str, Any] = {"status": "finished" if finished else "diverged"}
    last = [_last(record) for record in found] if finished else []
    names = [f"{model}_{figure}" for model in MODELS for figure in FIGURES]
    names += ["bytes_up", "bytes_down"]
    for name in dict.fromkeys([*names, *(name for figures in last for name in figures)]):
        values = [figures[name] for figures in last if name in figures]
        whole = len(values) == len(found)
        row[f"{name}_mean"] = float(np.mean(values)) if whole else None
        row[f"{name}_std"] = float(np.std(values, ddof=1)) if whole and len(values) > 1 else None
    return row


def fill(rows: Sequence[dict[str, Any]]) -> None:
    """Give all rows all columns."""
    keys = dict.fromkeys(key for row in rows for key in row)
    for row in rows:
        row |= {key: None for key in keys if key not in row}


def measure(rows: Sequence[Mapping[str, Any]]) -> str:
    """What rows are judged by: "accuracy"; for a regression, where none has any, "loss"."""
    finished = [row for row in rows if row["status"] == "finished"]
    without = bool(finished) and all(row["pm_accuracy_mean"] is None for row in finished)
    return "loss" if without else "accuracy"


def merit(row: Mapping[str, Any]) -> float:
    """What the best row is best at: hybrid accuracy on the selection split, last round; for
    regression minus the loss."""
    for figure, sign in (("accuracy", 1), ("loss", -1)):
        for model in ("hm", "pm"):
            value = row.get(f"selection_{figure}_{model}_mean")
            if value is not None:
                return sign * float(value)
    return -np.inf  # diverged


def choose(rows: Sequence[Mapping[str, Any]]) -> int:
    """Which row is best; the first of equals."""
    return int(np.argmax([merit(row) for row in rows]))


def _last(record: Record) -> dict[str, float]:
    """The figures of a finished run's last round, and what was sent until then."""
    sent = {"up": record.summary["bytes_up"], "down": record.summary["bytes_down"]}
    return _flat({**record.rows[-1], **record.summary["last"], "bytes": sent})


def _flat(figures: Mapping[str, Any]) -> dict[str, float]:
    """{"pm": {"loss": 1.0}, "gm": None} -> {"pm_loss": 1.0}: all numbers but the round's."""
    flat: dict[str, float] = {}
    for key, value in figures.items():
        if isinstance(value, Mapping):
            flat |= {f"{key}_{inner}": number for inner, number in _flat(value).items()}
        elif isinstance(value, int | float) and key != "round":
            flat[key] = value
    return flat
