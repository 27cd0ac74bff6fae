"""Decoded data sets, kept in the user's cache folder.

A set is one uncompressed .npz file in `folder()`, named by a digest of what it was
decoded from, of the loader and of the format of these files. An import also leaves a pointer
`NAME.json`, by which the set is found without its source. All of it may be deleted at any time.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from flamejax import cache
from flamejax.datasets import npz
from flamejax.datasets.archive import BROKEN, read_file, refusal, shown
from flamejax.errors import InputError
from flamejax.types import Dataset

FORMAT = 1  # of the files; another number and older files are not found
NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,63}", re.ASCII)
KEYS = ("images", "labels", "writers", "class_names", "mean", "std", "meta")


class Kept(NamedTuple):
    """An imported data set."""

    name: str
    path: Path  # of the decoded file
    source: str  # what it was imported from
    digest: str  # sha256 of the source's content
    samples: int
    shape: tuple[int, ...]  # of one sample
    classes: int
    bytes: int  # of the decoded file
    writers: int | None = None  # how many, when known


def folder() -> Path:
    return cache.folder() / "data"


def cached(name: str, source: Path, digest: str, build: Callable[[], Dataset]) -> Dataset:
    """The set decoded earlier from content of this digest, or else decoded now and stored."""
    path = place(name, digest)
    if path.exists():
        try:
            return read(path)
        except InputError as error:
            say(f"{error}; decoding {source} again")
    data = build()
    try:
        write(path, data, {"name": name, "source": str(source), "digest": digest})
    except OSError as error:
        say(f"{path}: not stored, so the next start decodes again: {error.strerror or error}")
    return data


def keep(name: str, data: Dataset, source: Path | str, digest: str, kind: str = "") -> Kept:
    """Store a set and remember it by its name; `kind` is what its source is read as, if another."""
    if not NAME.fullmatch(name):
        raise InputError(f"'{shown(name)}' cannot name a data set; use letters, digits, - and _")
    path = place(kind or name, digest)
    try:
        if not _intact(path):
            write(path, data, {"name": kind or name, "source": str(source), "digest": digest})
        new = Kept(
            name=name,
            path=path,
            source=str(source),
            digest=digest,
            samples=len(data.images),
            shape=data.images.shape[1:],
            classes=data.classes,
            bytes=path.stat().st_size,
            writers=None if data.writers is None else len(np.unique(data.writers)),
        )
        content = {**new._asdict(), "path": None, "file": path.name}
        _write(_pointer(name), lambda file: file.write(json.dumps(content, indent=2).encode()))
    except OSError as error:
        raise refusal(path, f"cannot be written: {error.strerror or error}") from None
    return new


def kept() -> list[Kept]:
    """All imports, by name."""
    found = []
    for pointer in sorted(folder().glob("*.json")):
        try:
            one = find(pointer.stem)
        except InputError as error:
            say(str(error))
            continue
        if one is not None:
            found.append(one)
    return found


def find(name: str) -> Kept | None:
    """The import of that name, if there is one."""
    pointer = _pointer(name)
    if not NAME.fullmatch(name) or not pointer.is_file():
        return None
    try:
        content = json.loads(read_file(pointer, 2**20))
        file = content.pop("file")
        one = Kept(**{**content, "path": folder() / file, "shape": tuple(content["shape"])})
        counts = (one.samples, one.classes, one.bytes, *one.shape)
        texts = (one.name, one.source, one.digest, file)
        whole = all(type(n) is int for n in counts) and all(type(t) is str for t in texts)
        if not whole or one.name != name or Path(file).name != file:
            raise ValueError
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise refusal(pointer, "damaged; import the data again") from None
    return one if one.path.is_file() else None


def forget(name: str) -> None:
    """Remove an import, and its file unless another import has the same."""
    one = find(name)
    try:
        _pointer(name).unlink(missing_ok=True)
        if one is not None and all(other.path != one.path for other in kept()):
            one.path.unlink(missing_ok=True)
    except OSError as error:
        raise refusal(_pointer(name), f"cannot be removed: {error.strerror or error}") from None


def place(name: str, digest: str) -> Path:
    """Where the set decoded from content of this digest is stored."""
    key = hashlib.sha256(f"{FORMAT} {name} {digest}".encode()).hexdigest()
    return folder() / f"{name}-{key[:16]}.npz"


def read(path: Path) -> Dataset:
    """A stored set; a file that is damaged in any way is an InputError."""
    arrays = npz.read(path, KEYS)
    try:
        classes = json.loads(str(arrays.pop("meta")))["classes"]
        data = npz.assemble(path, arrays)
        if type(classes) is not int or classes < data.classes:
            raise ValueError(f"classes = {classes}")
        return data._replace(classes=classes)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise refusal(path, f"damaged: {error}") from None


def write(path: Path, data: Dataset, meta: dict[str, Any]) -> None:
    """Stream a set to its file, which appears whole or not at all."""
    about = json.dumps({**meta, "format": FORMAT, "classes": data.classes})
    arrays = {"images": data.images, "labels": data.labels, "mean": data.mean, "std": data.std}
    if data.writers is not None:
        arrays["writers"] = data.writers
    if data.class_names:
        arrays["class_names"] = np.array(data.class_names)
    arrays["meta"] = np.array(about)
    _write(path, lambda file: np.savez(file, allow_pickle=False, **arrays))  # type: ignore


def _intact(path: Path) -> bool:
    """Whether a file is there and its checksums hold."""
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.testzip() is None
    except BROKEN:
        return False


def say(what: str) -> None:
    """A warning: one line, and work goes on."""
    print(f"flamejax: warning: {shown(what)}", file=sys.stderr)


def _pointer(name: str) -> Path:
    return folder() / f"{name}.json"


def _write(path: Path, fill: Callable[[Any], Any]) -> None:
    # a half-written file of its own for each process: several runs may decode the same set at once
    half = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with half.open("wb") as file:
            fill(file)
        os.replace(half, path)
    except BaseException:
        half.unlink(missing_ok=True)
        raise
