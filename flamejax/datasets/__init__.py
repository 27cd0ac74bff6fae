"""Where samples come from: one file per source, each a function of the `data` settings."""

from __future__ import annotations

from typing import Any

import numpy as np

from flamejax import registry
from flamejax.config import Data
from flamejax.errors import InputError
from flamejax.types import Dataset

# sets with a name of their own that are read from files in data.dir, or else were imported
FROM_FILES = ("mnist", "fashion_mnist", "medical_mnist", "cifar10", "femnist")


def load(settings: Data, rng: np.random.Generator, quiet: bool = True) -> Dataset:
    """The data set named by the settings, cut to `data.limit` samples drawn at random."""
    data = check(_read(settings, quiet))
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
    """Refuse arrays that do not fit together, whoever made them."""
    samples = len(data.images)
    if samples == 0 or len(data.labels) != samples:
        raise InputError(f"data: {samples} images but {len(data.labels)} labels")
    if data.writers is not None and len(data.writers) != samples:
        raise InputError(f"data: {samples} images but {len(data.writers)} writers")
    if np.issubdtype(data.labels.dtype, np.integer):
        low, high = int(data.labels.min()), int(data.labels.max())
        if low < 0 or high >= data.classes:
            raise InputError(
                f"data: labels span {low}..{high} but there are {data.classes} classes"
            )
    return data
