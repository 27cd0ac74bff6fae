"""A folder of many runs: for one process at a time, and taken up again where it was left."""

from __future__ import annotations

import os
import shutil
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flamejax import records
from flamejax.config import Config, make
from flamejax.errors import InputError, RunError
from flamejax.locks import held
from flamejax.records import Record
from flamejax.resuming import earlier

REPORT = "report"  # a report on a folder is put into it


@contextmanager
def claim(out: Path | None, files: Sequence[str], reusable: bool) -> Iterator[Path]:
    """OUT for this process alone, made if need be; without one, a folder that does not stay.

    files: what such a folder holds, "runs" first and last the file that is there when all is done.
    An old folder is taken only if it is reusable.
    """
    if out is None:
        with tempfile.TemporaryDirectory(prefix="flamejax-") as temporary:
            yield Path(temporary)
        return
    there = os.listdir(out) if os.path.isdir(out) and os.access(out, os.W_OK | os.X_OK) else []
    begun = files[0] in there and only(there, [*files, REPORT])  # not just any folder with runs
    if not reusable or not (files[-1] in there or begun):
        records.check_free(out)
    with held(out):
        yield out


def ended(config: Config, folder: Path) -> Record | None:
    """The record of this run if it has ended, finished or diverged; None if it is still to do."""
    record = records.read(folder)
    status = None if record is None else record.summary.get("status")
    if record is not None and status in ("finished", "diverged"):
        if _is_of(record.config, config):
            return record  # to repeat a run that diverged would be to diverge again
        if status == "finished":
            differs = _difference(tomllib.loads(record.config), config.model_dump())
            raise InputError(f"{folder} was run with {differs}; name another --out")
    if folder.exists() and not (folder.is_dir() and only(os.listdir(folder), records.FILES)):
        raise InputError(f"{folder} holds what is not part of a run; name another --out")
    return None


def only(held: Iterable[str], files: Sequence[str]) -> bool:
    """Whether a folder holds nothing but these files and halves of them."""
    return {*held} <= {*files, *map(records.part, files)}


def _is_of(text: str, config: Config) -> bool:
    """Whether a config.toml says this config; keys that are newer than it have their defaults."""
    try:
        passed = text.startswith("#")  # data or a model, from Python
        return not passed and make(tomllib.loads(text)) == config
    except (InputError, ValueError, RecursionError):
        return False


def _difference(old: Mapping[str, Any], new: Mapping[str, Any], where: str = "") -> str:
    for key in {**old, **new}:
        was, now = old.get(key), new.get(key)
        if was != now:
            if isinstance(was, Mapping) and isinstance(now, Mapping):
                return _difference(was, now, f"{where}{key}.")
            return f"{where}{key} = {was}, not {now}"
    return "other settings"


def reached(config: Config, folder: Path) -> int:
    """The round from which an unfinished run can go on; 0 if it has to start again."""
    try:
        found = earlier(folder)
    except InputError:  # nothing, or nothing of use
        return 0
    return found.checkpoint.round if found.checkpoint and _is_of(found.text, config) else 0


def clear(folder: Path) -> None:
    """Take away what a run left that is to start again."""
    for name in records.FILES:
        for path in (folder / name, folder / records.part(name)):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink(missing_ok=True)


def outcome(folder: Path, failure: RunError | None) -> Record:
    """The record of a run that has ended; that it diverged is said there, and others go on."""
    record = records.read(folder)
    if record is None:
        raise failure or RunError(f"{folder} lost its summary.json")
    return record
