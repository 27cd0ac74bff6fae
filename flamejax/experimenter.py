"""Carrying out an experiment: its runs, and then its tables, pictures and verdicts.

All experiments below one OUT share OUT/runs, each an ordinary results folder; what one of them has
run, another that needs it finds there. OUT/NAME/experiment.json says which runs belong to NAME, and
OUT/NAME/report is made of them. Figures are read from the runs, so that an unfinished experiment
can be looked at as well.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from flamejax import records
from flamejax.catalog import KNOWN
from flamejax.config import Config
from flamejax.errors import InputError
from flamejax.experiment import estimate
from flamejax.experiment.definition import Cell, Choice, cells, define, forms_of
from flamejax.folders import claim, ended, reached
from flamejax.many import Job, carry_out, check_clients
from flamejax.readback import EXPERIMENT as FILE
from flamejax.readback import Found, experiment_file, read
from flamejax.reporter import write_report


class Plan(NamedTuple):
    """An experiment before it is run."""

    heading: dict[str, Any]  # of experiment.json
    cells: list[Cell]


def prepare(name: str, choice: Choice, changes: Mapping[str, Any]) -> Plan:
    """The runs of an experiment; data that are not there are refused."""
    definition = define(name)
    found = cells(definition, choice, changes)
    if not found:
        raise InputError(f"experiment {name} has no run with these --datasets and --partitions")
    _check_data([cell.run.config for cell in found])
    heading = {
        "name": definition.name,
        "title": definition.title + " (smoke: not a result)" * choice.smoke,
        "kind": definition.kind,
        "forms": forms_of(definition, choice),
        "about": {"config": definition.config, "rounds": found[0].run.config.rounds},
    }
    return Plan(heading, found)


def experiment(plan: Plan, out: Path, quiet: bool = False, processes: int = 1) -> Found:
    """Run what is still to run below `out`, report on it, and read it back."""
    folder, heading, todo = out / plan.heading["name"], plan.heading, jobs(plan, out)
    with claim(out, ["runs", *_before(out), folder.name], reusable=True):
        check_clients([job.config for job in todo if ended(job.config, job.folder) is None])
        _write(folder, heading, plan.cells)
        carry_out(todo, quiet=quiet, processes=processes)
        about = {**heading["about"], "environment": records.environment()}
        _write(folder, {**heading, "about": about}, plan.cells)
        write_report(folder)
        (found,) = read(folder)
    return found


def _write(folder: Path, heading: Mapping[str, Any], cells: Sequence[Cell]) -> None:
    """experiment.json: the heading, and which runs belong to the experiment; those that are there
    from an earlier command still do."""
    whole: dict[str, Any] = {**heading, "groups": []}
    if (folder / FILE).exists():
        whole = experiment_file(folder).model_dump()
        for form, labels in heading["forms"].items():
            whole["forms"][form] = list(dict.fromkeys([*whole["forms"].get(form, []), *labels]))
        whole["about"] = heading["about"]
    groups = {_key(group): group for group in whole["groups"]}
    for cell in cells:
        where = {"data": cell.data, "partition": cell.partition, "point": cell.point, "runs": []}
        place = (Path("..") / cell.path).as_posix()
        runs = groups.setdefault(_key(where), where)["runs"]
        if place not in [run["folder"] for run in runs]:
            seed = cell.run.config.seed
            runs.append({"label": cell.run.label, "seed": seed, "folder": place})
    for group in groups.values():  # a method's runs stand together
        labels = list(dict.fromkeys(run["label"] for run in group["runs"]))
        group["runs"].sort(key=lambda run, order=labels: (order.index(run["label"]), run["seed"]))
    folder.mkdir(parents=True, exist_ok=True)
    whole["groups"] = list(groups.values())
    records.write(folder / FILE, (json.dumps(whole, indent=1) + "\n").encode())


def _key(group: Mapping[str, Any]) -> str:
    return json.dumps([group["data"], group["partition"], group["point"]])


def outlook(plan: Plan, out: Path, processes: int) -> str:
    """What would be run, and about how long that takes, line by line."""
    todo = jobs(plan, out)
    done = [ended(job.config, job.folder) for job in todo]
    times = estimate.seconds(todo, done)
    lines, whole = [], 0.0
    for job, record, time in zip(todo, done, times, strict=True):
        if record is not None:
            lines.append(f"{record.summary['status']:>9}  {job.name}")
            continue
        start = reached(job.config, job.folder)
        time *= 1 - start / job.config.rounds
        going_on = f", goes on after round {start}" if start else ""
        lines.append(f"{estimate.text(time):>9}  {job.name}{going_on}")
        whole += time
    left = sum(record is None for record in done)
    lines.append(f"{len(todo)} runs, {len(todo) - left} done, {left} to do")
    if left:
        lines[-1] += f": about {estimate.text(whole)} on this machine, half to twice that"
    if left and processes > 1:
        lines.append(f"--jobs {processes}: side by side, which mostly helps with many cores")
    return "\n".join(lines)


def jobs(plan: Plan, out: Path) -> list[Job]:
    return [Job(str(cell), cell.run.config, out / cell.path) for cell in plan.cells]


def _before(out: Path) -> list[str]:
    """Folders of experiments that were run there before."""
    with suppress(OSError):
        return [name for name in os.listdir(out) if (out / name / FILE).exists()]
    return []


def _check_data(configs: Sequence[Config]) -> None:
    """Refuse data sets that are not there before the first run, not at their turn."""
    from flamejax.datasets import store

    wanted = list(dict.fromkeys(c.data.name for c in configs if not c.data.dir))
    absent = [name for name in wanted if name in KNOWN and not _here(name, store)]
    if absent:
        there = [name for name in wanted if name not in absent]
        hint = f"; or --datasets {','.join(there)}, which are here" if there else ""
        how = f"flamejax data list says how to get {'it' if len(absent) == 1 else 'them'}"
        raise InputError(f"--datasets: {', '.join(absent)} not here: {how}{hint}")


def _here(name: str, store: Any) -> bool:
    return name == "mnist_mini" or store.find(name) is not None
