"""Carrying out many runs, each in a results folder of its own.

Runs of one structure share a compiled program and go at once; what has ended is not repeated, and
what was interrupted goes on. With several processes, each takes the next runs when it is free.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from flamejax.config import Config
from flamejax.errors import RunError
from flamejax.federation import assemble
from flamejax.folders import clear, ended, outcome, reached
from flamejax.records import Record
from flamejax.report.terminal import announce
from flamejax.together import fit_together, run_together, structure
from flamejax.types import Dataset


class Job(NamedTuple):
    """A run that is to be there at the end."""

    name: str
    config: Config
    folder: Path


class Carried(NamedTuple):
    """What became of jobs: lists in their order."""

    records: list[Record]
    programs: list[int]  # equal for runs of one structure
    packs: list[list[int]]  # numbers of jobs that were carried out at once, this time


Runner = Callable[[Sequence[Job], bool], list[RunError | None]]  # of a pack; quiet or not


def carry_out(
    jobs: Sequence[Job],
    most: int | None = None,
    own: Mapping[str, Any] | None = None,
    quiet: bool = False,
    processes: int = 1,
    check: Callable[[Sequence[Config]], None] | None = None,
) -> Carried:
    """Do what is to do. most: runs at once, by default as many as fit in memory; own: one's data
    and model; check: what is looked at before the first one starts, given the configs to do."""
    own = own or {}
    found = [ended(job.config, job.folder) for job in jobs]  # before the first one starts
    todo = [number for number, record in enumerate(found) if record is None]
    if check:
        check([jobs[number].config for number in todo])
    shapes = [structure(job.config) for job in jobs]
    rounds = {number: reached(jobs[number].config, jobs[number].folder) for number in todo}
    packs = _packs(jobs, shapes, rounds, most, own)
    if not quiet:
        print(outline(len(jobs), [shapes[n] for n in todo], packs), file=sys.stderr)

    def begin(numbers: Sequence[int]) -> list[Job]:
        pack = [jobs[number] for number in numbers]
        _announce(pack, found, quiet)
        if not rounds[numbers[0]]:
            for job in pack:
                clear(job.folder)
        return pack

    def end(numbers: Sequence[int], failures: Sequence[RunError | None]) -> None:
        for number, failure in zip(numbers, failures, strict=True):
            found[number] = outcome(jobs[number].folder, failure)

    try:
        if processes == 1:
            for numbers in packs:
                end(numbers, _run_pack(begin(numbers), own, quiet))
        elif packs:
            from flamejax.processes import share_out

            share_out(packs, begin, end, min(processes, len(packs)))
    except KeyboardInterrupt:
        done = sum(ended(job.config, job.folder) is not None for job in jobs)
        raise KeyboardInterrupt(f"{done} of {len(jobs)} runs are done") from None
    order = {shape: number for number, shape in enumerate(dict.fromkeys(shapes))}
    records = [record for record in found if record is not None]
    return Carried(records, [order[shape] for shape in shapes], packs)


def check_clients(configs: Sequence[Config], data: Dataset | None = None) -> None:
    """Refuse data and partitions that cannot be had before the first run, not at their turn."""
    kinds = {c.model_dump_json(include={"data", "partition", "attack"}): c for c in configs}
    for config in kinds.values():
        assemble(config, data)


def _run_pack(pack: Sequence[Job], own: Mapping[str, Any], quiet: bool) -> list[RunError | None]:
    return run_together([job.config for job in pack], [job.folder for job in pack], quiet, **own)


def _packs(
    jobs: Sequence[Job],
    shapes: Sequence[str],
    rounds: Mapping[int, int],
    most: int | None,
    own: Mapping[str, Any],
) -> list[list[int]]:
    """Which runs are carried out at once: of one structure, from the same round on, and of those
    about equally many. rounds: those from which the runs that are to do go on."""
    groups: dict[tuple[str, int], list[int]] = {}
    for number, start in rounds.items():
        groups.setdefault((shapes[number], start), []).append(number)
    packs = []
    for group in groups.values():
        limit = most or (fit_together(jobs[group[0]].config, **own) if len(group) > 1 else 1)
        size = -(-len(group) // -(-len(group) // limit))
        packs += [group[start : start + size] for start in range(0, len(group), size)]
    return packs


def outline(runs: int, shapes: Sequence[str], packs: Sequence[Sequence[int]]) -> str:
    """What is to be done, in one line; shapes: those of the runs that are to do."""
    said = f"{runs} run{'s' * (runs > 1)}"
    if len(shapes) < runs:
        said += f", {runs - len(shapes) if shapes else 'all'} of them done already"
    if not shapes:
        return said
    sizes = Counter(shapes).values()
    least, most = min(sizes), max(sizes)
    each = " each" if len(sizes) > 1 else ""
    share = f"{most} run{'s' * (most > 1)}{each}" if least == most else f"{least} to {most} runs"
    said += f": {len(sizes)} program{'s' * (len(sizes) > 1)} for {share}"
    return said + (f", {max(map(len, packs))} at a time" if len(packs) > len(sizes) else "")


def _announce(pack: Sequence[Job], found: Iterable[Record | None], quiet: bool) -> None:
    there = list(found)
    done = sum(record is not None for record in there)
    what = f"run {done + 1}" if len(pack) == 1 else f"runs {done + 1} to {done + len(pack)}"
    announce(what, done, len(there), pack[0].name if len(pack) == 1 else "", quiet)
