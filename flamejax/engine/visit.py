"""Going through the clients of a device, some at a time, with their states updated in place."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from flamejax import tree
from flamejax.types import Tree


class Cohort(NamedTuple):
    """Clients to visit: where their states are, and who they are."""

    rows: Any  # [n]
    ids: Any  # [n], C for nobody


def visit(
    f: Callable[[Tree, Array], tuple[Tree, Tree, Tree]],
    store: Tree,
    cohort: Cohort,
    width: int,
    nobody: int,
) -> tuple[Tree, Tree, Tree]:
    """Go through a cohort, `width` clients at a time, updating the store in place.

    f: (state, number) of one client -> (new state, or None to leave it; what to sum over clients;
    what to keep of each). Returns the store, the sums, and what was kept, [len(cohort), ...].
    """
    pad = -len(cohort.ids) % width
    beyond = jnp.iinfo(jnp.int32).max  # a row that is never written
    rows = jnp.pad(cohort.rows, (0, pad), constant_values=beyond).reshape(-1, width)
    ids = jnp.pad(cohort.ids, (0, pad), constant_values=nobody).reshape(-1, width)

    def one(state: Tree, number: Array) -> tuple[Tree, Tree, Tree]:
        new, summed, kept = f(state, number)
        return new, tree.where(number < nobody, summed, tree.zeros_like(summed)), kept

    @partial(jax.jit, inline=True)  # traced once, although it is looked at twice
    def side_by_side(states: Tree, ids: Array) -> tuple[Tree, Tree, Tree]:
        if width > 1:
            return jax.vmap(one)(states, ids)
        # a batch axis of one would only slow the loops down
        result = one(jax.tree.map(lambda x: x[0], states), ids[0])
        return jax.tree.map(lambda x: x[None], result)

    # A group's states are written when the next group begins: were they written right away, XLA
    # would see reads of old states after the write, and copy the whole store for every group.
    def group(carry: Tree, who: Cohort) -> tuple[Tree, Tree]:
        store, pending, sums = carry
        store = write(store, pending)
        new, summed, kept = side_by_side(read(store, who.rows), who.ids)
        sums = jax.tree.map(lambda s, x: s + jnp.sum(x, axis=0, dtype=x.dtype), sums, summed)
        return (store, (who.rows, new), sums), kept

    @jax.named_scope("states")
    def read(store: Tree, rows: Array) -> Tree:
        return tree.take(store, rows)

    @jax.named_scope("states")
    def write(store: Tree, pending: tuple[Array, Tree]) -> Tree:
        rows, states = pending
        return store if states is None else tree.put(store, rows, states)

    first = read(store, rows[0])
    shapes = jax.eval_shape(side_by_side, first, ids[0])
    sums = jax.tree.map(lambda x: jnp.zeros(x.shape[1:], x.dtype), shapes[1])
    pending = (rows[0], None if shapes[0] is None else first)
    (store, pending, sums), kept = lax.scan(group, (store, pending, sums), Cohort(rows, ids))
    kept = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[: len(cohort.ids)], kept)
    return write(store, pending), sums, kept
