"""Clients' data as device arrays: one flat sample array, and who holds which rows of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from flamejax.config import Config
from flamejax.errors import InputError
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
    malicious: np.ndarray  # [C] bool
    arrays: Tree  # what `read` reads
    read: Callable[[Tree, Array, Array], tuple[Array, Array]]  # arrays, client, positions -> x, y

    @property
    def clients(self) -> int:
        return len(self.counts)


class Samples(NamedTuple):
    """Arrays of a federation, on the host until the engine places them."""

    images: Any  # [N, ...] as stored: uint8 unless they came as floats
    labels: Any  # [N]
    rows: Any  # [sum of counts] client after client, the rows of its samples
    starts: Any  # [C + 1] where each client begins in `rows`
    noise: Any  # [C + 1] standard deviation of each client's input noise
    poisoned: Any  # [C + 1] how many of each client's samples, from the first on, are mislabelled


def federate(config: Config, data: Dataset, rng: np.random.Generator) -> Federation:
    """Deal the samples to clients, split each client's, and describe how to read them."""
    parts = deal(rng, data, config.partition)
    validation = config.selection.validation if config.selection.on == "validation" else 0.0
    counts = np.array([split(len(part), config.partition.held_out, validation) for part in parts])
    noisy = config.partition.name == "quality" and config.partition.sigma > 0
    variance = noise_variance(config.partition.sigma if noisy else 0.0, len(parts))
    malicious, poison_seed = conspirators(config)
    poisons = config.attack.build().poisons_labels
    images = data.images
    classes = np.issubdtype(data.labels.dtype, np.integer)
    floats = np.issubdtype(images.dtype, np.floating)
    samples = Samples(
        images=images,
        labels=data.labels.astype(np.int32) if classes else data.labels,
        rows=np.concatenate(parts).astype(np.int32),
        starts=np.concatenate([[0], np.cumsum(counts.sum(1))]).astype(np.int32),
        noise=np.sqrt(np.append(variance, 0.0)),
        poisoned=np.append(np.where(malicious & poisons, counts[:, TRAIN], 0), 0).astype(np.int32),
    )
    if poisons and not classes:
        raise InputError("attack.name = 'label_poison' needs classes, and the labels are targets")
    noise_seed = int(rng.integers(2**32))

    def read(samples: Samples, client: Array, positions: Array) -> tuple[Array, Array]:
        rows = samples.rows.at[samples.starts[client] + positions].get(mode="clip")
        x = samples.images.at[rows].get(mode="clip").astype(float)
        x = x if floats else (x - 255 * data.mean) * (1 / (255 * data.std))
        if noisy:
            keys = sample_keys(noise_seed, client, positions)
            noise = jax.vmap(lambda k: jax.random.normal(k, x.shape[1:], x.dtype))(keys)
            x = x + samples.noise[client].astype(x.dtype) * noise
        y = samples.labels.at[rows].get(mode="clip")
        if poisons:
            keys = sample_keys(poison_seed, client, positions)
            lies = jax.vmap(lambda k: jax.random.randint(k, (), 0, data.classes, y.dtype))(keys)
            y = jnp.where(positions < samples.poisoned[client], lies, y)
        return x, y

    return Federation(counts, malicious, samples, read)


def sample_keys(seed: int, client: Array, positions: Array) -> Array:
    """A key for every sample, the same whenever it is read."""
    key = jax.random.fold_in(jax.random.key(seed), client)
    return jax.vmap(jax.random.fold_in, (None, 0))(key, positions)


def conspirators(config: Config) -> tuple[np.ndarray, int]:
    """Who is malicious [C], and a seed for their labels.

    Drawn apart from the data, so that an attack leaves the clients as they were; of two fractions
    the larger adds to the smaller.
    """
    rng = np.random.default_rng([config.seed, 1])
    malicious = np.zeros(config.partition.clients, bool)
    malicious[rng.permutation(len(malicious))[: config.malicious]] = True
    return malicious, int(rng.integers(2**32))


def split(samples: int, held_out: float, validation: float) -> tuple[int, int, int]:
    """Sizes of a client's training, validation and test parts; each one asked for is not empty.

    Validation samples come out of the held-out part, so training does not depend on them.
    """
    asked = 2 if validation > 0 else 1
    held = min(max(asked, round(samples * held_out)), samples - 1)
    validated = min(max(1, round(held * validation)), held - 1) if validation > 0 else 0
    return samples - held, validated, held - validated
