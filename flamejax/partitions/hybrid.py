"""Hybrid skew: the first half of the clients is `qlabel`, the second half `quantity`."""

from __future__ import annotations

from typing import Any

import numpy as np

from flamejax.errors import InputError
from flamejax.partitions.qlabel import qlabel
from flamejax.partitions.quantity import quantity


def hybrid(
    rng: np.random.Generator,
    labels: np.ndarray,
    *,
    clients: int,
    overlap: bool = False,
    **options: Any,
) -> list[np.ndarray]:
    """Each half shares out its part of the samples; with `overlap`, all of them."""
    if clients < 2:
        raise InputError("partition.name = 'hybrid' needs partition.clients of at least 2")
    first = clients // 2
    order = rng.permutation(len(labels))
    pools = (order, order) if overlap else np.split(order, [len(labels) * first // clients])
    by_label = qlabel(rng, labels[pools[0]], clients=first, **options)
    by_size = quantity(rng, labels[pools[1]], clients=clients - first, overlap=overlap, **options)
    return [pools[0][part] for part in by_label] + [pools[1][part] for part in by_size]
