"""The Moreau envelope F(w) = min_theta f(theta) + lam/2 |theta - w|^2, by gradient descent.

It approaches f as lam grows (the paper says: as it becomes smaller), and its gradient is
lam (w - prox(w)).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from flamejax import tree
from flamejax.types import Tree

Function = Callable[[Tree], tuple[Array, Tree]]  # theta -> value, gradient


def prox(
    f: Function, w: Tree, lam: Array, start: Tree, rate: Array, steps: int
) -> tuple[Tree, Array]:
    """argmin_theta f(theta) + lam/2 |theta - w|^2, and the length of the gradient there.

    At most `steps` steps of a rate that should be 1 / (L + lam) for an f that is L-smooth; fewer if
    the gradient is as small as rounding allows.
    """

    def slope(theta: Tree) -> Tree:
        grads = f(theta)[1]
        return jax.tree.map(lambda g, theta, w: g + lam * (theta - w), grads, theta, w)

    def step(carry: tuple[Array, Tree, Tree]) -> tuple[Array, Tree, Tree]:
        taken, theta, grads = carry
        theta = jax.tree.map(lambda theta, g: theta - rate * g, theta, grads)
        return taken + 1, theta, slope(theta)

    def unfinished(carry: tuple[Array, Tree, Tree]) -> Array:
        taken, theta, grads = carry
        size = jnp.finfo(rate.dtype).eps * lam  # of a step that rounding swallows
        floor = size**2 * tree.squared_norm((theta, w))
        return (taken < steps) & (tree.squared_norm(grads) > floor)

    found = lax.while_loop(unfinished, step, (jnp.zeros((), jnp.int32), start, slope(start)))
    return found[1], jnp.sqrt(tree.squared_norm(found[2]))


class Envelope(NamedTuple):
    value: Array  # F(w)
    gradient: Tree  # lam (w - prox(w))
    residual: Array  # length of the gradient in theta where the steps ended; 0 at the prox


def envelope(f: Function, w: Tree, lam: Array, start: Tree, rate: Array, steps: int) -> Envelope:
    """F at w, by steps from `start`.

    >>> import jax.numpy as jnp
    >>> f = lambda theta: (jnp.sum(theta**2) / 2, theta)  # F(w) = lam / (1 + lam) f(w)
    >>> w = jnp.array([2.0])
    >>> found = envelope(f, w, jnp.array(3.0), w, jnp.array(0.25), 50)
    >>> round(float(found.value), 5), round(float(found.gradient[0]), 5)
    (1.5, 1.5)
    """
    nearest, residual = prox(f, w, lam, start, rate, steps)
    away = tree.subtract(w, nearest)
    value = f(nearest)[0] + lam / 2 * tree.squared_norm(away)
    return Envelope(value, tree.scale(lam, away), residual)
