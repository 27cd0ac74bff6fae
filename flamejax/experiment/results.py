"""What an experiment found: a comparison of methods for every data set, partition and point.

The folder of an experiment holds experiment.json, which says which runs belong to it. Their figures
are read from the runs themselves, so that an unfinished experiment can be looked at as well.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from flamejax import records
from flamejax.comparison import Comparison, gather
from flamejax.config import load, make
from flamejax.errors import InputError
from flamejax.experiment.definition import Cell
from flamejax.grid import assignment
from flamejax.plan import Run
from flamejax.records import Record

FILE = "experiment.json"


class Group(NamedTuple):
    """Methods on the same clients."""

    data: str  # "mnist", ...
    partition: str  # as experiments name it: "hybrid", "q2", ...
    point: dict[str, Any]  # key path -> value in a grid, e.g. {"method.lam": 3.0}; may be empty
    comparison: Comparison  # a row and curves for each method


class Experiment(NamedTuple):
    """What an experiment found out.

    kind: what it is about, and so how it is shown: "table", "curves", "fairness", "robustness" or
    "trend". forms: form -> labels of the comparisons' rows that belong to it; a method with one
    form only (multi-Krum) belongs to both. missing: names of runs that are not done.
    about: "command", "seconds" (of all runs), "environment", "rounds", "config" (its base).
    """

    name: str
    title: str
    kind: str
    forms: dict[str, list[str]]
    groups: list[Group]
    missing: list[str]
    about: dict[str, Any]


def write(folder: Path, heading: Mapping[str, Any], cells: Sequence[Cell]) -> None:
    """experiment.json: the heading, and which runs belong to the experiment; those that are there
    from an earlier command still do."""
    whole: dict[str, Any] = {**heading, "groups": []}
    if (folder / FILE).exists():
        whole = _parse(folder)
        for form, labels in heading["forms"].items():
            whole["forms"][form] = list(dict.fromkeys([*whole["forms"].get(form, []), *labels]))
        whole["about"] = heading["about"]
    groups = {_key(group): group for group in whole["groups"]}
    for cell in cells:
        where = {"data": cell.data, "partition": cell.partition, "point": cell.point, "runs": []}
        run = {
            "label": cell.run.label,
            "seed": cell.run.config.seed,
            "folder": (Path("..") / cell.path).as_posix(),
        }
        runs = groups.setdefault(_key(where), where)["runs"]
        if run not in runs:
            runs.append(run)
    for group in groups.values():  # a method's runs stand together
        labels = list(dict.fromkeys(run["label"] for run in group["runs"]))
        group["runs"].sort(key=lambda run, order=labels: (order.index(run["label"]), run["seed"]))
    folder.mkdir(parents=True, exist_ok=True)
    whole["groups"] = list(groups.values())
    records.write(folder / FILE, (json.dumps(whole, indent=1) + "\n").encode())


def _key(group: Mapping[str, Any]) -> str:
    return json.dumps([group["data"], group["partition"], group["point"]])


def _parse(folder: Path) -> Any:
    path = folder / FILE
    try:
        return json.loads(path.read_text("utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not an experiment of flamejax: {error}"[:300]) from None


def read(folder: Path) -> Experiment:
    """What is there of an experiment."""
    whole = _parse(folder)
    try:
        heading = {key: whole[key] for key in ("name", "title", "kind", "forms", "about")}
        parts = [
            ((part["data"], part["partition"], part["point"]), part["runs"])
            for part in whole["groups"]
        ]
        groups, missing, seconds = [], [], 0.0
        for where, listed in parts:
            runs, found = [], []
            for run in listed:
                record = _record(folder, run["folder"])
                if record is None:
                    missing.append(_name(*where, run["label"], run["seed"]))
                    continue
                config = make(load(folder / run["folder"] / "config.toml"))
                runs.append(Run(run["label"], None, config))
                found.append(record)
                seconds += record.summary["seconds"]
            if runs:
                groups.append(Group(*where, gather(runs, found)))
        about = {**heading.pop("about"), "seconds": seconds}
        return Experiment(**heading, groups=groups, missing=missing, about=about)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise InputError(
            f"{folder / FILE}: not an experiment of flamejax: {error!r}"[:300]
        ) from None


def _record(folder: Path, inner: str) -> Record | None:
    """A run of an experiment, if it is done. It lies below the folder of all experiments."""
    at = (folder / inner).resolve()
    if folder.resolve().parent not in at.parents:
        raise InputError(f"{folder / FILE}: {inner} lies outside of {folder.parent}")
    record = records.read(at)
    return record if record and record.summary["status"] in ("finished", "diverged") else None


def _name(data: str, partition: str, point: Mapping[str, Any], label: str, seed: int) -> str:
    return ", ".join([data, partition, *map(assignment, point.items()), label, f"seed {seed}"])
