"""Geometric median by the smoothed Weiszfeld iteration (Pillutla et al. 2022, RFA).

v = sum_i b_i u_i / sum_i b_i  with  b_i = 1 / max(smoothing, |u_i - v|), started at what the
server broadcast: unlike the mean, no attacker can move it away.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import Array, lax

from flamejax.aggregators import common
from flamejax.config import AggregatorSettings
from flamejax.types import Aggregator
from flamejax.values import Count, Positive


class GeometricMedian(AggregatorSettings):
    name: str = "geometric_median"
    iterations: Count = 8
    smoothing: Positive = 1e-6

    def build(self, messages: int, malicious: int) -> Aggregator:
        def combine(
            hyper: Any,
            messages: Array,
            weights: Array,
            center: Array,
            total: Callable[[Array], Array],
        ) -> Array:
            def step(_: Array, v: Array) -> Array:
                away = jnp.sqrt(total(jnp.sum((messages - v[None]) ** 2, axis=1)))
                near = weights / jnp.maximum(hyper.smoothing, away)
                return common.mean(messages, jnp.where(weights > 0, near, 0))

            return lax.fori_loop(0, self.iterations, step, center)

        return Aggregator(combine)
