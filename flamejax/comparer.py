"""Several methods on the same clients and seeds: one table, one picture of curves, one scatter.

Each run is an ordinary results folder, OUT/runs/LABEL/[rateR/]seedK, and everything shown is read
back from these folders. So a comparison that was interrupted goes on where it stopped.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from flamejax import records
from flamejax.comparison import Comparison, gather
from flamejax.config import Config
from flamejax.errors import RunError
from flamejax.folders import claim, clear, ended, outcome, reached
from flamejax.given import take_own
from flamejax.plan import Run, plan
from flamejax.records import Record
from flamejax.report import comparison_figures as pictures
from flamejax.report.sheet import table_csv
from flamejax.report.terminal import announce
from flamejax.runner import run as run_one
from flamejax.types import Dataset, Model

METHODS = ("flame", "pfedme", "ditto", "fedavg", "local")
FILES = ["runs", "table.md", "table.csv", "curves.png", "fairness.png", "comparison.json"]


def compare(
    config: Config | Mapping[str, Any] | str | Path | None = None,
    *,
    methods: str | Sequence[str] = METHODS,
    seeds: str | Iterable[int] | None = None,
    rates: str | Iterable[float] | None = None,
    out: str | Path | None = None,
    quiet: bool = False,
    data: Dataset | Mapping[str, Any] | None = None,
    model: Model | Mapping[str, Any] | None = None,
    **settings: Any,
) -> Comparison:
    """Run every method with every seed on the same clients, and compare.

    methods: each NAME[:PRESET][+AGGREGATOR], as in ``["flame", "flame:published", "fedavg"]``.
    seeds: by default the config's. rates: tried for the methods that have a `global_lr`; the best
    is chosen by the hybrid accuracy on the selection split, last round, mean over seeds.
    out: a folder for everything; without it nothing stays on disk. If it holds a comparison, its
    finished runs are used. quiet: no progress bars.

    config, data, model and settings are those of `flamejax.run`. The config's method settings
    apply to the method it names; ``method={"lr": 0.05}`` to every method that has such a setting.
    """
    own = take_own(data, model, settings)
    return compare_all(config, settings, own, methods, seeds, rates, out, quiet)


def compare_all(
    config: Config | Mapping[str, Any] | str | Path | None,
    changes: Mapping[str, Any],
    own: Mapping[str, Any],
    methods: str | Sequence[str],
    seeds: str | Iterable[int] | None,
    rates: str | Iterable[float] | None,
    out: str | Path | None,
    quiet: bool,
    against: str = "rounds",
) -> Comparison:
    """`compare` with the settings that change the config, and one's own data and model, apart.

    against: what curves.png is drawn against, "rounds" or "bytes" sent.
    """
    base, runs = plan(config, changes, methods, seeds, rates)
    with claim(None if out is None else Path(out), FILES, reusable=not own) as root:
        found = [ended(run.config, root / run.path) for run in runs]  # before the first one starts
        try:
            for number, run in enumerate(runs):
                if found[number] is None:
                    announce(f"run {number + 1}", number, len(runs), str(run), quiet)
                    found[number] = _carry_out(run, root / run.path, own, quiet)
            comparison = gather(runs, [record for record in found if record is not None])
            if out is not None:
                _write(root, comparison, base, against)
        except KeyboardInterrupt:
            done = sum(record is not None for record in found)
            raise KeyboardInterrupt(f"{done} of {len(runs)} runs are done") from None
    return comparison


def _carry_out(run: Run, folder: Path, own: Mapping[str, Any], quiet: bool) -> Record:
    going_on = reached(run.config, folder) > 0
    if not going_on:
        clear(folder)
    failure = None
    try:
        run_one(None if going_on else run.config, out=folder, quiet=quiet, resume=going_on, **own)
    except RunError as error:
        failure = error
    return outcome(folder, failure)


def _write(root: Path, comparison: Comparison, base: Config, against: str) -> None:
    curves = partial(pictures.draw_curves, against=against)
    records.write(root / "table.md", comparison.table().encode())
    records.write(root / "table.csv", table_csv(comparison.rows).encode())
    records.write(root / "curves.png", pictures.png(curves, comparison))
    records.write(root / "fairness.png", pictures.png(pictures.draw_fairness, comparison))
    whole = {
        "about": comparison.about,
        "rows": comparison.rows,
        "rates": comparison.rates,
        "runs": comparison.runs,
        "config": base.model_dump(),
        "environment": records.environment(),
    }
    records.write(root / "comparison.json", (json.dumps(whole, indent=2) + "\n").encode())
