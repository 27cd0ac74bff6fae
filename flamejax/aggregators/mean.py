"""The mean of all messages, equally or by the samples that clients train on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jax import Array

from flamejax.aggregators import common
from flamejax.config import AggregatorSettings
from flamejax.types import Aggregator


def combine(
    hyper: Any, messages: Array, weights: Array, center: Array, total: Callable[[Array], Array]
) -> Array:
    return common.mean(messages, weights)


class Mean(AggregatorSettings):
    name: str = "mean"

    def build(self, messages: int, malicious: int) -> Aggregator:
        return Aggregator(combine, linear=True)


class WeightedMean(AggregatorSettings):
    name: str = "weighted_mean"

    def build(self, messages: int, malicious: int) -> Aggregator:
        return Aggregator(combine, weight=lambda samples: samples, linear=True)
