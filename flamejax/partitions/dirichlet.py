"""Distribution-based label skew: class k is shared out by p_k ~ Dir(beta)."""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np

from flamejax.partitions import cut, dirichlet_shares, whole_numbers


def dirichlet(
    rng: np.random.Generator,
    labels: np.ndarray,
    *,
    clients: int,
    beta: float,
    min_samples: int,
    **_: Any,
) -> list[np.ndarray]:
    pieces: list[list[np.ndarray]] = [[] for _ in range(clients)]
    for k in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == k))
        sizes = whole_numbers(dirichlet_shares(rng, beta, clients), len(members))
        for client, piece in enumerate(cut(members, sizes)):
            pieces[client].append(piece)
    parts = top_up([rng.permutation(np.concatenate(p)) for p in pieces], min_samples)
    return [rng.permutation(part) for part in parts]


def top_up(parts: list[np.ndarray], min_samples: int) -> list[np.ndarray]:
    """Move samples (in random order) from the largest clients until everyone has `min_samples`.

    Ends because the total suffices (checked by `deal`) and no donor falls below the minimum.
    """
    donors = [(-len(part), i) for i, part in enumerate(parts)]
    heapq.heapify(donors)
    for client in range(len(parts)):
        while (need := min_samples - len(parts[client])) > 0:
            size, donor = heapq.heappop(donors)
            given = min(need, -size - min_samples)
            parts[client] = np.concatenate([parts[client], parts[donor][:given]])
            parts[donor] = parts[donor][given:]
            heapq.heappush(donors, (-len(parts[donor]), donor))
    return parts
