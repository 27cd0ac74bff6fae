"""What the files of results folders must hold to be read back; more may stand in them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Text = Annotated[str, Field(max_length=4096)]
Whole = Annotated[int, Field(ge=0, lt=2**63)]
Number = Annotated[float, Field(allow_inf_nan=False, gt=-1e100, lt=1e100)]
Seconds = Annotated[float, Field(ge=0, lt=1e12)]
Figures = dict[str, Number | None]


class Part(BaseModel):
    model_config = ConfigDict(strict=True)


class Measured(Part):
    """Figures after a round."""

    round: Whole
    pm: Figures | None
    gm: Figures | None
    hm: Figures | None


class Line(Measured):
    """Of metrics.jsonl."""

    train_loss: Number | None
    nonfinite: list[Whole] = []
    bytes: dict[str, Whole] = {}


class Summary(Part):
    """summary.json."""

    status: Literal["finished", "diverged", "interrupted"]
    data: Text
    model: Text
    selection: Text
    rounds: Whole
    clients: Whole
    clients_per_round: Whole
    benign_clients: Whole
    evaluated_clients: Whole
    bytes_up: Whole
    bytes_down: Whole
    seconds: Seconds = 0.0
    last: Measured | None
    best: Measured | None = None


class RunPlace(Part):
    """A run of several, and where it is."""

    label: Text
    rate: Number | None = None
    seed: Whole
    folder: Text


class PointPlace(Part):
    folder: Text
    program: Whole


class ComparisonFile(Part):
    """comparison.json."""

    runs: Annotated[list[RunPlace], Field(min_length=1)]


class SweepFile(Part):
    """sweep.json."""

    grid: dict[Text, list[Any]]
    runs: Annotated[list[PointPlace], Field(min_length=1)]


class GroupPlaces(Part):
    data: Text
    partition: Text
    point: dict[Text, int | Number | bool | Text]
    runs: list[RunPlace]  # also those that are not done


class ExperimentFile(Part):
    """experiment.json."""

    name: Text
    title: Text
    kind: Literal["table", "curves", "fairness", "robustness", "trend"]
    forms: dict[Text, list[Text]]
    groups: list[GroupPlaces]
    missing: list[Text] = []
    about: dict[str, Any]
