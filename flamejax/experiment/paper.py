"""An experiment's figures beside the paper's."""

from __future__ import annotations

from typing import NamedTuple

from flamejax.experiment.results import Experiment


class Cell(NamedTuple):
    data: str
    partition: str
    form: str
    label: str
    method: str
    model: str
    ours: float | None
    std: float | None
    seeds: int
    rounds: int
    paper: float | None
    paper_std: float | None
    difference: float | None
    within_2sigma: bool | None
    within: bool | None


def cells(experiment: Experiment) -> list[Cell]:
    return []
