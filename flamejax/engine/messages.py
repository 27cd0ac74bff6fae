"""From what clients send to what the server hears, for messages that are kept side by side.

Needed when attackers collude or the server's rule is not a mean; a mean is summed on the way
(`rounds.py`). Rows of messages lie where their clients were trained, spread over the devices.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.flatten_util import ravel_pytree

from flamejax import tree
from flamejax.engine.devices import AXIS
from flamejax.types import Aggregator, Attack, Method, Overheard, Tree


def center_of(method: Method, server: Tree, message: Tree) -> Tree:
    """The message of a client that did not move."""
    return tree.zeros_like(message) if method.sends_updates else method.broadcast(server)


def conspire(
    attack: Attack, hyper: Any, messages: Tree, sent: Array, malicious: Array, center: Tree
) -> Tree:
    """The one lie of all colluders. messages: [k, ...] on each device; sent, malicious: [k]."""
    assert attack.collude
    senders, liars = lax.psum((jnp.sum(sent), jnp.sum(sent & malicious)), AXIS)
    heard = sent & (~malicious | (liars == senders))  # among themselves they know their own
    weight = heard.astype(float)
    count = jnp.maximum(lax.psum(jnp.sum(weight), AXIS), 1)

    def mean_of(rows: Tree) -> Tree:
        def total(x: Array) -> Array:
            return jnp.sum(jnp.where(tree.along(heard, x), x, 0), axis=0)

        return tree.scale(1 / count, lax.psum(jax.tree.map(total, rows), AXIS))

    mean = mean_of(messages)
    spread = jax.tree.map(lambda rows, mean: (rows - mean[None]) ** 2, messages, mean)
    std = jax.tree.map(jnp.sqrt, mean_of(spread))
    return attack.collude(
        hyper, Overheard(mean, std, center, senders.astype(float), liars.astype(float))
    )


def combine(
    aggregator: Aggregator, hyper: Any, messages: Tree, weights: Array, center: Tree
) -> Tree:
    """What the server hears of messages [k, ...] with weights [k] on each device.

    Every device takes all rows of some columns, so that no device needs all messages.
    """
    flat_center, unravel = ravel_pytree(center)
    if not flat_center.size:
        return center
    rows = jnp.concatenate([x.reshape(len(weights), -1) for x in jax.tree.leaves(messages)], axis=1)
    devices = lax.axis_size(AXIS)
    padding = -rows.shape[1] % devices
    columns = (rows.shape[1] + padding) // devices
    rows = jnp.pad(rows, ((0, 0), (0, padding)))
    mine = lax.all_to_all(rows, AXIS, split_axis=1, concat_axis=0, tiled=True)
    middle = lax.dynamic_slice_in_dim(
        jnp.pad(flat_center, (0, padding)), lax.axis_index(AXIS) * columns, columns
    )
    heard = aggregator.combine(
        hyper,
        mine,
        lax.all_gather(weights, AXIS, tiled=True),
        middle,
        lambda x: lax.psum(x, AXIS),
    )
    return unravel(lax.all_gather(heard, AXIS, tiled=True)[: flat_center.size])
