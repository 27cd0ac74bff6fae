"""Experiments as files: experiments/NAME.toml over a config, and the runs they consist of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from flamejax import registry
from flamejax.catalog import stem
from flamejax.complaints import one_line
from flamejax.config import lay_over, load
from flamejax.errors import InputError
from flamejax.experiment.shelf import shelf
from flamejax.given import SEEDS, listed, read_seed
from flamejax.grid import Axes, assignment, axes_of, check_number, folder_of, put
from flamejax.plan import Run, plan

Form = Literal["standard", "published"]
FORMS: tuple[Form, ...] = ("standard", "published")
SHORT = {"fmnist": "fashion_mnist", "mmnist": "medical_mnist", "cifar": "cifar10"}  # the paper's
OWN = {"data.name": "--datasets", "partition.name": "--partitions", "seed": "--seeds"}
SMOKE = {  # a look at whether everything works, in seconds
    "rounds": 2,
    "eval_every": 1,
    "data": {"name": "mnist_mini", "limit": 2000},
    "model": {"name": "mlr"},
    "partition": {"min_samples": 10},
}


class Definition(BaseModel):
    """What experiments/NAME.toml holds."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)
    title: str
    kind: Literal["table", "curves", "fairness", "robustness", "trend"]
    config: str  # in configs/
    seeds: list[int]
    methods: dict[Form, list[str]]  # form -> labels, as those of `flamejax compare`
    rows: dict[str, list[str]]  # data set -> partitions
    settings: dict[str, Any] = {}  # laid over the config
    grid: dict[str, Any] = {}  # key paths and the values to try
    name: str  # of the file, and
    folder: Path  # where it is


class Cell(NamedTuple):
    """A run of an experiment."""

    data: str
    partition: str
    point: dict[str, Any]
    run: Run
    path: Path  # of its results folder, below that of all experiments

    def __str__(self) -> str:
        point = map(assignment, self.point.items())
        return ", ".join([self.data, self.partition, *point, str(self.run)])


class Choice(NamedTuple):
    """What of an experiment is run; None: as its file says."""

    forms: Sequence[Form] = FORMS
    data: str | None = None
    partitions: str | None = None
    methods: str | None = None
    seeds: str | None = None
    rounds: int | None = None
    smoke: bool = False


def names() -> dict[str, str]:
    """The experiments there are, and their titles."""
    return {path.stem: define(path.stem).title for path in sorted(shelf().glob("*.toml"))}


def define(name: str) -> Definition:
    """An experiment by its name, or by the path of one's own file."""
    path = Path(name) if name.endswith(".toml") else shelf() / f"{name}.toml"
    if not name.endswith(".toml"):
        known = sorted(path.stem for path in shelf().glob("*.toml"))
        if name not in known:
            hint = registry.nearest(name, known)
            raise InputError(f"experiment {registry.short(name)} is not known{hint}")
    if path.stem == "runs":
        raise InputError(f"{path}: name it otherwise: the folder `runs` is that of all runs")
    values = {**load(path), "name": path.stem, "folder": path.parent}
    try:
        found = Definition.model_validate(values)
    except ValidationError as error:
        raise InputError(f"{path}: {one_line(error, Definition, '')}") from None
    if not found.rows:
        raise InputError(f"{path}: rows = {{}} should name data sets, e.g. mnist = ['hybrid']")
    return found


def cells(definition: Definition, choice: Choice, changes: Mapping[str, Any]) -> list[Cell]:
    """All runs of an experiment, checked; `changes` reach all of them, as --set does."""
    for key, option in OWN.items():
        section, _, rest = key.partition(".")
        table = changes.get(section)
        if table is not None and (not rest or (isinstance(table, Mapping) and rest in table)):
            raise InputError(f"--set {key}: use {option}")
    base = lay_over(load(_config(definition)), definition.settings)
    # runs of experiments with the same settings are the same runs
    setting = definition.name if definition.settings else Path(definition.config).stem
    given = definition.seeds if choice.seeds is None else choice.seeds
    seeds = listed("--seeds", given, read_seed, SEEDS)
    seeds = seeds[:1] if choice.smoke and choice.seeds is None else seeds
    labels = _labels(definition, choice)
    changes = lay_over(changes, {} if choice.rounds is None else {"rounds": choice.rounds})
    found = []
    for data, partition in _rows(definition, choice):
        where = {"data": {"name": data}, "partition": _partition(partition)}
        if choice.smoke:
            where = lay_over(SMOKE, {"partition": where["partition"]})
        for point in _points(definition, choice):
            changed = lay_over(where, changes)
            for key, value in point.items():
                changed = put(changed, key, key.split("."), value)
            for run in plan(base, changed, labels, seeds)[1]:
                of_point = [folder_of(point)] if point else []
                inner = run.path.relative_to("runs")
                path = Path("runs", setting, stem(data), partition, *of_point, inner)
                found.append(Cell(data, partition, point, run, path))
    return found


def _config(definition: Definition) -> Path:
    """The config that an experiment builds on: of the package, or beside the file."""
    own = definition.folder / definition.config
    return own if own.exists() else shelf().parent / "configs" / definition.config


def forms_of(definition: Definition, choice: Choice) -> dict[str, list[str]]:
    """Form -> labels, of those that are run."""
    labels = _labels(definition, choice)
    return {
        form: [label for label in definition.methods[form] if label in labels]
        for form in choice.forms
        if form in definition.methods
    }


def _labels(definition: Definition, choice: Choice) -> list[str]:
    there = [label for form in choice.forms for label in definition.methods.get(form, [])]
    labels = list(dict.fromkeys(there))
    if choice.methods is None:
        return labels
    wanted = listed("--methods", choice.methods, str, f"some of {', '.join(labels)}")
    for word in wanted:
        if not any(word in (label, _stem(label)) for label in labels):
            raise InputError(f"--methods {word}: this experiment has {', '.join(labels)}")
    return [label for label in labels if label in wanted or _stem(label) in wanted]


def _stem(label: str) -> str:
    """The method of a label, whatever its form: `flame` is of flame:published."""
    return label.partition(":")[0]


def _rows(definition: Definition, choice: Choice) -> list[tuple[str, str]]:
    """Data sets and partitions."""
    rows = definition.rows
    if choice.smoke:
        rows = {"mnist_mini": next(iter(rows.values()))[:1]}
    if choice.data is not None:
        if choice.smoke:
            raise InputError("--smoke has data of its own; leave out --datasets")
        wanted = listed("--datasets", choice.data, lambda word: SHORT.get(word, word), "names")
        for name in wanted:
            registry.check("datasets", name, "--datasets")
        fallback = next(iter(rows.values()))
        rows = {name: rows.get(name, fallback) for name in wanted}
    if choice.partitions is None:
        return [(data, name) for data, partitions in rows.items() for name in partitions]
    named = listed("--partitions", choice.partitions, str, "names, e.g. hybrid,q2")
    for name in named:
        registry.check("partitions", _partition(name)["name"], "--partitions")
    # a data set takes those it has in the experiment, all of them if it was named as well
    known = {name for partitions in rows.values() for name in partitions}
    return [
        (data, name)
        for data, partitions in rows.items()
        for name in named
        if choice.data is not None or name in partitions or name not in known
    ]


def _partition(name: str) -> dict[str, Any]:
    """The settings of a partition as experiments name it.

    >>> _partition("q3"), _partition("hybrid")
    ({'name': 'qlabel', 'q': 3}, {'name': 'hybrid'})
    """
    if name[:1] == "q" and name[1:].isdecimal() and len(name) < 10:
        return {"name": "qlabel", "q": int(name[1:])}
    return {"name": name}


def _points(definition: Definition, choice: Choice) -> list[dict[str, Any]]:
    """The points of the grid; without malicious clients there is no attack, whatever its name."""
    axes: Axes = axes_of("", definition.grid, None)
    check_number(axes)
    places = list(product(*axes.values()))
    if choice.smoke:  # one corner of the grid and the opposite one
        places = [places[0], places[-1]]
    points = []
    for values in places:
        point = dict(zip(axes, values, strict=True))
        if point.get("attack.fraction") == 0:
            point["attack.name"] = "none"
        if point not in points:
            points.append(point)
    return points
