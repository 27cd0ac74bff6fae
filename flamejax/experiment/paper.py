"""The paper's figures beside ours."""

from __future__ import annotations

from typing import NamedTuple


class Cell(NamedTuple):
    """One model of one method on one data set and partition, and what the paper says of it.

    model: "pm", "gm", "hm", or "oracle", which is what the paper's hybrid is compared with.
    None where there is no such figure.
    """

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
