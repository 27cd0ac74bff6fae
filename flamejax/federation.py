"""Clients' data as device arrays: one flat sample array, and who holds which rows of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from flamejax.config import Config
from flamejax.partitions import deal
from flamejax.partitions.quality import noise_variance
from flamejax.types import Dataset, Tree

TRAIN, VALIDATION, TEST = 0, 1, 2


class Federation(NamedTuple):
    """All clients' samples.

    A client's samples have positions 0, 1, ...: first training, then validation, then test.
    `arrays` may live on any device; nothing else in here is large.
    """

    counts: np.ndarray  # [C, 3] samples for training, validation, test
    arrays: Tree  # what `read` reads
    read: Callable[[Tree, Array, Array], tuple[Array, Array]]  # arrays, client, positions -> x, y

    @property
    def clients(self) -> int:
        return len(self.counts)


class Samples(NamedTuple):
    images: Array  # [N, ...] as stored: uint8 unless they came as floats
    labels: Array  # [N]
    rows: Array  # [sum of counts] client after client, the rows of its samples
    starts: Array  # [C + 1] where each client begins in `rows`
    noise: Array  # [C + 1] standard deviation of each client's input noise


def federate(config: Config, data: Dataset, rng: np.random.Generator) -> Federation:
    """Deal the samples to clients, split each client's, and describe how to read them."""
    parts = [rng.permutation(part) for part in deal(rng, data, config.partition)]
    hold_out = config.selection.validation if config.selection.on == "validation" else 0.0
    counts = np.array([split(len(part), config.partition.test, hold_out) for part in parts])
    noisy = config.partition.name == "quality" and config.partition.sigma > 0
    variance = noise_variance(config.partition.sigma if noisy else 0.0, len(parts))
    images = data.images
    floats = np.issubdtype(images.dtype, np.floating)
    samples = Samples(
        images=images,
        labels=data.labels,
        rows=np.concatenate(parts).astype(np.int32),
        starts=np.concatenate([[0], np.cumsum(counts.sum(1))]).astype(np.int32),
        noise=np.sqrt(np.append(variance, 0.0)),
    )
    noise_seed = int(rng.integers(2**32))

    def read(samples: Samples, client: Array, positions: Array) -> tuple[Array, Array]:
        rows = samples.rows.at[samples.starts[client] + positions].get(mode="clip")
        x = samples.images.at[rows].get(mode="clip").astype(float)
        x = x if floats else (x - 255 * data.mean) * (1 / (255 * data.std))
        if noisy:
            key = jax.random.fold_in(jax.random.key(noise_seed), client)
            keys = jax.vmap(jax.random.fold_in, (None, 0))(key, positions)
            noise = jax.vmap(lambda k: jax.random.normal(k, x.shape[1:], x.dtype))(keys)
            x = x + samples.noise[client].astype(x.dtype) * noise
        return x, samples.labels.at[rows].get(mode="clip")

    return Federation(counts, samples, read)


def split(samples: int, test: float, validation: float) -> tuple[int, int, int]:
    """Sizes of the training, validation and test parts; each asked-for part has at least one."""
    tested = min(max(1, round(samples * test)), samples - 1 - (validation > 0))
    rest = samples - tested
    validated = min(max(1, round(rest * validation)), rest - 1) if validation > 0 else 0
    return rest - validated, validated, tested
