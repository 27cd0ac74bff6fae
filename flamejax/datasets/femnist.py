"""FEMNIST's digits with their writers: TensorFlow Federated's HDF5 files, or LEAF's JSON.

Both store ink as 0.0 on a background of 1.0. Here a pixel x becomes round(255 (1 - x)), so that the
background is 0 and ink is bright as in MNIST, and MNIST's mean and deviation normalise it. Training
files come before test files; a writer has one number in both. LEAF's files hold 62 classes, of
which the digits are kept; writers without any are left out.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from flamejax.config import Data
from flamejax.datasets import store
from flamejax.datasets.archive import MAX_BYTES, digest_files, read_file, refusal, shown
from flamejax.datasets.idx import MNIST_MEAN, MNIST_STD
from flamejax.datasets.progress import progress
from flamejax.errors import InputError
from flamejax.types import Dataset

SIDE, DIGITS, LEAF_CLASSES = 28, 10, 62
MAX_WRITERS = 100_000
MAX_JSON = 2**29  # bytes of one file; LEAF's have about 130 million
MAX_CHUNK = 2**26  # bytes that HDF5 unpacks at once
BROKEN_H5 = (OSError, KeyError, RuntimeError, ValueError, TypeError, AttributeError, MemoryError)


class Part(NamedTuple):
    """The images of one writer in one file."""

    writer: str
    pixels: np.ndarray  # [n, 28, 28] uint8
    labels: np.ndarray  # [n]


def femnist(settings: Data, quiet: bool = True) -> Dataset:
    place = Path(settings.dir)
    found = sources(place)
    if not settings.dir or not found:
        raise InputError(
            f"data.dir = '{shown(settings.dir)}' should be a folder with "
            "fed_emnist_digitsonly_train.h5 and _test.h5, or with the .json files of LEAF"
        )
    return store.cached("femnist", place, digest(place), lambda: _decode(found, quiet))


def holds(place: Path) -> bool:
    return bool(sources(place))


def digest(place: Path) -> str:
    root = place if place.is_dir() else place.parent
    return digest_files(root, [str(path.relative_to(root)) for path in sources(place)])


def sources(place: Path) -> list[Path]:
    """The files to read, training before test; none if this is not FEMNIST."""
    if place.is_file():
        return {".h5": _pair(place), ".json": [place]}.get(place.suffix, [])
    h5 = sorted(place.glob("*_train.h5")) or sorted(place.glob("*.h5"))
    if h5:
        return _pair(h5[0])
    for base in (place, place / "data"):
        for folders in (("train", "test"), ("all_data",), ("",)):
            found = [path for name in folders for path in sorted((base / name).glob("*.json"))]
            if found:
                return found
    return []


def _pair(path: Path) -> list[Path]:
    """A training file and its test file, given either; a file of another name is alone."""
    stem = path.stem.removesuffix("_train").removesuffix("_test")
    pair = [path.with_name(f"{stem}_{split}.h5") for split in ("train", "test")]
    return [one for one in pair if one.is_file()] or [path]


def _decode(paths: list[Path], quiet: bool) -> Dataset:
    read = _read_h5 if paths[0].suffix == ".h5" else _read_json
    if len(paths) == 1 and paths[0].stem.endswith(("_train", "_test")):
        store.say(f"{paths[0]}: read alone; FEMNIST is a training and a test file")
    parts: list[Part] = []
    size = 0
    for path in paths:
        for part in read(path, quiet):
            size += part.pixels.nbytes
            if size > MAX_BYTES:
                raise refusal(path, f"more than {MAX_BYTES >> 30} GB of images")
            parts.append(part)
    if size == 0:
        raise refusal(paths[0], "holds no digits")
    numbers = {name: i for i, name in enumerate(sorted({p.writer for p in parts if len(p.labels)}))}
    return Dataset(
        images=np.concatenate([part.pixels for part in parts])[..., None],
        labels=np.concatenate([part.labels for part in parts]).astype(np.int32),
        classes=DIGITS,
        writers=np.concatenate(
            [np.full(len(p.labels), numbers.get(p.writer, -1), np.int32) for p in parts]
        ),
        mean=MNIST_MEAN,
        std=MNIST_STD,
    )


def _part(path: Path, writer: str, pixels: np.ndarray, labels: np.ndarray, classes: int) -> Part:
    """Checked, inverted, and only the digits."""
    where = f"writer {shown(writer)[:40]}"
    if pixels.dtype.kind not in "fiu" or labels.dtype.kind not in "iu":
        raise refusal(path, f"{where}: {pixels.dtype} pixels and {labels.dtype} labels")
    if labels.ndim != 1 or pixels.shape != (len(labels), SIDE, SIDE):
        got = f"pixels of shape {pixels.shape} and labels of shape {labels.shape}"
        raise refusal(path, f"{where}: {got}, expected [n, {SIDE}, {SIDE}] and [n]")
    if len(labels) == 0:
        return Part(writer, pixels.astype(np.uint8), labels)
    if not (pixels.min() >= 0 and pixels.max() <= 1):  # so written that NaN is caught as well
        raise refusal(path, f"{where}: pixels are not all within 0..1")
    if labels.min() < 0 or labels.max() >= classes:
        raise refusal(
            path, f"{where}: labels span {labels.min()}..{labels.max()}, expected 0..{classes - 1}"
        )
    digits = labels < DIGITS
    inverted = np.rint(255 * (1 - pixels[digits])).astype(np.uint8)
    return Part(writer, inverted, labels[digits])


def _read_h5(path: Path, quiet: bool) -> Iterator[Part]:
    """/examples/<writer>/{pixels, label}"""
    import h5py

    try:
        with h5py.File(path, "r") as file:
            examples = _member(path, file, "examples", h5py.Group)
            if len(examples) > MAX_WRITERS:
                raise refusal(path, f"{len(examples)} writers, more than {MAX_WRITERS}")
            with progress(f"reading {path.name}", len(examples), quiet) as advance:
                for writer in examples:
                    group = _member(path, examples, writer, h5py.Group)
                    pixels, labels = (_array(path, group, name) for name in ("pixels", "label"))
                    yield _part(path, writer, pixels, labels, DIGITS)
                    advance(1)
    except BROKEN_H5 as error:
        raise refusal(path, f"cannot be read as HDF5: {error}") from None


def _member(path: Path, group: Any, name: str, kind: type) -> Any:
    """What is in the file itself under a name; links may lead to any other file."""
    import h5py

    where = shown(f"{group.name.rstrip('/')}/{name}")
    link = group.get(name, getlink=True)
    if link is None:
        raise refusal(path, f"{where} is missing")
    if not isinstance(link, h5py.HardLink):
        raise refusal(path, f"{where} is a link")
    member = group[name]
    if not isinstance(member, kind):
        raise refusal(path, f"{where} is not a {kind.__name__.lower()}")
    return member


def _array(path: Path, group: Any, name: str) -> np.ndarray:
    import h5py

    data = _member(path, group, name, h5py.Dataset)
    if data.external or data.is_virtual:
        raise refusal(path, f"{shown(data.name)} has its values in another file")
    if data.shape is None or data.dtype.kind not in "fiu":
        raise refusal(path, f"{shown(data.name)} holds {data.dtype}, expected numbers")
    chunk = math.prod(data.chunks or ()) * data.dtype.itemsize
    if data.nbytes > MAX_BYTES // 100 or chunk > MAX_CHUNK:
        raise refusal(path, f"{shown(data.name)} claims the shape {data.shape}, too large")
    values: np.ndarray = data[()]
    return np.asarray(values)


def _read_json(path: Path, quiet: bool) -> Iterator[Part]:
    """{"users": [...], "user_data": {user: {"x": [[784 pixels], ...], "y": [...]}}}"""
    try:
        content = json.loads(read_file(path, MAX_JSON))
        users, data = content["users"], content["user_data"]
        if len(set(users)) != len(users):
            raise refusal(path, "names a writer twice")
        with progress(f"reading {path.name}", len(users), quiet) as advance:
            for user in users:
                rows, labels = np.asarray(data[user]["x"]), np.asarray(data[user]["y"])
                if rows.size != len(labels) * SIDE * SIDE:
                    got = f"{rows.shape} for {len(labels)} labels, expected {SIDE * SIDE} each"
                    raise refusal(path, f"writer {shown(user)}: pixels of shape {got}")
                if rows.size == 0:
                    labels = labels.astype(int)
                pixels = rows.reshape(len(labels), SIDE, SIDE)
                yield _part(path, user, pixels, labels, LEAF_CLASSES)
                advance(1)
    except KeyError as error:
        raise refusal(path, f"the key {error} is missing") from None
    except (ValueError, TypeError, RecursionError, OverflowError, MemoryError) as error:
        raise refusal(path, f"not LEAF's JSON: {error}") from None
