"""Local training of one client: the loops every method shares."""

from __future__ import annotations

from collections.abc import Callable

import jax
import jax.numpy as jnp
import optax
from jax import Array, lax

from flamejax import tree
from flamejax.shuffle import permute
from flamejax.types import Batch, Info, Model, Shard, Tree

Gradient = Callable[[Tree, Batch], tuple[Array, Tree]]  # parameters, batch -> mean loss, gradient


@jax.named_scope("read")
def read_batch(shard: Shard, key: Array, index: Array, size: int) -> Batch:
    """Batch number `index` of the epoch whose shuffle is `key`; the last one may be partial."""
    position = index * size + jnp.arange(size, dtype=jnp.int32)
    valid = position < shard.samples
    x, y = shard.read(permute(key, jnp.where(valid, position, 0), shard.samples))
    return Batch(x, y, valid.astype(float), jax.random.fold_in(key, index))


def each_batch(
    step: Callable[[Tree, Batch], Tree],
    carry: Tree,
    shard: Shard,
    key: Array,
    epochs: int,
    size: int,
) -> Tree:
    """`carry` after `step` has seen every batch of every epoch, each epoch in its own order.

    The inner loop runs for as many batches as the client has, so small clients cost little.
    """
    size = min(size, shard.largest)

    def epoch(loop: tuple[Array, Tree], _: None) -> tuple[tuple[Array, Tree], None]:
        number, carry = loop
        order = jax.random.fold_in(key, number)
        carry = lax.fori_loop(
            0,
            batches(shard, size),
            lambda j, inner: step(inner, read_batch(shard, order, j, size)),
            carry,
        )
        return (number + 1, carry), None

    return lax.scan(epoch, (jnp.zeros((), jnp.int32), carry), None, length=epochs)[0][1]


def batches(shard: Shard, size: int) -> Array:
    """How many batches an epoch of this client has."""
    size = min(size, shard.largest)
    return (shard.samples + size - 1) // size


def nth_batch(shard: Shard, key: Array, number: Array, size: int) -> Batch:
    """Batch `number` of an endless stream of shuffled epochs, counted over all of them."""
    an_epoch = jnp.maximum(batches(shard, size), 1)
    order = jax.random.fold_in(key, number // an_epoch)
    return read_batch(shard, order, number % an_epoch, min(size, shard.largest))


def sgd(
    gradient: Gradient,
    optimizer: optax.GradientTransformation,
    params: Tree,
    shard: Shard,
    key: Array,
    epochs: int,
    size: int,
) -> tuple[Tree, Info]:
    """Epochs of mini-batch descent; the optimiser starts afresh."""

    def step(carry: Tree, batch: Batch) -> Tree:
        params, memory, info = carry
        loss, grads = gradient(params, batch)
        params, memory = update(optimizer, grads, params, memory)
        return params, memory, count(info, loss, batch)

    start = (params, optimizer.init(params), no_info())
    params, _, info = each_batch(step, start, shard, key, epochs, size)
    return params, info


def until(
    gradient: Gradient,
    optimizer: optax.GradientTransformation,
    params: Tree,
    shard: Shard,
    size: int,
    tolerance: Array,
    max_steps: int,
) -> tuple[Tree, Info]:
    """Full-gradient descent until the squared norm of the gradient is at most `tolerance`."""

    def step(carry: Tree) -> Tree:
        taken, params, memory, grads, info = carry
        params, memory = update(optimizer, grads, params, memory)
        grads, seen = full_gradient(gradient, params, shard, size)
        return taken + 1, params, memory, grads, tree.add(info, seen)

    def unfinished(carry: Tree) -> Array:
        taken, _, _, grads, _ = carry
        return (taken < max_steps) & (tree.squared_norm(grads) > tolerance)

    grads, info = full_gradient(gradient, params, shard, size)
    start = (jnp.zeros((), jnp.int32), params, optimizer.init(params), grads, info)
    _, params, _, _, info = lax.while_loop(unfinished, step, start)
    return params, info


def full_gradient(gradient: Gradient, params: Tree, shard: Shard, size: int) -> tuple[Tree, Info]:
    """The gradient over all of a client's samples, taken `size` at a time; zero without samples."""
    order = jax.random.key(0)  # the sum does not depend on the order of its batches

    def step(carry: tuple[Tree, Info], batch: Batch) -> tuple[Tree, Info]:
        total, info = carry
        loss, grads = gradient(params, batch)
        total = tree.add(total, tree.scale(jnp.sum(batch.weight), grads))
        return total, count(info, loss, batch)

    total, info = each_batch(step, (tree.zeros_like(params), no_info()), shard, order, 1, size)
    return tree.scale(1 / jnp.maximum(info.samples, 1), total), info


def loss_and_gradient(model: Model) -> Gradient:
    """The loss f_i on one batch, padding left out, and its gradient."""

    def total(params: Tree, batch: Batch) -> Array:
        if model.train:
            outputs = model.train(params, batch.x, batch.key)
        else:
            outputs = model.apply(params, batch.x)
        return jnp.sum(batch.weight * model.loss(outputs, batch.y))

    def mean(params: Tree, batch: Batch) -> Array:
        return total(params, batch) / jnp.maximum(jnp.sum(batch.weight), 1)

    @jax.named_scope("gradient")
    def by_pieces(params: Tree, batch: Batch) -> tuple[Array, Tree]:
        size = piece(model, len(batch.weight))
        if size == len(batch.weight):
            return jax.value_and_grad(mean)(params, batch)
        padded = -len(batch.weight) % size
        whole = [jnp.pad(r, ((0, padded), *[(0, 0)] * (r.ndim - 1))) for r in batch[:3]]

        def add(i: Array, sums: tuple[Array, Tree]) -> tuple[Array, Tree]:
            x, y, weight = (lax.dynamic_slice_in_dim(r, i * size, size) for r in whole)
            part = Batch(x, y, weight, jax.random.fold_in(batch.key, i))
            return tree.add(sums, jax.value_and_grad(total)(params, part))

        weight = jnp.sum(batch.weight)
        filled = jnp.sum(batch.weight > 0, dtype=jnp.int32)
        start = (jnp.zeros_like(weight), tree.zeros_like(params))
        sums = lax.fori_loop(0, (filled + size - 1) // size, add, start)
        return tree.scale(1 / jnp.maximum(weight, 1), sums)

    return by_pieces


def piece(model: Model, batch: int) -> int:
    """How many samples of a batch go through the model at a time: equal parts of it."""
    if model.cpu_piece is None or jax.default_backend() != "cpu":
        return batch
    return -(-batch // -(-batch // model.cpu_piece))


def no_info() -> Info:
    return Info(loss=jnp.zeros(()), samples=jnp.zeros(()), steps=jnp.zeros((), jnp.int32))


@jax.named_scope("update")
def update(
    optimizer: optax.GradientTransformation, grads: Tree, params: Tree, memory: optax.OptState
) -> tuple[Tree, optax.OptState]:
    """One optimiser step."""
    updates, memory = optimizer.update(grads, memory, params)
    return optax.apply_updates(params, updates), memory


def count(info: Info, loss: Array, batch: Batch) -> Info:
    """The step's mean loss over the batch, added to the sums."""
    samples = jnp.sum(batch.weight)
    return Info(info.loss + samples * loss, info.samples + samples, info.steps + 1)
