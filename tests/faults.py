"""Faults of the machine that tests switch on: they are made where Python meets the system, so they
do not depend on which module of the package does the work."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping
from typing import Any

import flamejax as fj
from flamejax.config import Config


class InterruptAfter(fj.Callback):
    """Ctrl-C after so many calls of the compiled rounds."""

    def __init__(self, calls: int) -> None:
        self.left = calls

    def on_rounds(self, config: Config, done: int) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGINT)


class KillAfter(fj.Callback):
    """This process is killed, without a chance to do anything, after so many calls."""

    def __init__(self, calls: int) -> None:
        self.left = calls

    def on_rounds(self, config: Config, done: int) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


class Seen(fj.Callback):
    """Calls `then` whenever some rounds are over."""

    def __init__(self, then: Callable[[Config, int], Any]) -> None:
        self.on_rounds = then  # type: ignore[method-assign]


class Rows(fj.Callback):
    """Keeps the rows of all evaluations."""

    def __init__(self) -> None:
        self.rows: list[Mapping[str, Any]] = []

    def on_evaluation(self, config: Config, row: Mapping[str, Any]) -> None:
        self.rows.append(row)
