"""Rules that deal samples to clients: one file each.

A rule is a pure function ``(rng, labels, *, clients, ...) -> list of index arrays``, one per
client, each in random order (the first samples train, the last are held out); it takes the settings
it needs by name and ignores the rest. `virtual` clients have no such arrays.
"""

from __future__ import annotations

import numpy as np

from flamejax import registry
from flamejax.config import Partition
from flamejax.errors import InputError
from flamejax.types import Dataset


def deal(rng: np.random.Generator, data: Dataset, settings: Partition) -> list[np.ndarray]:
    """Each client's samples by the rule in the settings, or an InputError that says why not."""
    clients, least, samples = settings.clients, settings.min_samples, len(data.labels)
    if clients * least > samples:
        raise InputError(
            f"partition.clients = {clients} with partition.min_samples = {least} need "
            f"{clients * least} samples, {samples} are there: lower one of these, raise data.limit "
            "if that is set, or let clients of iid, quality and qlabel share samples with "
            "partition.overlap = true"
        )
    if settings.overlap and settings.name not in ("quantity", "hybrid"):
        raise InputError(
            "partition.overlap applies to the partitions iid, quality, qlabel, quantity and hybrid"
        )
    check_labels(data, settings)
    rule = registry.get("partitions", settings.name)
    options = settings.model_dump(exclude={"name", "held_out"})
    parts = rule(rng, data.labels, writers=data.writers, **options)
    check_least(np.array([len(part) for part in parts]), least)
    return parts


_LABEL_FREE = ("iid", "quality", "quantity", "writer", "natural")


def check_labels(data: Dataset, settings: Partition) -> None:
    """Refuse targets of a regression where the rule goes by classes."""
    if not np.issubdtype(data.labels.dtype, np.integer) and settings.name not in _LABEL_FREE:
        raise InputError(f"partition.name = '{settings.name}' needs class labels")


def check_least(sizes: np.ndarray, least: int, otherwise: str = "or partition.clients") -> None:
    """Refuse sizes [C] that leave a client with too few samples; otherwise: what else may help."""
    small = int(np.argmin(sizes))
    if sizes[small] < least:
        raise InputError(
            f"partition.min_samples = {least}: client {small} gets only {sizes[small]}; "
            f"lower it {otherwise}".rstrip()
        )


def dirichlet_shares(rng: np.random.Generator, beta: float, clients: int) -> np.ndarray:
    """Shares [clients] from a symmetric Dirichlet, also where its parameters leave float range."""
    shares = (
        rng.dirichlet(np.full(clients, beta)) if 1e-8 < beta < 1e8 else np.full(clients, np.nan)
    )
    if np.isfinite(shares).all() and shares.sum() > 0:
        return shares
    if beta > 1:
        return np.full(clients, 1 / clients)
    return (np.arange(clients) == rng.integers(clients)).astype(float)


def whole_numbers(shares: np.ndarray, total: int) -> np.ndarray:
    """Integers that sum to `total`, as near to shares * total as that allows."""
    exact = shares / shares.sum() * total
    sizes = np.floor(exact).astype(int)
    sizes[np.argsort(sizes - exact, kind="stable")[: total - sizes.sum()]] += 1
    return sizes


def cut(order: np.ndarray, sizes: np.ndarray) -> list[np.ndarray]:
    """Consecutive pieces of the given sizes."""
    return np.split(order[: sizes.sum()], np.cumsum(sizes)[:-1])
