"""Clients without lists of samples: which ones a client has is computed when they are read.

Every client takes `data.samples` of all samples, none of them twice; others may take the same ones.
With `qlabel` it takes them from q classes, equally often from each but for a remainder; with `iid`
and `quality` from everything. Nothing is as large as the samples of all clients together, so there
may be millions of clients.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from flamejax.config import Partition
from flamejax.errors import InputError
from flamejax.partitions import check_labels
from flamejax.partitions.qlabel import check_classes
from flamejax.shuffle import permute
from flamejax.types import Dataset

RULES = ("iid", "quality", "qlabel")


def applies(settings: Partition) -> bool:
    return settings.overlap and settings.name in RULES


def groups(data: Dataset, settings: Partition, samples: int) -> tuple[np.ndarray, np.ndarray, int]:
    """What clients choose from: rows [N] group after group, where each begins [K + 1], and how many
    groups a client has. Groups are the classes for `qlabel`, and otherwise one with everything."""
    check_labels(data, settings)
    order, sizes, taken = np.arange(len(data.labels)), np.array([len(data.labels)]), 1
    if settings.name == "qlabel":
        taken = settings.q
        sizes = check_classes(data.labels, taken)[1]
        order = np.argsort(data.labels, kind="stable")
    least, most = settings.min_samples, taken * int(sizes.min())
    if samples < least:
        raise InputError(f"data.samples = {samples} is less than partition.min_samples = {least}")
    if samples < taken:
        raise InputError(f"data.samples = {samples} are too few for partition.q = {taken} classes")
    if samples > most:
        why = f", {taken} x {sizes.min()} of the rarest class" if settings.name == "qlabel" else ""
        raise InputError(f"data.samples = {samples}: a client can have at most {most}{why}")
    starts = np.concatenate([[0], np.cumsum(sizes)])
    return order.astype(np.int32), starts.astype(np.int32), taken


def rows(key: Array, positions: Array, order: Array, starts: Array, taken: int) -> Array:
    """Rows of the samples at these positions [B] of a client, whose key it is.

    Its groups take turns, so each split that is as long as there are groups has samples of all. Of
    a group it has the first elements of a random permutation, which are read off as needed.
    """
    present = len(starts) - 1
    if present == 1:
        return order.at[permute(key, positions, len(order))].get(mode="clip")
    keys = jax.random.split(key, 1 + taken)
    group = permute(keys[0], jnp.arange(taken, dtype=jnp.int32), present)  # [taken]
    sizes = starts[group + 1] - starts[group]
    turn, place = positions % taken, positions // taken
    # in every group, though only one of them counts: a key for each position would take longer
    places = jax.vmap(permute, (0, None, 0))(keys[1:], place, sizes)  # [taken, B]
    mine = jnp.take_along_axis(places, turn[None], axis=0)[0]
    return order.at[starts[group][turn] + mine].get(mode="clip")
