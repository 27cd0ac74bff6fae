"""Quantity-based label skew: every client holds exactly q classes.

Each class is cut into equal shards, one per client that holds it; classes are held by as equal
numbers of clients as possible.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from flamejax.errors import InputError


def qlabel(
    rng: np.random.Generator, labels: np.ndarray, *, clients: int, q: int, **_: Any
) -> list[np.ndarray]:
    present = check_classes(labels, q)[0]
    if clients * q > len(labels):
        raise InputError(
            f"partition.clients = {clients} with partition.q = {q} make {clients * q} shards, "
            f"more than the {len(labels)} samples"
        )
    # how many clients hold each class: equal but for a remainder that falls on random classes
    left = np.full(len(present), clients * q // len(present))
    left[rng.permutation(len(present))[: clients * q % len(present)]] += 1
    holders: list[list[int]] = [[] for _ in present]
    for client in rng.permutation(clients):
        # the q classes with most places left, ties at random: this never runs out of classes
        for k in np.lexsort((rng.random(len(present)), -left))[:q]:
            holders[k].append(client)
            left[k] -= 1
    parts: list[list[np.ndarray]] = [[] for _ in range(clients)]
    for k, clients_of_k in zip(present, holders, strict=True):
        members = rng.permutation(np.flatnonzero(labels == k))
        if len(members) < len(clients_of_k):
            raise InputError(
                f"partition.clients = {clients}, partition.q = {q}: class {k} has "
                f"{len(members)} samples for {len(clients_of_k)} clients"
            )
        if clients_of_k:
            for client, piece in zip(
                clients_of_k, np.array_split(members, len(clients_of_k)), strict=True
            ):
                parts[client].append(piece)
    return [rng.permutation(np.concatenate(pieces)) for pieces in parts]


def check_classes(labels: np.ndarray, q: int) -> tuple[np.ndarray, np.ndarray]:
    """The classes that occur, and how often; refused if they are fewer than q."""
    present, counts = np.unique(labels, return_counts=True)
    if q > len(present):
        raise InputError(f"partition.q = {q} exceeds the {len(present)} classes of the data")
    return present, counts
