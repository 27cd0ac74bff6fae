"""MNIST and Fashion-MNIST from their idx files, plain or gzipped, train and test together.

When the QMNIST label files lie beside MNIST's, they give the writer of every image: their third
column, in file order, the first 10,000 rows of the test file.
"""

from __future__ import annotations

import gzip
import math
import zlib
from pathlib import Path

import numpy as np

from flamejax.config import Data
from flamejax.datasets.archive import digest_files
from flamejax.errors import InputError
from flamejax.types import Dataset

MNIST_MEAN, MNIST_STD = 0.1307, 0.3081
CLASSES = 10
GARMENTS: tuple[str, ...] = ("T-shirt", "trousers", "pullover", "dress", "coat")
GARMENTS += ("sandal", "shirt", "sneaker", "bag", "ankle boot")
SPLITS = ("train", "t10k")
QMNIST = ("qmnist-train-labels-idx2-int", "qmnist-test-labels-idx2-int")
UBYTE, INT = 0x08, 0x0C  # an idx file's code of what it holds
_DTYPES: dict[int, np.dtype] = {UBYTE: np.dtype(np.uint8), INT: np.dtype(">i4")}


def mnist(settings: Data, quiet: bool = True) -> Dataset:
    folder = _folder(settings)
    data = _images_and_labels(folder)
    parts = [_look_for(folder, stem) for stem in QMNIST]
    if parts[0] is None or parts[1] is None:
        return data
    train, test = read(parts[0], 2, INT), read(parts[1], 2, INT)
    tested = len(t10k_labels(folder))
    fit = len(train) == len(data.labels) - tested and len(test) >= tested
    if not fit or train.shape[1] < 3 or test.shape[1] < 3:
        shapes = f"{train.shape} and {test.shape}"
        raise InputError(
            f"{parts[0]}: QMNIST labels {shapes} do not fit the {len(data.labels)} images beside"
        )
    writers = np.concatenate([train[:, 2], test[:tested, 2]])
    return data._replace(writers=np.unique(writers, return_inverse=True)[1].astype(np.int32))


def fashion_mnist(settings: Data, quiet: bool = True) -> Dataset:
    return _images_and_labels(_folder(settings))._replace(class_names=GARMENTS)


def holds(folder: Path) -> bool:
    return _look_for(folder, f"{SPLITS[0]}-images-idx3-ubyte") is not None


def t10k_labels(folder: Path) -> np.ndarray:
    return read(_find(folder, f"{SPLITS[1]}-labels-idx1-ubyte"), 1)


def digest(folder: Path) -> str:
    """Of all that is read from a folder."""
    stems = [f"{split}-{kind}-ubyte" for split in SPLITS for kind in ("images-idx3", "labels-idx1")]
    paths = [_look_for(folder, stem) for stem in (*stems, *QMNIST)]
    return digest_files(folder, [path.name for path in paths if path is not None])


def read(path: Path, dims: int, code: int = UBYTE) -> np.ndarray:
    """The array in an idx file; anything but exactly what its header announces is refused."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            header = file.read(4 + 4 * dims)
            if len(header) < 4 + 4 * dims or header[:3] != bytes([0, 0, code]):
                raise InputError(f"{path}: not an idx file of {_DTYPES[code].name} values")
            if header[3] != dims:
                raise InputError(f"{path}: {header[3]} dimensions where {dims} are expected")
            shape = tuple(int(n) for n in np.frombuffer(header[4:], ">u4"))
            dtype = _DTYPES[code]
            expected = math.prod(shape) * dtype.itemsize
            if expected == 0:
                raise InputError(f"{path}: holds nothing: its shape is {shape}")
            if expected > 2**31:
                raise InputError(f"{path}: claims {expected} bytes, more than any known idx file")
            payload = file.read(expected + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise InputError(f"{path}: cannot be read: {error}") from None
    if len(payload) != expected:
        more = "more" if len(payload) > expected else "fewer"
        raise InputError(f"{path}: {more} bytes than the {expected} its header announces")
    return np.frombuffer(payload, dtype).reshape(shape)


def _images_and_labels(folder: Path) -> Dataset:
    images, labels = [], []
    for split in SPLITS:
        path = _find(folder, f"{split}-images-idx3-ubyte")
        images.append(read(path, 3))
        named = _find(folder, f"{split}-labels-idx1-ubyte")
        labels.append(read(named, 1))
        if labels[-1].max() >= CLASSES:
            raise InputError(f"{named}: label {labels[-1].max()} is not one of 0..{CLASSES - 1}")
        if len(images[-1]) != len(labels[-1]):
            raise InputError(f"{path}: {len(images[-1])} images but {len(labels[-1])} labels")
        if images[-1].shape[1:] != images[0].shape[1:]:
            raise InputError(f"{path}: images of another size than the training images")
    return Dataset(
        images=np.concatenate(images)[..., None],
        labels=np.concatenate(labels).astype(np.int32),
        classes=CLASSES,
        mean=MNIST_MEAN,
        std=MNIST_STD,
    )


def _folder(settings: Data) -> Path:
    folder = Path(settings.dir)
    if not settings.dir or not folder.is_dir():
        raise InputError(
            f"data.dir = '{settings.dir}' is not a folder; {settings.name} needs one with its idx "
            "files (train-images-idx3-ubyte.gz and so on)"
        )
    return folder


def _find(folder: Path, stem: str) -> Path:
    path = _look_for(folder, stem)
    if path is None:
        raise InputError(f"data.dir: {folder / stem}.gz is missing")
    return path


def _look_for(folder: Path, stem: str) -> Path | None:
    dotted = stem.replace("-idx", ".idx")  # another common spelling
    names = (stem, f"{stem}.gz", dotted, f"{dotted}.gz")
    return next((folder / name for name in names if (folder / name).is_file()), None)
