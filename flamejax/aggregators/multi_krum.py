"""Multi-Krum (Blanchard et al. 2017): the mean of the messages that have the nearest neighbours.

With n messages and f suspects, a message's score is the sum of its squared distances to the
n - f - 2 nearest others; the `keep` messages (default n - f) with the lowest scores are averaged.
It needs n >= 2f + 3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import jax.numpy as jnp
from jax import Array, lax

from flamejax.aggregators import common
from flamejax.errors import InputError
from flamejax.types import Aggregator
from flamejax.values import Count


class MultiKrum(common.Suspicious):
    name: str = "multi_krum"
    keep: Literal["auto"] | Count = "auto"

    def build(self, messages: int, malicious: int) -> Aggregator:
        suspects = self.believed(messages, malicious, (messages - 3) // 2, "n >= 2f + 3")
        if self.keep != "auto" and self.keep > messages:
            raise InputError(f"aggregator.keep = {self.keep} exceeds the {messages} messages")

        def combine(
            hyper: Any,
            messages: Array,
            weights: Array,
            center: Array,
            total: Callable[[Array], Array],
        ) -> Array:
            here = weights > 0
            present = jnp.sum(here)
            scores = krum_scores(distances(messages - center[None], here, total), here, suspects)
            keep = present - suspects if self.keep == "auto" else self.keep
            rank = jnp.argsort(jnp.argsort(scores))  # absent messages come last
            chosen = here & (rank < jnp.maximum(keep, 1))
            return common.mean(messages, chosen.astype(weights.dtype))

        return Aggregator(combine)


def distances(rows: Array, here: Array, total: Callable[[Array], Array]) -> Array:
    """[n, d] -> squared distances [n, n] by one product of matrices."""
    rows = jnp.where(here[:, None], rows, 0)
    products = total(jnp.matmul(rows, rows.T, precision=lax.Precision.HIGHEST))
    squares = jnp.diagonal(products)
    return jnp.maximum(squares[:, None] + squares[None, :] - 2 * products, 0)


def krum_scores(squared: Array, here: Array, suspects: int) -> Array:
    """[n, n] -> the sum over the nearest others of those present [n]; infinite for the absent."""
    n = len(squared)
    others = here[:, None] & here[None, :] & ~jnp.eye(n, dtype=bool)
    nearest = jnp.sort(jnp.where(others, squared, jnp.inf), axis=1)
    wanted = jnp.clip(jnp.sum(here) - suspects - 2, 1, jnp.sum(here) - 1)
    counted = jnp.where(jnp.arange(n)[None, :] < wanted, nearest, 0)
    return jnp.where(here, jnp.sum(counted, axis=1), jnp.inf)
