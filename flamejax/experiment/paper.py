"""The paper's accuracy table, and an experiment's figures beside it."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from flamejax.errors import InputError
from flamejax.experiment.results import Experiment, Group
from flamejax.experiment.shelf import shelf

MODELS = ("pm", "gm", "hm", "oracle")
SAME_SETTING = ("table", "curves", "fairness")  # kinds with the clients and settings of the table
NEAR = 0.02  # a difference that is small whatever the paper's deviation is

Figures = Mapping[str, Any]


class Cell(NamedTuple):
    """One accuracy of ours in the last round and the paper's; None where there is none.

    model: "pm", "gm", "hm" (chosen on validation samples; the paper has no such figure) or "oracle"
    (chosen on the test samples, as the paper's hybrid is). Agreement is to be expected in the form
    "published" only; in the other one the paper's figure is for information.
    """

    data: str
    partition: str
    form: str
    label: str
    method: str
    model: str
    ours: float | None  # mean over seeds; None if a run diverged
    std: float | None  # sample standard deviation; None with one seed
    seeds: int
    rounds: int
    paper: float | None
    paper_std: float | None
    difference: float | None  # ours - paper
    within_2sigma: bool | None  # no further off than 2 paper_std
    within: bool | None  # no further off than 2 paper_std or .02


@cache
def table() -> dict[tuple[str, str], dict[str, Figures]]:
    """(data, partition) -> method -> figures of five seeds, named as in a comparison's rows."""
    return read_table(shelf() / "paper" / "accuracy.csv")


def read_table(path: Path) -> dict[tuple[str, str], dict[str, Figures]]:
    """Such figures from a file with a row for each place."""
    found: dict[tuple[str, str], dict[str, Figures]] = {}
    try:
        with path.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                place = row.pop("data"), row.pop("partition")
                methods = dict.fromkeys(column.partition("_")[0] for column in row)
                found[place] = {method: _figures(method, row) for method in methods}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, csv.Error) as error:
        raise InputError(f"{path}: cannot be read ({error!r}): install flamejax again") from None
    return found


def _figures(method: str, row: Mapping[str, str]) -> Figures:
    """Columns such as flame_hm_mean; the paper's hybrid is an oracle."""
    names = {"pm": "pm_accuracy", "gm": "gm_accuracy", "hm": "oracle_accuracy"}
    split = {tuple(column.split("_")): float(text) for column, text in row.items()}
    found = {f"{names[m]}_{kind}": value for (of, m, kind), value in split.items() if of == method}
    return {"seeds": range(5), **found}


def name(label: str) -> str:
    """What a method is called whatever its form: "fedavg:standard+median" -> "fedavg+median"."""
    method, plus, aggregator = label.partition("+")
    return method.partition(":")[0] + plus + aggregator


def cells(experiment: Experiment) -> list[Cell]:
    """All accuracies of an experiment in the setting of the paper's table, and those there."""
    if experiment.kind not in SAME_SETTING:
        return []
    return [
        cell
        for group in experiment.groups
        if not group.point
        for form, labels in experiment.forms.items()
        for row in group.comparison.rows
        if row["label"] in labels
        for model in MODELS
        if (cell := _cell(group, form, row, model)) is not None
    ]


def _cell(group: Group, form: str, row: Mapping[str, Any], model: str) -> Cell | None:
    figure = f"{model}_accuracy"
    ours, std = row.get(f"{figure}_mean"), row.get(f"{figure}_std")
    theirs = table().get((group.data, group.partition), {}).get(name(row["label"]), {})
    paper, paper_std = theirs.get(f"{figure}_mean"), theirs.get(f"{figure}_std")
    if ours is None and paper is None:
        return None
    difference = near = nearer = None
    if ours is not None and paper is not None and paper_std is not None:
        difference = ours - paper
        nearer = abs(difference) <= 2 * paper_std
        near = nearer or abs(difference) <= NEAR
    return Cell(
        data=group.data,
        partition=group.partition,
        form=form,
        label=row["label"],
        method=row["method"],
        model=model,
        ours=ours,
        std=std,
        seeds=len(row["seeds"]),
        rounds=group.comparison.about["rounds"],
        paper=paper,
        paper_std=paper_std,
        difference=difference,
        within_2sigma=nearer,
        within=near,
    )
