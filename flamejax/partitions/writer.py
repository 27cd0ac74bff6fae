"""Feature skew: every writer's samples go to one client; clients get equal numbers of writers."""

from __future__ import annotations

from typing import Any

import numpy as np

from flamejax.errors import InputError


def writer(
    rng: np.random.Generator,
    labels: np.ndarray,
    *,
    clients: int,
    writers: np.ndarray | None,
    **_: Any,
) -> list[np.ndarray]:
    if writers is None:
        raise InputError("partition.name = 'writer' needs data with writers, such as mnist_mini")
    names = rng.permutation(np.unique(writers))
    if clients > len(names):
        raise InputError(f"partition.clients = {clients} exceeds the {len(names)} writers")
    return [
        rng.permutation(np.flatnonzero(np.isin(writers, group)))
        for group in np.array_split(names, clients)
    ]
