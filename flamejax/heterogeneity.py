"""How unlike clients are: what each holds, and figures of it.

>>> held = np.array([[8, 0], [0, 8]])  # two clients, two classes, one class each
>>> total_variation(held).tolist()
[0.5, 0.5]
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from flamejax.federation import Federation, Stored
from flamejax.types import Dataset, Generator, Tree


class Clients(NamedTuple):
    """What the clients of a federation hold, all splits together unless said otherwise."""

    counts: np.ndarray  # [C, 3] samples for training, validation, test
    held: np.ndarray | None  # [C, classes] samples of each class; None if labels are targets
    writers: np.ndarray | None  # [C] how many writers' samples, when known
    noise: np.ndarray  # [C] variance of the noise on normalised inputs
    malicious: np.ndarray  # [C] bool
    samples: int  # there were to deal; of generated data all that clients hold
    used: int  # of them that some client holds

    @property
    def sizes(self) -> np.ndarray:
        return self.counts.sum(1)

    def only(self, some: np.ndarray) -> Clients:
        """Of these clients, by number."""
        per_client = ("counts", "held", "writers", "noise", "malicious")
        kept = {name: getattr(self, name) for name in per_client}
        return self._replace(**{name: v[some] for name, v in kept.items() if v is not None})


def clients_of(data: Dataset | Generator, federation: Federation) -> Clients:
    """Labels are the true ones, whatever an attack makes of them."""
    total = int(federation.counts.sum())
    found = Clients(
        counts=federation.counts,
        held=None,
        writers=None,
        noise=np.square(federation.arrays.noise[: federation.clients]),
        malicious=federation.malicious,
        samples=total,
        used=total,
    )
    if isinstance(data, Generator):
        return found._replace(held=_generated(federation)) if data.classes else found
    if np.issubdtype(data.labels.dtype, np.integer):
        found = found._replace(held=np.zeros((federation.clients, data.classes), int))
    if data.writers is not None:
        names = np.unique(data.writers, return_inverse=True)[1]
        found = found._replace(writers=np.zeros(federation.clients, int))
    seen = np.zeros(len(data.labels), bool)
    for owner, rows in _dealt(federation):
        seen[rows] = True
        if found.held is not None:
            np.add.at(found.held, (owner, data.labels[rows]), 1)
        if found.writers is not None:
            pairs = np.unique(owner * len(names) + names[rows])
            np.add.at(found.writers, pairs // len(names), 1)
    return found._replace(samples=len(data.labels), used=int(seen.sum()))


def _dealt(federation: Federation) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Owners and rows of stored samples [n], a client's all at once, but not all clients' where
    rows are computed."""
    arrays, clients = federation.arrays, federation.clients
    if isinstance(arrays, Stored):
        yield np.repeat(np.arange(clients), federation.counts.sum(1)), np.asarray(arrays.rows)
        return
    samples, numbers = int(federation.counts[0].sum()), np.arange(len(arrays.labels))
    at_once = max(1, 2**15 // samples)
    arrays = jax.device_put(_honest(arrays)._replace(labels=numbers.astype(np.int32)))

    @jax.jit
    def rows(arrays: Tree, some: Array) -> Array:
        positions = jnp.arange(samples, dtype=jnp.int32)
        return jax.vmap(lambda client: federation.read(arrays, client, positions)[1])(some)

    for first in range(0, clients, at_once):
        some = np.arange(first, first + at_once).clip(max=clients - 1)  # the last is repeated
        found = np.asarray(rows(arrays, some.astype(np.int32)))[: clients - first]
        yield np.repeat(some[: len(found)], samples), found.reshape(-1)


def _honest(arrays: Tree) -> Tree:
    """The same, with all labels as they are."""
    return arrays._replace(poisoned=np.zeros_like(arrays.poisoned))


def _generated(federation: Federation) -> np.ndarray:
    """Samples [C, classes] of clients who make them: in blocks, so that sizes may differ."""
    block, at_once = 128, 256
    sizes = federation.counts.sum(1)
    blocks = -(-sizes // block)
    owner = np.repeat(np.arange(len(sizes)), blocks)  # [blocks]
    start = block * (np.arange(len(owner)) - np.repeat(np.cumsum(blocks) - blocks, blocks))
    arrays = jax.device_put(_honest(federation.arrays))

    @jax.jit
    def labels(arrays: Tree, owner: Array, start: Array) -> Array:
        def of_one(client: Array, first: Array) -> Array:
            return federation.read(arrays, client, first + jnp.arange(block, dtype=first.dtype))[1]

        return jax.vmap(of_one)(owner, start)

    held = np.zeros((len(sizes), federation.classes), int)
    for i in range(0, len(owner), at_once):
        some = np.arange(i, i + at_once).clip(max=len(owner) - 1)  # the last block is repeated
        where = owner[some].astype(np.int32), start[some].astype(np.int32)
        found = np.asarray(labels(arrays, *where))
        there = start[some][:, None] + np.arange(block) < sizes[owner[some]][:, None]
        there[len(owner) - i :] = False
        who = np.broadcast_to(owner[some][:, None], found.shape)
        np.add.at(held, (who[there], found[there]), 1)
    return held


def total_variation(held: np.ndarray) -> np.ndarray:
    """Distance [C] of each client's classes from those of all clients together, 0 to 1.

    It is the share of a client's samples that would have to change class.
    """
    return np.abs(_shares(held) - _shares(held.sum(0))).sum(1) / 2


def jensen_shannon(held: np.ndarray) -> np.ndarray:
    """Divergence [C] of each client's classes from those of all clients together, 0 to 1 bit."""
    mine, all_ = _shares(held), _shares(held.sum(0))
    middle = (mine + all_) / 2
    return (_divergence(mine, middle) + _divergence(all_, middle)) / 2


def variation(sizes: np.ndarray) -> float:
    """Coefficient of variation: the standard deviation of the sizes as a multiple of the mean."""
    return float(sizes.std() / sizes.mean())


def gini(sizes: np.ndarray) -> float:
    """0 if all clients have the same size, near 1 if one of many has everything."""
    ordered, clients = np.sort(sizes), len(sizes)
    ranks = np.arange(1, clients + 1)
    return float(((2 * ranks - clients - 1) * ordered).sum() / (clients * ordered.sum()))


def _shares(counts: np.ndarray) -> np.ndarray:
    return counts / counts.sum(-1, keepdims=True)


def _divergence(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """Kullback-Leibler, in bits; q covers p."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(p > 0, p * np.log2(p / q), 0.0).sum(-1)
