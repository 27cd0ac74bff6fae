"""Generated data make their own clients: there are no samples to deal, only sizes to choose."""

from __future__ import annotations

from typing import Any

import numpy as np

from flamejax.config import Partition
from flamejax.errors import InputError
from flamejax.partitions import check_least, dirichlet_shares
from flamejax.partitions.quantity import sizes_at_least
from flamejax.types import Generator


def natural(rng: np.random.Generator, labels: np.ndarray, **_: Any) -> list[np.ndarray]:
    raise InputError("partition.name = 'natural' needs generated data: synthetic or linreg")


def sizes(rng: np.random.Generator, data: Generator, settings: Partition) -> np.ndarray:
    """How many samples each client of generated data has, [C]."""
    clients, least = settings.clients, max(settings.min_samples, data.least)
    if settings.overlap:
        raise InputError("partition.overlap: clients of generated data have no samples in common")
    if settings.name == "natural":
        found = data.sizes(rng, clients)
    elif settings.name in ("iid", "quality", "quantity"):
        found = np.full(clients, data.equal)
    else:
        raise InputError(
            f"partition.name = '{settings.name}' deals stored samples; generated data take "
            "natural, iid, quality or quantity"
        )
    check_least(found, least, "" if settings.name == "natural" else "or raise data.samples")
    if settings.name == "quantity":
        shares = dirichlet_shares(rng, settings.beta, clients)
        found = sizes_at_least(shares, data.equal * clients, least)
    return found
