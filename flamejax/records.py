"""The results folder: what a run leaves behind.

config.toml       complete; rerunning it repeats the run
metrics.jsonl     a line per evaluated round, no clock in it
timings.jsonl     the clock
clients.npz       per-client figures of the last and the best round
environment.json  versions, backend, commit
curves.png        accuracy and loss against rounds, or bytes sent
theory.jsonl      with record.theory: the Lagrangian and what belongs to it, a line per round,
theory.png        and their picture
tensorboard/      with record.log: events for TensorBoard,
wandb/            and what Weights & Biases keeps
profile/          with --profile: a trace of one round, and what its stages cost
checkpoints/      what the run needs to go on
summary.json      written last: a folder without it is not a result
"""

from __future__ import annotations

import io
import json
import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from flamejax.errors import InputError, WriteError

CHECKPOINTS = "checkpoints"
# not left by every run
SOMETIMES = ["theory.jsonl", "theory.png", "tensorboard", "wandb", CHECKPOINTS]
FILES = ["config.toml", "metrics.jsonl", "timings.jsonl", "clients.npz", "environment.json"]
FILES += ["curves.png", "summary.json", *SOMETIMES]


class Folder:
    """A new results folder. Files appear whole or not at all, logs a line at a time."""

    def __init__(self, path: Path, config_toml: str) -> None:
        """The caller has the folder for itself."""
        check_free(path)
        self.path = path
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise _failed(path, error) from None
        write(path / "config.toml", config_toml.encode())  # whole: --resume goes by it

    @classmethod
    def reopen(cls, path: Path) -> Folder:
        """The folder of a run that goes on."""
        folder = cls.__new__(cls)
        folder.path = path
        try:
            (path / "summary.json").unlink(missing_ok=True)  # it is not a result yet
        except OSError as error:
            raise _failed(path, error) from None
        return folder

    def write_lines(self, name: str, rows: Iterable[Mapping[str, Any]]) -> None:
        """All lines of a .jsonl file."""
        self.write(name, _lines(rows).encode())

    def append(self, name: str, *rows: Mapping[str, Any]) -> None:
        """Lines at the end of a .jsonl file."""
        try:
            with (self.path / name).open("a", encoding="utf-8") as file:
                file.write(_lines(rows))
        except OSError as error:
            raise WriteError(str(_failed(self.path / name, error))) from None

    def write(self, name: str, content: bytes) -> None:
        try:
            write(self.path / name, content)
        except InputError as error:
            raise WriteError(str(error)) from None

    def write_json(self, name: str, content: Mapping[str, Any]) -> None:
        self.write(name, (json.dumps(content, indent=2, allow_nan=False) + "\n").encode())

    def write_arrays(self, name: str, arrays: Mapping[str, np.ndarray]) -> None:
        buffer = io.BytesIO()
        np.savez_compressed(buffer, allow_pickle=False, **arrays)
        self.write(name, buffer.getvalue())


def _lines(rows: Iterable[Mapping[str, Any]]) -> str:
    return "".join(json.dumps(row, allow_nan=False) + "\n" for row in rows)


def write(path: Path, content: bytes) -> None:
    """A file that appears whole or not at all."""
    half = path.with_name(part(path.name))
    try:
        half.write_bytes(content)
        os.replace(half, path)
    except OSError as error:
        half.unlink(missing_ok=True)
        raise _failed(path, error) from None


def part(name: str) -> str:
    """What a file is called while it is being written."""
    return f".{name}.part"


class Record(NamedTuple):
    """A results folder, read back."""

    config: str  # config.toml as it stands
    summary: dict[str, Any]
    rows: list[dict[str, Any]]  # the lines of metrics.jsonl; none if nothing was measured


def read(path: Path) -> Record | None:
    """What a run left behind; None without a summary.json, the mark of a run that ended."""
    try:
        if not (path / "summary.json").exists():
            return None
        config, summary = ((path / n).read_text("utf-8") for n in ("config.toml", "summary.json"))
        metrics = path / "metrics.jsonl"
        lines = metrics.read_text("utf-8").splitlines() if metrics.exists() else []
        return Record(config, json.loads(summary), [json.loads(line) for line in lines])
    except (OSError, ValueError, RecursionError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"{path}: cannot read these results: {reason}") from None


def check_free(path: Path) -> None:
    """Refuse a folder that already holds something or cannot be made, before the run starts."""
    try:
        if path.exists() and (not path.is_dir() or {*os.listdir(path)} - {part("config.toml")}):
            raise InputError(
                f"--out {path} already exists and is not an empty folder; name another"
            )
        ground = next(p for p in (path, *path.absolute().parents) if p.exists())
    except OSError as error:
        raise _failed(path, error) from None
    if not ground.is_dir():
        raise InputError(f"--out: cannot write {path}: {ground} is not a folder")
    if not os.access(ground, os.W_OK | os.X_OK):
        raise InputError(f"--out: cannot write {path}: no permission to write in {ground}")


def default_path(stem: str) -> Path:
    """runs/STEM, or the first free runs/STEM-2, runs/STEM-3, ..."""
    base = Path("runs") / stem
    path, number = base, 1
    while os.path.lexists(path):
        number += 1
        path = base.with_name(f"{stem}-{number}")
    return path


def environment() -> dict[str, Any]:
    """What produced a result. Reads the backend, so call it when JAX is running."""
    import jax

    packages = ("flamejax", "jax", "jaxlib", "flax", "optax", "numpy")
    return {
        "versions": {name: _version(name) for name in packages},
        "python": platform.python_version(),
        "platform": platform.platform(),
        "backend": jax.default_backend(),
        "devices": [device.device_kind for device in jax.devices()],
        "cores": os.cpu_count(),
        "commit": _commit(),
        "command": shlex.join(sys.argv[1:]) if Path(sys.argv[0]).stem == "flamejax" else None,
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _commit() -> str | None:
    """The commit of a source checkout; None for an installed package."""
    root = Path(__file__).resolve().parent.parent
    if not (root / ".git").exists():
        return None
    try:
        git = ["git", "-C", str(root), "rev-parse", "HEAD"]
        return subprocess.run(git, capture_output=True, text=True, timeout=5).stdout.strip() or None
    except (OSError, subprocess.TimeoutExpired):
        return None


def _failed(path: Path, error: OSError) -> InputError:
    return InputError(f"--out: cannot write {path}: {error.strerror or error}")
