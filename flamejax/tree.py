"""Arithmetic on pytrees, and clients in and out of stacked ones."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from jax import Array

from flamejax.types import Tree


def add(a: Tree, b: Tree) -> Tree:
    return jax.tree.map(jnp.add, a, b)


def subtract(a: Tree, b: Tree) -> Tree:
    return jax.tree.map(jnp.subtract, a, b)


def scale(factor: Array | float, tree: Tree) -> Tree:
    return jax.tree.map(lambda x: factor * x, tree)


def zeros_like(tree: Tree) -> Tree:
    return jax.tree.map(jnp.zeros_like, tree)


def where(condition: Array, a: Tree, b: Tree) -> Tree:
    """Leafwise ``a if condition else b`` for a scalar condition."""
    return jax.tree.map(lambda x, y: jnp.where(condition, x, y), a, b)


def choose(flags: Array, one: Tree, rows: Tree) -> Tree:
    """Rows [n, ...] of a stacked tree, `one` in the place of those with a flag [n]."""
    return select(flags, jax.tree.map(lambda x: x[None], one), rows)


def select(flags: Array, new: Tree, old: Tree) -> Tree:
    """Rows [n, ...]: new ones of those with a flag [n]."""
    return jax.tree.map(lambda x, y: jnp.where(along(flags, y), x, y), new, old)


def finite(tree: Tree) -> Array:
    """Whether the squared norm is finite: no NaN, no infinity, nothing near overflow. A product of
    vectors is the quickest pass over the numbers."""
    return jnp.isfinite(sum((jnp.vdot(x, x) for x in jax.tree.leaves(tree)), start=jnp.zeros(())))


def along(flags: Array, like: Array) -> Array:
    """[n] in a shape that broadcasts against rows [n, ...]."""
    return flags.reshape(flags.shape + (1,) * (like.ndim - flags.ndim))


def dot(a: Tree, b: Tree) -> Array:
    products = jax.tree.map(lambda x, y: jnp.sum(x * y), a, b)
    return sum(jax.tree.leaves(products), start=jnp.zeros(()))


def squared_norm(tree: Tree) -> Array:
    return sum((jnp.sum(x * x) for x in jax.tree.leaves(tree)), start=jnp.zeros(()))


def size(tree: Tree) -> int:
    """Number of scalars in the tree (works on shapes as well)."""
    return sum(x.size for x in jax.tree.leaves(tree))


def nbytes(tree: Tree) -> int:
    return sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(tree))


def stack(tree: Tree, count: int) -> Tree:
    """`count` copies of a tree along a new leading axis."""
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (count, *x.shape)), tree)


def take(stacked: Tree, rows: Array) -> Tree:
    """Rows [G] of a stacked tree; a single row is a slice, which XLA reads without a copy."""
    if rows.shape == (1,):
        return jax.tree.map(lambda x: jax.lax.dynamic_slice_in_dim(x, rows[0], 1, axis=0), stacked)
    return jax.tree.map(lambda x: x.at[rows].get(mode="clip"), stacked)


def put(stacked: Tree, rows: Array, new: Tree) -> Tree:
    """Write rows [G]; rows beyond the end are dropped."""
    if rows.shape == (1,):
        return jax.tree.map(
            lambda x, y: jax.lax.dynamic_update_slice_in_dim(x, y, rows[0], axis=0), stacked, new
        )
    return jax.tree.map(lambda x, y: x.at[rows].set(y, mode="drop"), stacked, new)
