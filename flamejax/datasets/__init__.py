"""Where samples come from: one file per source, each a function of the `data` settings."""

from __future__ import annotations

import numpy as np

from flamejax import registry
from flamejax.config import Data
from flamejax.errors import InputError
from flamejax.types import Dataset


def load(settings: Data, rng: np.random.Generator, quiet: bool = True) -> Dataset:
    """The data set named by the settings, cut to `data.limit` samples drawn at random."""
    data = check(registry.get("datasets", settings.name)(settings, quiet))
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
