"""CIFAR10 from its binary batches, loose or in cifar-10-binary.tar.gz, or from class folders.

A batch is 10,000 rows of a label byte and 3 x 32 x 32 pixels, channel by channel. The order is that
of the files: five training batches, then the test batch.
"""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from flamejax.config import Data
from flamejax.datasets import images
from flamejax.datasets.archive import BROKEN, digest_file, digest_files, read_file, refusal
from flamejax.errors import InputError
from flamejax.types import Dataset

FOLDER = "cifar-10-batches-bin"
NAMES = (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin")
SIZE = 32
ROWS, ROW = 10_000, 1 + 3 * SIZE * SIZE
MAX_TAR = 2**28  # bytes; the real one has 184 million
BROKEN_TAR = BROKEN + (tarfile.TarError,)  # noqa: RUF005 (mypy)
TARS = (".tar.gz", ".tgz", ".tar")


def cifar10(settings: Data, quiet: bool = True) -> Dataset:
    place = Path(settings.dir)
    found = batches(place)
    if found is not None:
        return _decode([found / name for name in NAMES], lambda path: read_file(path, ROWS * ROW))
    if is_tar(place):
        return _decode_tar(place)
    if settings.dir and (place.is_dir() or place.is_file()):
        return images.load("cifar10", place, quiet, images.CIFAR)
    raise InputError(
        f"data.dir = '{settings.dir}' should be cifar-10-binary.tar.gz, the folder of its batches, "
        "or class folders of images"
    )


def digest(place: Path) -> str:
    found = batches(place)
    if found is not None:
        return digest_files(found, NAMES)
    return digest_file(place) if is_tar(place) else images.digest(place)


def is_tar(place: Path) -> bool:
    return place.name.endswith(TARS) and place.is_file()


def batches(place: Path) -> Path | None:
    """The folder of binary batches, if this is it or holds it; the pickled ones are refused."""
    for folder in (place, place / FOLDER):
        if (folder / NAMES[0]).is_file():
            return folder
    for folder in (place, place / "cifar-10-batches-py"):
        if (folder / "data_batch_1").exists():
            raise _pickled(folder / "data_batch_1")
    return None


def _pickled(path: Path) -> InputError:
    return refusal(
        path,
        "the Python version of CIFAR10 is a pickle, which may run any code and is never loaded; "
        "get cifar-10-binary.tar.gz from https://www.cs.toronto.edu/~kriz/cifar.html instead",
    )


def _decode_tar(path: Path) -> Dataset:
    """Members by name, whatever else the archive may hold; nothing is extracted."""
    found: dict[Path, memoryview] = {}
    try:
        with gzip.open(path) if path.name.endswith("gz") else path.open("rb") as stream:
            content = memoryview(stream.read(MAX_TAR + 1))
        if len(content) > MAX_TAR:
            raise refusal(path, f"unpacks to more than {MAX_TAR} bytes, unlike CIFAR10")
        with tarfile.open(fileobj=io.BytesIO(content), mode="r:") as archive:
            for member in archive:
                name = member.name.rpartition("/")[2]
                if name == "data_batch_1":
                    raise _pickled(path)
                if name in NAMES and member.isreg() and not member.issparse():
                    start = member.offset_data
                    found[Path(name)] = content[start : start + member.size]
    except InputError:
        raise
    except BROKEN_TAR as error:
        raise refusal(path, f"cannot be read: {error}") from None

    def read(name: Path) -> memoryview:
        if name not in found:
            raise refusal(path, f"{name} is missing")
        return found[name]

    return _decode([Path(name) for name in NAMES], read, path)


def _decode(
    paths: list[Path], read: Callable[[Path], bytes | memoryview], place: Path = Path()
) -> Dataset:
    """Six batches; `place` is the archive that holds them, if one does."""
    pixels = np.empty((len(paths) * ROWS, SIZE, SIZE, 3), np.uint8)
    labels = np.empty(len(pixels), np.int32)
    for i, path in enumerate(paths):
        content = read(path)
        if len(content) != ROWS * ROW:
            got = f"{len(content)} bytes, not the {ROWS * ROW} of a CIFAR10 batch"
            raise refusal(place / path, got)
        rows = np.frombuffer(content, np.uint8).reshape(ROWS, ROW)
        some = slice(i * ROWS, (i + 1) * ROWS)
        labels[some] = rows[:, 0]
        pixels[some] = rows[:, 1:].reshape(ROWS, 3, SIZE, SIZE).transpose(0, 2, 3, 1)
        if labels[some].max() >= len(images.CIFAR):
            raise refusal(place / path, f"label {labels[some].max()} is not one of 0..9")
    return Dataset(pixels, labels, 10, mean=0.5, std=0.5, class_names=images.CIFAR)
