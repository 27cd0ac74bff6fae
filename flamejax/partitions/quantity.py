"""Quantity skew: client i gets the share p_i of all samples, p ~ Dir(beta)."""

from __future__ import annotations

from typing import Any

import numpy as np

from flamejax.partitions import cut, dirichlet_shares, whole_numbers


def quantity(
    rng: np.random.Generator,
    labels: np.ndarray,
    *,
    clients: int,
    beta: float,
    min_samples: int,
    overlap: bool = False,
    **_: Any,
) -> list[np.ndarray]:
    sizes = sizes_at_least(dirichlet_shares(rng, beta, clients), len(labels), min_samples)
    if overlap:  # as published: everyone draws from the whole set, so clients may share samples
        return [rng.choice(len(labels), size, replace=False) for size in sizes]
    return cut(rng.permutation(len(labels)), sizes)


def sizes_at_least(shares: np.ndarray, total: int, least: int) -> np.ndarray:
    """Sizes that sum to `total`: proportional to the shares, but nobody below `least`.

    Clients below it are lifted to it at the cost of the others, in proportion; every pass lifts at
    least one client, so there are at most as many passes as clients.
    """
    lifted = np.zeros(len(shares), bool)
    while True:
        rest = total - least * lifted.sum()
        free = np.where(lifted, 0.0, shares)
        scaled = free / max(free.sum(), 1e-300) * rest
        low = ~lifted & (scaled < least)
        if not low.any():
            break
        lifted |= low
    sizes = np.where(lifted, least, 0)
    if not lifted.all():
        sizes[~lifted] = whole_numbers(shares[~lifted], rest)
    return sizes
