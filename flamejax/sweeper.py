"""A grid of settings and seeds: runs of one structure share a program, and then one table, one
picture.

Each run is an ordinary results folder, OUT/runs/KEY=VALUE,.../seedK, and everything shown is read
back from these folders. So a sweep that was interrupted goes on where it stopped.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from flamejax import records, registry
from flamejax.config import Config
from flamejax.errors import InputError
from flamejax.folders import claim
from flamejax.given import take_own
from flamejax.grid import plan
from flamejax.many import Job, carry_out, check_clients
from flamejax.report import sweep_figures as pictures
from flamejax.report.comparison_figures import png
from flamejax.report.sheet import table_csv
from flamejax.swept import Sweep, gather
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
        jobs = [Job(str(run), run.config, root / run.path) for run in runs]
        check = partial(check_clients, data=own.get("data"))
        found, programs, packs = carry_out(jobs, most, own, quiet, check=check)
        result = gather(axes, runs, found, programs)
        if out is not None:
            folders = [[str(runs[number].path) for number in numbers] for numbers in packs]
            _write(root, result, runs[0].config, folders, figure)
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
