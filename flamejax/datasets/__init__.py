"""Where samples come from: one file per source, each a function of the `data` settings."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from flamejax import registry
from flamejax.config import Data
from flamejax.errors import InputError
from flamejax.types import Dataset, Generator

ALIGNMENT = 64  # bytes: what XLA asks of an address
# sets with a name of their own that are read from files in data.dir, or else were imported
FROM_FILES = ("mnist", "fashion_mnist", "medical_mnist", "cifar10", "femnist")


def load(settings: Data, rng: np.random.Generator, quiet: bool = True) -> Dataset | Generator:
    """The data set named by the settings, cut to `data.limit` samples drawn at random."""
    data = _read(settings, quiet)
    if isinstance(data, Generator):
        for key, value in (("limit", settings.limit), ("dir", settings.dir)):
            if value not in ("", "all"):
                raise InputError(f"data.{key} = {value!r}: {settings.name} is generated, not read")
        return data
    data = check(data)
    if settings.limit == "all":
        return data
    if settings.limit > len(data.labels):
        raise InputError(
            f"data.limit = {settings.limit} exceeds the {len(data.labels)} samples of "
            f"{settings.name}"
        )
    kept = np.sort(rng.choice(len(data.labels), settings.limit, replace=False))
    writers = None if data.writers is None else data.writers[kept]
    return data._replace(images=data.images[kept], labels=data.labels[kept], writers=writers)


def _read(settings: Data, quiet: bool) -> Any:
    if not settings.dir and settings.name in FROM_FILES:
        from flamejax.datasets.importing import load_known

        return load_known(settings, quiet)
    return registry.get("datasets", settings.name)(settings, quiet)


def check(data: Dataset) -> Dataset:
    """Refuse arrays that do not fit together, whoever made them.

    Inputs that are not finite pass: `engine.on_nonfinite` says what becomes of their clients.
    """
    try:
        writers = None if data.writers is None else np.asarray(data.writers)
        images, labels = np.asarray(data.images), np.asarray(data.labels)
    except ValueError as error:
        raise InputError(f"data: not arrays: {error}") from None
    for name, array in (("images", images), ("labels", labels)):
        if array.dtype.kind not in "uif":
            raise InputError(f"data: {name} are {array.dtype}, expected numbers")
    if not finite(labels):
        raise InputError("data: labels hold numbers that are not finite")
    if images.ndim < 2 or 0 in images.shape[1:]:
        raise InputError(f"data: images of shape {images.shape}, expected [N, H, W, channels]")
    samples = len(images)
    classes = labels.dtype.kind in "ui"  # and not targets, which may be vectors
    if samples == 0 or labels.shape[:1] != (samples,) or (classes and labels.ndim > 1):
        raise InputError(f"data: {samples} images but labels of shape {labels.shape}")
    if writers is not None and writers.shape != (samples,):
        raise InputError(f"data: {samples} images but writers of shape {writers.shape}")
    if classes:
        low, high = int(labels.min()), int(labels.max())
        if low < 0 or high >= data.classes:
            raise InputError(
                f"data: labels span {low}..{high} but there are {data.classes} classes"
            )
    return data._replace(images=aligned(images), labels=labels, writers=writers)


def aligned(values: np.ndarray) -> np.ndarray:
    """The same values where the devices of a CPU read them in place, and not each a copy."""
    if values.ctypes.data % ALIGNMENT == 0 and values.flags.c_contiguous:
        return values
    there = empty(values.shape, values.dtype)
    there[:] = values
    return there


def empty(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """An array to be filled, in such a place."""
    size = math.prod(shape) * dtype.itemsize
    room = np.empty(size + ALIGNMENT, np.uint8)
    start = -room.ctypes.data % ALIGNMENT
    return room[start : start + size].view(dtype).reshape(shape)


def finite(values: np.ndarray) -> bool:
    """Whether all are, found out in parts: the answers for all at once may not fit in memory."""
    if values.dtype.kind != "f" or values.ndim == 0:
        return True
    rows = max(1, 2**22 // max(1, math.prod(values.shape[1:])))
    return all(np.isfinite(values[i : i + rows]).all() for i in range(0, len(values), rows))
