"""The shapes everything agrees on.

Axes: clients ``C``, selected clients ``S``, samples ``N``, a batch ``B``. Parameters are pytrees; a
*stacked* tree has a leading client axis. Methods are written for **one** client: no function below
ever sees the client axis, the engine adds it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:  # so that commands which only name data start without JAX
    from jax import Array

Tree = Any  # a pytree of arrays


class Dataset(NamedTuple):
    """Samples in host memory, before they are dealt to clients."""

    images: np.ndarray  # [N, ...] uint8 (normalised when gathered) or floating point (used as is)
    labels: np.ndarray  # [N] integer classes, or floating targets
    classes: int
    writers: np.ndarray | None = None  # [N] who produced each sample, when known
    mean: float = 0.0  # uint8 samples reach the model as (x / 255 - mean) / std
    std: float = 1.0
    class_names: tuple[str, ...] = ()  # [classes], when known


class Generator(NamedTuple):
    """Samples that are made whenever they are read: any number of clients, nothing stored.

    `parameters` and `sample` are pure JAX functions of one client and of one sample.
    """

    classes: int  # 0: the labels are targets of a regression
    sizes: Callable[[np.random.Generator, int], np.ndarray]  # rng, clients -> their own sizes [C]
    equal: int  # every client's size where sizes are not the data's own
    parameters: Callable[[Array, Array], Any]
    """a client's key, how many training samples it has -> what its samples are made with."""
    sample: Callable[[Any, Array, Array], tuple[Array, Array]]
    """these, a sample's key, its position among the client's samples -> x [...], y []."""
    least: int = 3  # samples that a client needs
    repeats: bool = False  # a size is that of each split: the same x in all of them, y anew


class Batch(NamedTuple):
    """One mini-batch. Padding repeats a valid sample and has weight zero."""

    x: Array  # [B, ...]
    y: Array  # [B]
    weight: Array  # [B], zero on padding, which comes last
    key: Array  # for what a model draws at random in training, such as dropout


class Shard(NamedTuple):
    """What one client knows of its data: numbers, and a way to read samples by position.

    Positions ``0 .. samples-1`` are the training samples, in a fixed order.
    """

    client: Array  # scalar: the client's number
    clients: int  # how many clients there are
    samples: Array  # scalar: training samples held
    largest: int  # training samples of the largest client
    share: Array  # scalar: samples / training samples of all clients
    read: Callable[[Array], tuple[Array, Array]]  # positions [B] -> x [B, ...], y [B]


class Info(NamedTuple):
    """What a client reports of its local training, as sums."""

    loss: Array  # sum of the training losses met
    samples: Array  # how many samples that sum is over
    steps: Array  # optimiser steps taken


class Model(NamedTuple):
    """A network as plain functions; see `flamejax.models.from_flax` for Flax modules."""

    init: Callable[[Array, Array], Tree]  # key, x [B, ...] -> parameters
    apply: Callable[[Tree, Array], Array]  # parameters, x [B, ...] -> outputs [B, ...]
    loss: Callable[[Array, Array], Array]  # outputs, y -> loss of each sample [B]
    train: Callable[[Tree, Array, Array], Array] | None = None
    """parameters, x, key -> outputs in training, where they differ from `apply` (dropout)."""
    cpu_piece: int | None = None
    """On CPU, larger batches are worked off in pieces of at most so many samples."""


class Admm(NamedTuple):
    """One client's variables in an augmented Lagrangian."""

    theta: Tree  # the personalized model
    w: Tree  # the local copy of the global model
    pi: Tree  # the dual
    alpha: Array  # scalar: weight in the objective
    epsilon: Array  # scalar: tolerance of the theta-step


class Method(NamedTuple):
    """A federated algorithm as pure functions of one client.

    ``hyper`` is a named tuple of traced scalars (every ``float`` setting of the method).
    """

    init: Callable[[Any, Tree, Array], tuple[Tree, Tree]]
    """hyper, parameters, key -> (server state, state of a client that was never selected)."""
    client: Callable[[Any, Tree, Tree, Shard, Array], tuple[Tree, Tree, Info]]
    """hyper, server, client, shard, key -> (client, message to the server, info)."""
    server: Callable[[Any, Tree, Tree], Tree]
    """hyper, server, mean message -> server."""
    models: Callable[[Tree, Tree], tuple[Tree | None, Tree]]
    """server, client -> (global parameters or None, personalized parameters)."""
    last_message: Callable[[Any, Tree, Shard], Tree] | None = None
    """hyper, client, shard -> the message the server last had from this client. With it the mean
    runs over all clients, absent ones included; without it over the selected ones."""
    personalize: Callable[[Any, Tree, Tree, Shard], Tree] | None = None
    """hyper, server, client, shard -> personalized parameters, for methods that fit them to a
    client's data only when they are used; replaces the second of `models`."""
    broadcast: Callable[[Tree], Tree] = lambda server: server
    """server -> what it sends to the clients."""
    admm: Callable[[Any, Tree, Shard], Admm] | None = None
    """hyper, client, shard -> its variables, for methods with an augmented Lagrangian; their
    server state is w."""
    sends_updates: bool = False
    """Messages are steps, and a client that did not move sends zeros; otherwise they are points,
    and it sends what was broadcast. Clipping and the `ipm` attack measure from there."""


class States(NamedTuple):
    """States of some clients, in parts that fit in memory."""

    number: int
    shapes: Tree  # of one
    parts: Iterable[tuple[np.ndarray, Tree]]  # ids [n], states [n, ...]; `number` of them in all


class Overheard(NamedTuple):
    """What colluding clients know of a round's messages before the server does."""

    mean: Tree  # of the benign clients' messages
    std: Tree  # their standard deviation, entry by entry
    center: Tree  # the message of a client that did not move
    senders: Array  # scalar: how many clients send
    malicious: Array  # scalar: how many of them are malicious


class Attack(NamedTuple):
    """What malicious clients do. They train like all others; only what is named here differs."""

    poisons_labels: bool = False
    """Their training labels are uniformly random."""
    craft: Callable[[Any, Array, Tree], Tree] | None = None
    """hyper, key, honest message of one malicious client -> what it sends."""
    collude: Callable[[Any, Overheard], Tree] | None = None
    """hyper, overheard -> what all malicious clients send."""


class Aggregator(NamedTuple):
    """How the server makes one message of many.

    Messages are rows [n, d]. The columns may be only some of the parameters, the rest being on
    other devices: sums over parameters (norms, distances) go through `total`.
    """

    combine: Callable[[Any, Array, Array, Array, Callable[[Array], Array]], Array]
    """hyper, messages [n, d], weights [n] (zero: not there), center [d], total -> [d]."""
    weight: Callable[[np.ndarray], np.ndarray] = np.ones_like
    """Training samples of the clients [C] -> their weights [C]."""
    linear: bool = False
    """`combine` is the weighted mean, so the messages need not be kept side by side."""
