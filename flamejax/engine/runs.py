"""An axis of runs before all others: settings stacked along it, and functions of one run applied
to all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from flamejax.engine.rounds import Setting, State
from flamejax.types import Tree


def stack(settings: Sequence[Setting]) -> tuple[Setting, Setting]:
    """Settings of all runs, stacked where they differ; and for every leaf 0 or, if not, None."""
    structure = jax.tree.structure(settings[0])
    always = (settings[0].client, settings[0].key)
    leaves: list[Any] = []
    axes: list[int | None] = []
    for values in map(list, zip(*map(jax.tree.leaves, settings), strict=True)):
        first = values[0]
        if not any(first is x for x in always) and all(_same(first, x) for x in values):
            leaves.append(first)
            axes.append(None)
            continue
        if isinstance(first, np.ndarray) and first.ndim:  # lists of samples may differ in length
            longest = max(map(len, values))
            rest = [(0, 0)] * (first.ndim - 1)
            values = [np.pad(x, [(0, longest - len(x)), *rest]) for x in values]
        leaves.append((jnp if isinstance(first, jax.Array) else np).stack(values))
        axes.append(0)
    return jax.tree.unflatten(structure, leaves), jax.tree.unflatten(structure, axes)


def _same(a: Any, b: Any) -> bool:
    return a is b or np.array_equal(a, b)


def of_all_runs(
    f: Callable[..., Tree], axes: tuple, state: State, group: int
) -> Callable[..., Tree]:
    """f for all runs: stacked inputs -> stacked [R, ...]."""
    groups, of_some = grouped(f, axes, state, group)
    return lambda *of: flat(lax.map(lambda number: of_some(number, *of), groups))


def grouped(
    f: Callable[..., Tree], axes: tuple, state: State, group: int
) -> tuple[Array, Callable[..., Tree]]:
    """Numbers of groups of runs, and f for the runs of one: (number, stacked inputs) -> stacked."""
    runs = len(state.round)

    def of_some(number: Array, *inputs: Tree) -> Tree:
        def pick(axis: int | None, x: Any) -> Any:
            return x if axis is None else lax.dynamic_slice_in_dim(x, number * group, group)

        parts = jax.tree.map(
            lambda axis, x: jax.tree.map(partial(pick, axis), x),
            axes,
            inputs,
            is_leaf=lambda axis: axis is None,
        )
        if group > 1:
            return jax.vmap(f, in_axes=axes)(*parts)
        # a batch axis of one would only slow the loops down
        alone = jax.tree.map(
            lambda axis, x: x if axis is None else jax.tree.map(lambda leaf: leaf[0], x),
            axes,
            parts,
            is_leaf=lambda axis: axis is None,
        )
        return jax.tree.map(lambda x: x[None], f(*alone))

    return jnp.arange(runs // group, dtype=jnp.int32), of_some


def flat(grouped: Tree) -> Tree:
    """[groups, runs in one, ...] -> [R, ...]"""
    return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), grouped)
