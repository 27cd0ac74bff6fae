"""Median and trimmed mean (Yin et al. 2018), entry by entry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import Array

from flamejax.aggregators.common import Suspicious, sort_rows
from flamejax.config import AggregatorSettings
from flamejax.types import Aggregator


class Median(AggregatorSettings):
    name: str = "median"

    def build(self, messages: int, malicious: int) -> Aggregator:
        return Aggregator(cut(lambda present: (present - 1) // 2))


class TrimmedMean(Suspicious):
    """Of every entry the `suspects` largest and smallest values are left out."""

    name: str = "trimmed_mean"

    def build(self, messages: int, malicious: int) -> Aggregator:
        suspects = self.believed(messages, malicious, (messages - 1) // 2, "n >= 2f + 1")
        return Aggregator(cut(lambda present: jnp.minimum(suspects, (present - 1) // 2)))


def cut(how_many: Callable[[Array], Array]) -> Callable[..., Array]:
    """The mean of what is left when so many values are cut at either end; of all but the middle
    one or two it is the median."""

    def combine(
        hyper: Any, messages: Array, weights: Array, center: Array, total: Callable[[Array], Array]
    ) -> Array:
        present = jnp.sum(weights > 0)
        ends = how_many(present)
        rank = jnp.arange(len(messages))
        kept = (rank >= ends) & (rank < present - ends)
        rows = jnp.where(kept[:, None], sort_rows(messages, weights), 0)
        return jnp.sum(rows, axis=0) / jnp.maximum(jnp.sum(kept), 1).astype(rows.dtype)

    return combine
