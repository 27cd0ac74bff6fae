"""Clients' data as device arrays: one flat sample array and who holds which rows of it, or, where
clients take or make their samples when they are read, only how many each has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from flamejax import datasets
from flamejax.config import Config
from flamejax.errors import InputError
from flamejax.partitions import deal, virtual
from flamejax.partitions.natural import sizes
from flamejax.partitions.quality import noise_variance
from flamejax.types import Dataset, Generator, Tree

TRAIN, VALIDATION, TEST = 0, 1, 2
MOST_EVALUATED = 10_000  # clients, unless asked otherwise
EACH = 100  # bytes that a client takes while samples are dealt, at least


class Federation(NamedTuple):
    """All clients' samples.

    A client's samples have positions 0, 1, ...: first training, then validation, then test.
    `arrays` may live on any device; nothing else in here is large. All that `read` needs to know of
    the run's seed is in there too, so that federations of several seeds can share a program.
    """

    counts: np.ndarray  # [C, 3] samples for training, validation, test
    malicious: np.ndarray  # [C] bool
    arrays: Tree  # what `read` reads
    read: Callable[[Tree, Array, Array], tuple[Array, Array]]  # arrays, client, positions -> x, y
    classes: int  # 0: the labels are targets of a regression

    @property
    def clients(self) -> int:
        return len(self.counts)

    @property
    def nbytes(self) -> int:
        """Of the samples."""
        return sum(getattr(x, "nbytes", 0) for x in jax.tree.leaves(self.arrays))


class Stored(NamedTuple):
    """Arrays of stored samples, on the host until the engine places them."""

    images: Any  # [N, ...] as stored: uint8 unless they came as floats
    labels: Any  # [N]
    rows: Any  # [sum of counts] client after client, the rows of its samples
    starts: Any  # [C + 1] where each client begins in `rows`
    noise: Any = None  # [C + 1] standard deviation of each client's input noise
    poisoned: Any = None  # [C + 1] how many of its samples, from the first on, are mislabelled
    noise_seed: Any = None  # of all clients' noise
    poison_seed: Any = None  # of the wrong labels


class Taken(NamedTuple):
    """The same where a client's rows are computed when they are read, see `partitions.virtual`."""

    images: Any
    labels: Any
    order: Any  # [N] rows, group after group
    starts: Any  # [K + 1] where each group begins in `order`
    seed: Any  # of who takes what
    noise: Any = None
    poisoned: Any = None
    noise_seed: Any = None
    poison_seed: Any = None


class Generated(NamedTuple):
    """The same where samples are made when they are read."""

    samples: Any  # [C + 1] training samples of each client
    parameter_seed: Any  # of what clients make their samples with
    seed: Any  # of the samples
    noise: Any = None
    poisoned: Any = None
    noise_seed: Any = None
    poison_seed: Any = None


def assemble(
    config: Config, data: Dataset | None = None, quiet: bool = True
) -> tuple[Dataset | Generator, Federation]:
    """The data of a run and its clients; who holds what is decided by the seed alone."""
    rng = np.random.default_rng(config.seed)
    found = datasets.load(config.data, rng, quiet) if data is None else datasets.check(data)
    return found, federate(config, found, rng)


def federate(config: Config, data: Dataset | Generator, rng: np.random.Generator) -> Federation:
    """Give every client its samples, split them, and describe how to read them."""
    if isinstance(data, Generator):
        _check_room(config.partition.clients)
        made = generate(config, data, rng)
    elif virtual.applies(config.partition):
        _check_room(config.partition.clients)
        made = take(config, data, rng)
    else:
        made = hand_out(config, data, rng)
    return disturb(config, made, int(rng.integers(2**32)))


def _check_room(clients: int) -> None:
    """Refuse clients that would not fit, where samples do not bound their number."""
    from flamejax.engine.memory import free_memory  # which needs this module

    if clients * EACH > free_memory():
        needed = f"{clients * EACH / 1e9:.0f} GB of memory, more than is free"
        raise InputError(f"partition.clients = {clients} need at least {needed}; take fewer")


def hand_out(config: Config, data: Dataset, rng: np.random.Generator) -> Federation:
    """Clients hold rows of the stored samples."""
    parts = deal(rng, data, config.partition)
    counts = split_all(config, np.array([len(part) for part in parts]))
    arrays = Stored(
        *stored(data),
        rows=np.concatenate(parts).astype(np.int32),
        starts=np.concatenate([[0], np.cumsum(counts.sum(1))]).astype(np.int32),
    )

    def rows(arrays: Stored, client: Array, positions: Array) -> Array:
        return arrays.rows.at[arrays.starts[client] + positions].get(mode="clip")

    return by_rows(data, counts, arrays, rows)


def take(config: Config, data: Dataset, rng: np.random.Generator) -> Federation:
    """Clients take rows of the stored samples whenever they are read."""
    samples = config.data.samples
    order, starts, taken = virtual.groups(data, config.partition, samples)
    counts = split_all(config, np.full(config.partition.clients, samples))
    arrays = Taken(*stored(data), order, starts, seed=np.uint32(rng.integers(2**32)))

    def rows(arrays: Taken, client: Array, positions: Array) -> Array:
        key = jax.random.fold_in(jax.random.key(arrays.seed), client)
        return virtual.rows(key, positions, arrays.order, arrays.starts, taken)

    return by_rows(data, counts, arrays, rows)


def stored(data: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Images and labels as devices have them."""
    return data.images, data.labels.astype(np.int32) if _has_classes(data) else data.labels


def _has_classes(data: Dataset) -> bool:
    return np.issubdtype(data.labels.dtype, np.integer)


def by_rows(
    data: Dataset, counts: np.ndarray, arrays: Tree, rows: Callable[[Any, Array, Array], Array]
) -> Federation:
    """Clients with rows of the stored samples: (arrays, client, positions) -> rows."""
    floats = np.issubdtype(data.images.dtype, np.floating)

    def read(arrays: Tree, client: Array, positions: Array) -> tuple[Array, Array]:
        found = rows(arrays, client, positions)
        x = arrays.images.at[found].get(mode="clip").astype(float)
        x = x if floats else (x - 255 * data.mean) * (1 / (255 * data.std))
        return x, arrays.labels.at[found].get(mode="clip")

    honest = np.zeros(len(counts), bool)
    return Federation(counts, honest, arrays, read, data.classes if _has_classes(data) else 0)


def generate(config: Config, data: Generator, rng: np.random.Generator) -> Federation:
    """Clients make their samples whenever they are read."""
    found = sizes(rng, data, config.partition)
    counts = split_all(config, found)
    if data.repeats:
        counts = found[:, None] * (counts > 0)

    def read(arrays: Generated, client: Array, positions: Array) -> tuple[Array, Array]:
        key = jax.random.fold_in(jax.random.key(arrays.parameter_seed), client)
        made = lax.optimization_barrier(data.parameters(key, arrays.samples[client]))
        keys = sample_keys(arrays.seed, client, positions)
        # without these barriers XLA makes the same numbers again wherever they are used
        return lax.optimization_barrier(jax.vmap(data.sample, (None, 0, 0))(made, keys, positions))

    seeds = map(np.uint32, data_seeds(config.seed))
    arrays = Generated(np.append(counts[:, TRAIN], 0).astype(np.int32), *seeds)
    return Federation(counts, np.zeros(len(counts), bool), arrays, read, data.classes)


def data_seeds(seed: int) -> tuple[int, int]:
    """Seeds for the parameters of clients, and for their samples, in a run with this seed.

    Client i is made with `Generator.parameters(fold_in(key(first seed), i), training samples)`.
    """
    first, second = np.random.default_rng([seed, 2]).integers(2**32, size=2)
    return int(first), int(second)


def disturb(config: Config, federation: Federation, noise_seed: int) -> Federation:
    """The same clients, with the noise of quality skew and the labels of poisoners."""
    noisy = config.partition.name == "quality" and config.partition.sigma > 0
    variance = noise_variance(config.partition.sigma if noisy else 0.0, federation.clients)
    malicious, poison_seed = conspirators(config)
    poisons = config.attack.build().poisons_labels
    if poisons and not federation.classes:
        raise InputError("attack.name = 'label_poison' needs classes, and the labels are targets")
    poisoned = np.where(malicious & poisons, federation.counts[:, TRAIN], 0)
    arrays = federation.arrays._replace(
        noise=np.sqrt(np.append(variance, 0.0)),
        poisoned=np.append(poisoned, 0).astype(np.int32),
        noise_seed=np.uint32(noise_seed),
        poison_seed=np.uint32(poison_seed),
    )

    def read(arrays: Tree, client: Array, positions: Array) -> tuple[Array, Array]:
        x, y = federation.read(arrays, client, positions)
        if noisy:
            keys = sample_keys(arrays.noise_seed, client, positions)
            noise = jax.vmap(lambda k: jax.random.normal(k, x.shape[1:], x.dtype))(keys)
            x = x + arrays.noise[client].astype(x.dtype) * noise
        if poisons:
            keys = sample_keys(arrays.poison_seed, client, positions)
            lies = jax.vmap(lambda k: jax.random.randint(k, (), 0, federation.classes, y.dtype))(
                keys
            )
            y = jnp.where(positions < arrays.poisoned[client], lies, y)
        return x, y

    return federation._replace(malicious=malicious, arrays=arrays, read=read)


def sample_keys(seed: Array, client: Array, positions: Array) -> Array:
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


def split_all(config: Config, samples: np.ndarray) -> np.ndarray:
    """Samples [C] of all clients, split as the config says: [C, 3]."""
    validation = config.selection.validation if config.selection.on == "validation" else 0.0
    return split(samples, config.partition.held_out, validation)


def split(samples: np.ndarray, held_out: float, validation: float) -> np.ndarray:
    """Sizes [C, 3] of training, validation and test parts; each one asked for is not empty.

    Validation samples come out of the held-out part, so training does not depend on them.
    """
    asked = 2 if validation > 0 else 1
    held = np.minimum(np.maximum(asked, np.rint(samples * held_out)), samples - 1)
    validated = np.minimum(np.maximum(1, np.rint(held * validation)), held - 1)
    validated = validated if validation > 0 else np.zeros_like(held)
    return np.stack([samples - held, validated, held - validated], axis=-1).astype(int)


def evaluated_clients(config: Config, federation: Federation) -> np.ndarray:
    """The benign clients, or as many of them as evaluations look at; drawn by the seed alone."""
    benign = np.flatnonzero(~federation.malicious)
    asked = config.eval_clients
    most = asked if isinstance(asked, int) else {"all": len(benign), "auto": MOST_EVALUATED}[asked]
    if most >= len(benign):
        return benign
    rng = np.random.default_rng([config.seed, 3])
    return np.sort(rng.choice(benign, most, replace=False))
