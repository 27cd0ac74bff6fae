"""Several methods on the same clients and seeds: one table, one picture of curves, one scatter.

Each run is an ordinary results folder, OUT/runs/LABEL/[rateR/]seedK, and everything shown is read
back from these folders. So a comparison that was interrupted goes on where it stopped.
"""

from __future__ import annotations

import json
import os
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from flamejax import records
from flamejax.comparison import Comparison, gather
from flamejax.config import Config
from flamejax.errors import InputError, RunError
from flamejax.plan import Run, plan
from flamejax.records import Record
from flamejax.report import comparison_figures as pictures
from flamejax.report.comparison import announce, table_csv
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
    own: dict[str, Any] = {}
    for name, value in (("data", data), ("model", model)):
        if isinstance(value, Mapping):
            settings[name] = value
        elif value is not None:
            own[name] = value
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
    with _folder(None if out is None else Path(out), reusable=not own) as root:
        found = [_finished(run, root / run.path) for run in runs]  # before the first one starts
        try:
            for number, run in enumerate(runs):
                if found[number] is None:
                    announce(str(run), number, len(runs), quiet)
                    found[number] = _carry_out(run, root / run.path, own, quiet)
            comparison = gather(runs, [record for record in found if record is not None])
            if out is not None:
                _write(root, comparison, base, against)
        except KeyboardInterrupt:
            done = sum(record is not None for record in found)
            raise KeyboardInterrupt(f"{done} of {len(runs)} runs are done") from None
    return comparison


@contextmanager
def _folder(out: Path | None, reusable: bool) -> Iterator[Path]:
    """OUT for this process alone, made if need be; without one, a folder that does not stay."""
    if out is None:
        with tempfile.TemporaryDirectory(prefix="flamejax-") as temporary:
            yield Path(temporary)
        return
    held = os.listdir(out) if os.path.isdir(out) and os.access(out, os.W_OK | os.X_OK) else []
    begun = "runs" in held and _only(held, FILES)  # and not just any folder with runs in it
    if not reusable or not ("comparison.json" in held or begun):
        records.check_free(out)
    made = [path for path in (out, *out.absolute().parents) if not path.exists()]
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--out: cannot write {out}: {error.strerror}") from None
    with _alone(out):
        try:
            yield out
        finally:
            for path in made:
                with suppress(OSError):  # only what stayed empty goes
                    path.rmdir()


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Two comparisons in one folder would take each other's runs for unfinished ones."""
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"--out {folder} is in use by another comparison") from None
        yield
    finally:
        os.close(handle)


def _finished(run: Run, folder: Path) -> Record | None:
    """The run's record if it is there; None if it is still to do."""
    record = records.read(folder)
    if record is None or record.summary.get("status") != "finished":
        if folder.exists() and not (folder.is_dir() and _only(os.listdir(folder), records.FILES)):
            raise InputError(f"{folder} holds what is not part of a run; name another --out")
        return None
    if record.config != run.config.to_toml():
        differs = _difference(tomllib.loads(record.config), run.config.model_dump())
        raise InputError(f"{folder} was run with {differs}; name another --out")
    return record


def _only(held: Iterable[str], files: Sequence[str]) -> bool:
    """Whether a folder holds nothing but these files and halves of them."""
    return {*held} <= {*files, *map(records.part, files)}


def _difference(old: Mapping[str, Any], new: Mapping[str, Any], where: str = "") -> str:
    for key in {**old, **new}:
        was, now = old.get(key), new.get(key)
        if was != now:
            if isinstance(was, Mapping) and isinstance(now, Mapping):
                return _difference(was, now, f"{where}{key}.")
            return f"{where}{key} = {was}, not {now}"
    return "other settings"


def _carry_out(run: Run, folder: Path, own: Mapping[str, Any], quiet: bool) -> Record:
    for name in records.FILES:  # of an unfinished run
        (folder / name).unlink(missing_ok=True)
        (folder / records.part(name)).unlink(missing_ok=True)
    failure = None
    try:
        run_one(run.config, out=folder, quiet=quiet, **own)
    except RunError as error:  # its summary says so; the others go on
        failure = error
    record = records.read(folder)
    if record is None:
        raise failure or RunError(f"{folder} lost its summary.json")
    return record


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
