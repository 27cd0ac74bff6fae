"""Where a run's figures go besides its own files, by `record.log`.

A logger is a class with the methods of `Logger`, in a module of its own that imports what it needs,
and a line in the registry. Figures have the names of metrics.jsonl: "pm/accuracy" is
row["pm"]["accuracy"].
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from flamejax import hosts, registry
from flamejax.config import Config
from flamejax.errors import InputError


class Logger:
    """One that does nothing, and what the others have to do."""

    def __init__(self, values: Mapping[str, Any], folder: Path) -> None:
        """values: the config; folder: that of the run. All rows of a run that goes on are given
        again, so what is there of them already has to be replaced."""

    def row(self, row: Mapping[str, Any]) -> None:
        """A line of metrics.jsonl."""

    def close(self, summary: Mapping[str, Any], picture: Path | None) -> None:
        """The content of summary.json, and the curves if there are any."""


class Loggers:
    """Those of a run. One that fails is given up, and the run goes on."""

    def __init__(self) -> None:
        self._open: dict[str, Logger] = {}

    def add(self, name: str, make: Callable[[], Logger]) -> None:
        self._try(name, lambda: self._open.update({name: make()}))

    def row(self, row: Mapping[str, Any]) -> None:
        for name, logger in list(self._open.items()):
            self._try(name, partial(logger.row, row))

    def close(self, summary: Mapping[str, Any], picture: Path | None) -> None:
        for name, logger in list(self._open.items()):
            self._try(name, partial(logger.close, summary, picture))

    def _try(self, name: str, step: Callable[[], None]) -> None:
        try:
            step()
        except Exception as error:  # of other people's code, of disks and networks
            self._open.pop(name, None)
            reason = " ".join(str(error).split()) or type(error).__name__
            warnings.warn(f"record.log: {name} failed and is left out: {reason}", stacklevel=4)


def check(config: Config, out: Path | None) -> None:
    """Refuse, before a run begins, loggers that could not be used."""
    for name in config.record.loggers if hosts.rank() == 0 else ():
        if name != "none" and out is None:
            raise InputError(f"record.log = '{name}' needs out, a folder for the records")
        try:
            registry.get("loggers", name)
        except ImportError as error:
            fix = f"pip install 'flamejax[{name}]'"
            raise InputError(f"record.log = '{name}' cannot be used ({error}): {fix}") from None


def open_all(
    config: Config,
    names: Mapping[str, str],
    folder: Path | None,
    rows: Sequence[Mapping[str, Any]],
) -> Loggers:
    """The loggers of a run, which have been given its rows so far; none without a folder.

    names: of the data and the model, as they really are.
    """
    values = config.model_dump()
    values |= {section: {**values[section], "name": name} for section, name in names.items()}
    found = Loggers()
    for name in config.record.loggers if folder is not None else ():
        found.add(name, partial(registry.get("loggers", name), values, folder))
    for row in rows:
        found.row(row)
    return found


def flat(values: Mapping[str, Any], between: str) -> dict[str, Any]:
    """Nested values by the path of their keys.

    >>> flat({"pm": {"loss": 0.5, "jain": None}, "round": 3}, "/")
    {'pm/loss': 0.5, 'pm/jain': None, 'round': 3}
    """
    found: dict[str, Any] = {}
    for key, value in values.items():
        inner = flat(value, between) if isinstance(value, Mapping) else {"": value}
        found |= {f"{key}{between if name else ''}{name}": leaf for name, leaf in inner.items()}
    return found


def scalars(row: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a row. Of those for each round since the row before it is their sum.

    >>> scalars({"round": 3, "gap": None, "nonfinite": [0, 2], "selection": {"on": "test"}})
    {'nonfinite': 2}
    """
    summed = {k: sum(v) if isinstance(v, list) else v for k, v in flat(row, "/").items()}
    return {k: v for k, v in summed.items() if isinstance(v, int | float) and k != "round"}
