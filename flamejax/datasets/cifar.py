"""CIFAR10 from its binary batches, loose or in cifar-10-binary.tar.gz, or from class folders.

A batch is 10,000 rows of a label byte and 3 x 32 x 32 pixels, channel by channel. The order is that
of the files: five training batches, then the test batch.
"""

from __future__ import annotations

import gzip
import io
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from flamejax.config import Data
from flamejax.datasets import images, store
from flamejax.datasets.archive import BROKEN, digest_file, digest_files, read_file, refusal
from flamejax.errors import InputError
from flamejax.types import Dataset

FOLDER = "cifar-10-batches-bin"
NAMES = (*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin")
SIZE = 32
SAMPLES, ROW = 60_000, 1 + 3 * SIZE * SIZE
MAX_TAR = 2**28  # bytes; the real one has 184 million
BROKEN_TAR = BROKEN + (tarfile.TarError,)  # noqa: RUF005 (mypy)
TARS = (".tar.gz", ".tgz", ".tar")


def cifar10(settings: Data, quiet: bool = True) -> Dataset:
    place = Path(settings.dir)
    found = batches(place)
    if found is not None:
        there = [found / name for name in NAMES if (found / name).is_file()]
        return _decode(found, ((path, read_file(path, MAX_TAR)) for path in there))
    if is_tar(place):
        return _decode(place, _members(place))
    if settings.dir and (place.is_dir() or place.is_file()):
        return images.load("cifar10", place, quiet, images.CIFAR)
    raise InputError(
        f"data.dir = '{settings.dir}' should be cifar-10-binary.tar.gz, the folder of its batches, "
        "or class folders of images"
    )


def digest(place: Path) -> str:
    found = batches(place)
    if found is not None:
        return digest_files(found, [name for name in NAMES if (found / name).is_file()])
    return digest_file(place) if is_tar(place) else images.digest(place)


def is_tar(place: Path) -> bool:
    return place.name.endswith(TARS) and place.is_file()


def batches(place: Path) -> Path | None:
    """The folder of binary batches, if this is it or holds it; the pickled ones are refused."""
    for folder in (place, place / FOLDER):
        if any((folder / name).is_file() for name in NAMES):
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


def _members(path: Path) -> Iterator[tuple[Path, memoryview]]:
    """Batches by name, whatever else the archive may hold; nothing is extracted."""
    found: dict[str, memoryview] = {}
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
                    found[name] = content[start : start + member.size]
    except InputError:
        raise
    except BROKEN_TAR as error:
        raise refusal(path, f"cannot be read: {error}") from None
    return ((path / name, found[name]) for name in NAMES if name in found)


def _decode(place: Path, contents: Iterable[tuple[Path, bytes | memoryview]]) -> Dataset:
    """Batches by file; fewer samples than CIFAR10 has are taken, with a word about it."""
    pixels, labels = [], []
    for path, content in contents:
        if not content or len(content) % ROW:
            raise refusal(path, f"{len(content)} bytes are not whole rows of {ROW}")
        rows = np.frombuffer(content, np.uint8).reshape(-1, ROW)
        pixels.append(rows[:, 1:].reshape(-1, 3, SIZE, SIZE).transpose(0, 2, 3, 1))
        labels.append(rows[:, 0].astype(np.int32))
        if labels[-1].max() >= len(images.CIFAR):
            raise refusal(path, f"label {labels[-1].max()} is not one of 0..9")
    if not labels:
        raise refusal(place, f"holds none of {', '.join(NAMES)}")
    samples = sum(map(len, labels))
    if samples != SAMPLES:
        store.say(f"{place}: {samples:,} images, not the {SAMPLES:,} of CIFAR10")
    return Dataset(
        images=np.concatenate(pixels),
        labels=np.concatenate(labels),
        classes=len(images.CIFAR),
        mean=0.5,
        std=0.5,
        class_names=images.CIFAR,
    )
