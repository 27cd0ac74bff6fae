"""A fixed random projection P of the parameters, [d_sub, d]: Gaussian rows of unit norm.

There is one P for all clients. It belongs to the server state, so each device has it once (10 rows
of 268,650 parameters in float32 are 10.7 MB) and no client a copy: under `vmap` it stays unbatched.
Beyond `LARGEST` entries it is not kept at all: every product makes the rows again from their keys,
one at a time.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from flamejax import local, tree
from flamejax.methods.common import gradient
from flamejax.types import Batch, Model, Tree

LARGEST = 2**26  # entries of a P that is kept: 268 MB in float32


class Projection(NamedTuple):
    keys: Array  # [d_sub, ...] the key of each row, as plain integers
    rows: Tree | None  # like the parameters, leaves [d_sub, ...]; None: made when needed


class Server(NamedTuple):
    """State of a server whose global model lives in the subspace; it sends w alone."""

    w: Array  # [d_sub]
    projection: Projection


def draw(key: Array, params: Tree, d_sub: int, largest: int = LARGEST) -> Projection:
    """A projection of parameters like these; its rows are kept up to so many entries."""
    keys = jax.random.key_data(jax.random.split(key, d_sub))
    if d_sub * tree.size(params) > largest:
        return Projection(keys, None)
    return Projection(keys, lax.map(lambda key: _row(key, params), keys))


def project(projection: Projection, x: Tree) -> Array:
    """P x, [d_sub]."""
    if projection.rows is None:
        return lax.map(lambda key: _dot(_row(key, x), x), projection.keys)
    products = jax.tree.map(lambda p, x: jnp.tensordot(p, x, x.ndim), projection.rows, x)
    return jax.tree.reduce(jnp.add, products)


def pull(projection: Projection, x: Tree, w: Array) -> Tree:
    """P^T (P x - w), the gradient of 1/2 |P x - w|^2, like the parameters."""
    if projection.rows is not None:
        residual = project(projection, x) - w
        return jax.tree.map(lambda p: jnp.tensordot(residual, p, 1), projection.rows)

    def add(total: Tree, key_and_w: tuple[Array, Array]) -> tuple[Tree, None]:
        key, w = key_and_w
        row = _row(key, x)  # P^T (P x - w) is the sum of row (<row, x> - w) over the rows
        return tree.add(total, tree.scale(_dot(row, x) - w, row)), None

    return lax.scan(add, tree.zeros_like(x), (projection.keys, w))[0]


def pulled(model: Model, hyper: Any, projection: Projection, w: Array) -> local.Gradient:
    """Loss and gradient of f_i(x) + lam/2 |P x - w|^2 + weight_decay/2 |x|^2.

    The loss reported is f_i alone.
    """
    plain = gradient(model, hyper)

    def objective(x: Tree, batch: Batch) -> tuple[Array, Tree]:
        loss, grads = plain(x, batch)
        return loss, tree.add(grads, tree.scale(hyper.lam, pull(projection, x, w)))

    return objective


def _row(key: Array, like: Tree) -> Tree:
    """One row of P, of unit norm over the whole tree."""
    leaves, structure = jax.tree.flatten(like)
    keys = jax.random.split(jax.random.wrap_key_data(key), len(leaves))
    row = [jax.random.normal(k, x.shape, x.dtype) for k, x in zip(keys, leaves, strict=True)]
    return tree.scale(lax.rsqrt(tree.squared_norm(row)), jax.tree.unflatten(structure, row))


def _dot(a: Tree, b: Tree) -> Array:
    return jax.tree.reduce(jnp.add, jax.tree.map(lambda x, y: jnp.sum(x * y), a, b))
