"""Clipping: no message moves the mean by more than a radius.

norm_clip        v = c + mean of clip(u_i - c), c what the server broadcast
centered_clip    the same, repeated with c = v (Karimireddy et al. 2021)

clip(x) = x min(1, radius / |x|). The radius is a number, or "auto": the median distance |u_i - c|.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import jax.numpy as jnp
from jax import Array, lax

from flamejax.aggregators import common
from flamejax.config import AggregatorSettings
from flamejax.types import Aggregator
from flamejax.values import Count, Positive


class NormClip(AggregatorSettings):
    name: str = "norm_clip"
    radius: Literal["auto"] | Positive = "auto"

    def build(self, messages: int, malicious: int) -> Aggregator:
        return Aggregator(clip(self, times=1))


class CenteredClip(AggregatorSettings):
    name: str = "centered_clip"
    radius: Literal["auto"] | Positive = "auto"
    iterations: Count = 3

    def build(self, messages: int, malicious: int) -> Aggregator:
        return Aggregator(clip(self, self.iterations))


def clip(settings: NormClip | CenteredClip, times: int) -> Callable[..., Array]:
    def combine(
        hyper: Any, messages: Array, weights: Array, center: Array, total: Callable[[Array], Array]
    ) -> Array:
        here = weights > 0

        def step(_: Array, v: Array) -> Array:
            steps = jnp.where(here[:, None], messages - v[None], 0)
            length = jnp.sqrt(total(jnp.sum(steps**2, axis=1)))
            radius = middle(length, here) if settings.radius == "auto" else hyper.radius
            factor = jnp.minimum(1, radius / jnp.maximum(length, jnp.finfo(length.dtype).tiny))
            return v + common.mean(factor[:, None] * steps, weights)

        return lax.fori_loop(0, times, step, center)

    return combine


def middle(values: Array, here: Array) -> Array:
    """The (lower) median of the values that are here; none of them: zero."""
    ranked = jnp.sort(jnp.where(here, values, jnp.inf))
    found = ranked[jnp.maximum(jnp.sum(here) - 1, 0) // 2]
    return jnp.where(jnp.any(here), found, 0)
