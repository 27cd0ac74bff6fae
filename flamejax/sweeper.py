"""A grid of settings and seeds: runs of one structure share a program, and then one table, one
picture.

Each run is an ordinary results folder, OUT/runs/KEY=VALUE,.../seedK, and everything shown is read
back from these folders. So a sweep that was interrupted goes on where it stopped.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from flamejax import records, registry
from flamejax.config import Config
from flamejax.errors import InputError
from flamejax.federation import assemble
from flamejax.folders import claim, clear, ended, outcome, reached
from flamejax.given import take_own
from flamejax.grid import Run, plan
from flamejax.records import Record
from flamejax.report import sweep_figures as pictures
from flamejax.report.comparison_figures import png
from flamejax.report.sheet import table_csv
from flamejax.report.terminal import announce
from flamejax.swept import Sweep, gather
from flamejax.together import fit_together, run_together, structure
from flamejax.types import Dataset, Model

FILES = ["runs", "table.md", "table.csv", "heatmap.png", "sweep.json"]


def sweep(
    config: Config | Mapping[str, Any] | str | Path | None = None,
    *,
    grid: Mapping[str, Any] | Sequence[str] | None = None,
    seeds: str | Iterable[int] | None = None,
    pack: int | str = "auto",
    out: str | Path | None = None,
    quiet: bool = False,
    data: Dataset | Mapping[str, Any] | None = None,
    model: Model | Mapping[str, Any] | None = None,
    **settings: Any,
) -> Sweep:
    """Run every point of a grid with every seed.

    grid: key paths of a config and the values to try, as in ``{"method.lam": [0.1, 1, 10]}``.
    seeds: by default the config's. pack: how many runs are carried out at once, at most; "auto" is
    as many as fit in memory. out: a folder for everything; without it nothing stays on disk. If it
    holds a sweep, its finished runs are used. quiet: no progress bars.

    config, data, model and settings are those of `flamejax.run`; the config may hold `seeds` and a
    table `grid`, over which those given here are laid.
    """
    own = take_own(data, model, settings)
    return sweep_all(config, settings, own, grid, seeds, pack, out, quiet)


def sweep_all(
    config: Config | Mapping[str, Any] | str | Path | None,
    changes: Mapping[str, Any],
    own: Mapping[str, Any],
    grid: Mapping[str, Any] | Sequence[str] | None,
    seeds: str | Iterable[int] | None,
    pack: int | str,
    out: str | Path | None,
    quiet: bool,
    figure: str | None = None,
) -> Sweep:
    """`sweep` with the settings that change the config, and one's own data and model, apart.

    figure: which model's figures heatmap.png shows, "pm", "gm" or "hm".
    """
    most = _most(pack)
    axes, runs = plan(config, changes, grid, seeds)
    with claim(None if out is None else Path(out), FILES, reusable=not own) as root:
        found = [ended(run.config, root / run.path) for run in runs]  # before the first one starts
        todo = [number for number, record in enumerate(found) if record is None]
        _check_clients([runs[number].config for number in todo], own.get("data"))
        shapes = [structure(run.config) for run in runs]
        rounds = {number: reached(runs[number].config, root / runs[number].path) for number in todo}
        packs = _packs(runs, shapes, rounds, most, own)
        if not quiet:
            print(_outline(len(runs), [shapes[n] for n in todo], packs), file=sys.stderr)
        try:
            for numbers in packs:
                pack_runs = [runs[number] for number in numbers]
                _announce(pack_runs, found, quiet)
                done = _carry_out(pack_runs, root, rounds[numbers[0]] > 0, own, quiet)
                for number, record in zip(numbers, done, strict=True):
                    found[number] = record
            order = {shape: number for number, shape in enumerate(dict.fromkeys(shapes))}
            programs = [order[shape] for shape in shapes]
            result = gather(axes, runs, [r for r in found if r is not None], programs)
            if out is not None:
                folders = [[str(runs[number].path) for number in numbers] for numbers in packs]
                _write(root, result, runs[0].config, folders, figure)
        except KeyboardInterrupt:
            number = sum(ended(run.config, root / run.path) is not None for run in runs)
            raise KeyboardInterrupt(f"{number} of {len(runs)} runs are done") from None
    return result


def _most(pack: Any) -> int | None:
    """How many runs at once, at most; None is as many as fit."""
    if pack == "auto":
        return None
    try:
        most = int(pack) if isinstance(pack, int | str) else 0
    except ValueError:
        most = 0
    if most < 1:
        raise InputError(f"--pack {registry.short(pack)} should be auto or a whole number above 0")
    return most


def _check_clients(configs: Sequence[Config], data: Dataset | None) -> None:
    """Refuse data and partitions that cannot be had before the first run, not at their turn."""
    kinds = {c.model_dump_json(include={"data", "partition", "attack"}): c for c in configs}
    for config in kinds.values() if len(kinds) > 1 else ():
        assemble(config, data)


def _packs(
    runs: Sequence[Run],
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
        limit = most or (fit_together(runs[group[0]].config, **own) if len(group) > 1 else 1)
        size = -(-len(group) // -(-len(group) // limit))
        packs += [group[start : start + size] for start in range(0, len(group), size)]
    return packs


def _outline(runs: int, shapes: Sequence[str], packs: Sequence[Sequence[int]]) -> str:
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


def _announce(pack: Sequence[Run], found: Sequence[Record | None], quiet: bool) -> None:
    done = sum(record is not None for record in found)
    what = f"run {done + 1}" if len(pack) == 1 else f"runs {done + 1} to {done + len(pack)}"
    announce(what, done, len(found), str(pack[0]) if len(pack) == 1 else "", quiet)


def _carry_out(
    pack: Sequence[Run], root: Path, going_on: bool, own: Mapping[str, Any], quiet: bool
) -> list[Record]:
    folders = [root / run.path for run in pack]
    for folder in folders if not going_on else ():
        clear(folder)
    failures = run_together([run.config for run in pack], folders, quiet, **own)
    return [outcome(*ending) for ending in zip(folders, failures, strict=True)]


def _write(
    root: Path, found: Sweep, first: Config, packs: list[list[str]], figure: str | None
) -> None:
    records.write(root / "table.md", found.table().encode())
    records.write(root / "table.csv", table_csv(found.rows).encode())
    if pictures.varying(found):
        records.write(root / "heatmap.png", png(partial(pictures.draw, model=figure), found))
    whole = {
        "about": found.about,
        "grid": found.grid,
        "seeds": found.about["seeds"],
        "rows": found.rows,
        "runs": found.runs,
        "packs": packs,  # folders of runs that were carried out at once, by the last command
        "config": first.model_dump(),  # of the first run
        "environment": records.environment(),
    }
    records.write(root / "sweep.json", (json.dumps(whole, indent=2) + "\n").encode())
