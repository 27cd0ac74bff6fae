"""Results folders, read back: runs, comparisons, sweeps and experiments as they were found.

Files are taken for hostile: nothing outside of the named folder is read, and what is not as it
should be is refused in one line that names the file.
"""

from __future__ import annotations

import json
import operator
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TypeVar

from pydantic import BaseModel, ValidationError

from flamejax import comparison, config, grid, plan, records, swept
from flamejax.comparison import Comparison
from flamejax.complaints import one_line
from flamejax.config import Config
from flamejax.errors import InputError
from flamejax.experiment.results import Experiment, Group
from flamejax.history import columns
from flamejax.lane import Result
from flamejax.reading import read_text
from flamejax.recorded import (
    ComparisonFile,
    ExperimentFile,
    Line,
    RunPlace,
    Summary,
    SweepFile,
)
from flamejax.records import Record
from flamejax.registry import short
from flamejax.swept import Sweep
from flamejax.theory import findings

Shape = TypeVar("Shape", bound=BaseModel)
EXPERIMENT = "experiment.json"


class Kept(NamedTuple):
    """The folder of one run."""

    name: str  # what it is called among others
    folder: str  # below that of the whole
    record: Record
    config: Config
    environment: dict[str, Any]


class Found(NamedTuple):
    """One thing that was found; what: None for a run that has not ended."""

    name: str  # of its folder, beginning with the one that was given
    folder: Path
    what: Result | Comparison | Sweep | Experiment | None
    runs: list[Kept]


def read(folder: str | Path) -> list[Found]:
    """What is in a results folder, or in the folders below it, in the order of their names."""
    given = Path(folder)
    if not given.is_dir():
        raise InputError(f"{given}: there is no such folder")
    found = list(_walk(given.resolve(), given))
    if not any(one.what for one in found):
        raise InputError(f"{given}: there are no results in it, such as a summary.json")
    return found


@contextmanager
def sound(path: Path) -> Iterator[None]:
    """Refuse results that fit their files' shape but make no sense together."""
    try:
        yield
    except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError) as error:
        reason = " ".join(str(error).split())[:120]
        raise InputError(f"{path}: makes no sense ({type(error).__name__}: {reason})") from None


def _walk(root: Path, given: Path) -> Iterator[Found]:
    """Everything below `root`: wholes, and then runs that are part of none."""
    readers: dict[str, Callable[[_Place], Found]] = {
        EXPERIMENT: _experiment,
        "comparison.json": _comparison,
        "sweep.json": _sweep,
    }
    runs: list[_Place] = []
    taken: set[Path] = set()
    for folder, inner, names in os.walk(root):  # does not follow links
        inner.sort()
        place = _Place(root, given / Path(folder).relative_to(root))
        name = next((name for name in readers if name in names), None)
        if name is not None:
            inner.clear()
            with sound(place.folder / name):
                found = readers[name](place)
            taken |= {(found.folder / run.folder).resolve() for run in found.runs}
            yield found
        elif "summary.json" in names or {"config.toml", "environment.json"} <= {*names}:
            inner.clear()
            runs.append(place)
    for place in runs:
        if place.folder.resolve() not in taken:
            with sound(place.folder):
                yield _run(place)


class _Place(NamedTuple):
    root: Path  # nothing outside of it is read
    folder: Path

    @property
    def name(self) -> str:
        whole = Path(self.root.name, self.folder.resolve().relative_to(self.root))
        return whole.as_posix()

    def path(self, name: str) -> Path:
        """A file or folder in this one, as it is named to people."""
        path = self.folder / name
        try:
            within = path.resolve().is_relative_to(self.root)
        except (OSError, ValueError, RuntimeError):  # a name that cannot be one, a circle of links
            within = False
        if not within:
            raise InputError(f"{self.folder}: {short(name)} leads out of the folder given")
        return path

    def file(self, name: str) -> Path | None:
        """An ordinary file in this folder, if there is one."""
        path = self.path(name)
        return path if path.is_file() else None

    def parsed(self, name: str, shape: type[Shape]) -> Shape:
        """A JSON file, checked."""
        return _checked(self.path(name), _json(self.path(name)), shape)


def _json(path: Path) -> Any:
    try:
        return json.loads(read_text(path))
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{path}: cannot be read: {reason}") from None


def _checked(path: Path, values: Any, shape: type[Shape]) -> Shape:
    try:
        return shape.model_validate(values)
    except ValidationError as error:
        if not isinstance(values, dict):
            raise InputError(f"{path}: should hold a table") from None
        raise InputError(f"{path}: {one_line(error, shape, '')}") from None


def _kept(place: _Place, folder: str, name: str) -> Kept:
    """A run that has ended."""
    here = _Place(place.root, place.path(folder))
    for part in ("config.toml", "summary.json"):
        if here.file(part) is None:
            raise InputError(f"{here.folder / part}: is missing")
    here.path("metrics.jsonl")
    record = records.read(here.folder)
    assert record is not None
    summary = _checked(here.folder / "summary.json", record.summary, Summary)
    for line in record.rows:
        _checked(here.folder / "metrics.jsonl", line, Line)
    if summary.status == "finished" and not (summary.last and record.rows):
        raise InputError(f"{here.folder}: is finished, but has no figures")
    try:
        made = config.make(config.load(here.folder / "config.toml"))
    except InputError as error:
        said = str(error).removeprefix(f"{here.folder / 'config.toml'}: ")
        raise InputError(f"{here.folder / 'config.toml'}: {said}") from None
    environment = _json(here.folder / "environment.json") if here.file("environment.json") else {}
    if not isinstance(environment, dict):
        raise InputError(f"{here.folder / 'environment.json'}: should hold a table")
    return Kept(name, folder, record, made, environment)


def _run(place: _Place) -> Found:
    if place.file("summary.json") is None:
        return Found(place.name, place.folder, None, [])
    kept = _kept(place, "", "")
    lines: list[Any] = []
    if theory := place.file("theory.jsonl"):
        try:
            lines = [json.loads(line) for line in theory.read_text("utf-8").splitlines()]
        except (OSError, ValueError, RecursionError) as error:
            raise InputError(f"{theory}: cannot be read: {error}") from None
    with sound(place.folder / "metrics.jsonl"):
        metrics = columns(kept.record.rows)
    with sound(place.folder / "theory.jsonl"):
        told = findings.columns(lines)
    result = Result(kept.config, metrics, {}, kept.record.summary, _no_models, told)
    return Found(place.name, place.folder, result, [kept])


def _no_models(client: int) -> NoReturn:
    raise InputError("the models of a run that is read back are not at hand")


def _comparison(place: _Place) -> Found:
    file = place.parsed("comparison.json", ComparisonFile)
    found, kept = _compared(place, "comparison.json", file.runs)
    return Found(place.name, place.folder, found, kept)


def _compared(
    place: _Place, name: str, runs: Sequence[RunPlace], prefix: str = ""
) -> tuple[Comparison, list[Kept]]:
    """The comparison of these runs; prefix: what their names begin with."""
    planned, kept = [], []
    for run in runs:
        one = _kept(place, run.folder, "")
        planned.append(plan.Run(run.label, run.rate, one.config))
        kept.append(one._replace(name=f"{prefix}{planned[-1]}"))
        method, preset, aggregator = plan.parts(run.label)
        made = one.config
        same = (made.method.name, made.seed) == (method, run.seed)
        same = same and preset in (None, made.method.preset)
        if not same or aggregator not in (None, made.aggregator.name):
            said = f"{short(run.label)}, seed {run.seed}"
            raise InputError(f"{place.folder / name}: {short(run.folder)} is not a run of {said}")
    return comparison.gather(planned, [one.record for one in kept]), kept


def _sweep(place: _Place) -> Found:
    file = place.parsed("sweep.json", SweepFile)
    runs, kept = [], []
    for run in file.runs:
        one = _kept(place, run.folder, "")
        values = one.config.model_dump()
        point = {key: reduce(operator.getitem, key.split("."), values) for key in file.grid}
        runs.append(grid.Run(point, one.config))
        kept.append(one._replace(name=str(runs[-1])))
    axes = grid.values_in(runs)
    programs = [run.program for run in file.runs]
    found = swept.gather(axes, runs, [one.record for one in kept], programs)
    return Found(place.name, place.folder, found, kept)


def _experiment(place: _Place) -> Found:
    """What is there of an experiment. Experiments in one folder share runs that lie beside them."""
    name, beside = place.name, place.folder.resolve().parent
    place = place._replace(root=beside if place.root.is_relative_to(beside) else place.root)
    file = experiment_file(place.folder)
    groups, kept, missing = [], [], list(file.missing)
    for group in file.groups:
        point = map(grid.assignment, group.point.items())
        at = ", ".join([group.data, group.partition, *point])
        done = [run for run in group.runs if _is_done(place, run.folder)]
        missing += [f"{at}: {run.label}, seed {run.seed}" for run in group.runs if run not in done]
        if done:
            with sound(place.folder / f"{EXPERIMENT}, {at}"):
                found, runs = _compared(place, EXPERIMENT, done, f"{at}: ")
            groups.append(Group(group.data, group.partition, group.point, found))
            kept += runs
    if not groups:
        raise InputError(f"{place.folder / EXPERIMENT}: none of its runs is done")
    heading = file.name, file.title, file.kind, file.forms
    return Found(name, place.folder, Experiment(*heading, groups, missing, file.about), kept)


def experiment_file(folder: Path) -> ExperimentFile:
    """Which runs belong to an experiment."""
    path = folder / EXPERIMENT
    return _checked(path, _json(path), ExperimentFile)


def _is_done(place: _Place, folder: str) -> bool:
    here = place._replace(folder=place.path(folder))
    summary = _json(here.path("summary.json")) if here.file("summary.json") else {}
    return not isinstance(summary, dict) or summary.get("status") in ("finished", "diverged")
