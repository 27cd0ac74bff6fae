"""Verdicts on the paper's claims."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from flamejax.experiment.results import Experiment


class Claim(NamedTuple):
    id: str
    experiments: Sequence[str]
    says: str
    where: str
    figure: float | None = None
    reading: str = ""


class Verdict(NamedTuple):
    claim: str
    form: str
    verdict: str  # "reproduced", "partly", "not reproduced" or "not judged"
    numbers: str


def claims() -> dict[str, Claim]:
    return {}


def judge(experiment: Experiment) -> list[Verdict]:
    return []
