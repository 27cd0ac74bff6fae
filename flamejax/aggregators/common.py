"""What robust aggregators share: a number of suspects, and sorting."""

from __future__ import annotations

from typing import Annotated, Literal

import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from pydantic import Field

from flamejax.config import AggregatorSettings
from flamejax.errors import InputError


class Suspicious(AggregatorSettings):
    """Settings of an aggregator that is told how many messages to distrust."""

    # "auto": as many as there are malicious clients, or as many as the rule can bear
    suspects: Literal["auto"] | Annotated[int, Field(ge=0, lt=2**31)] = "auto"

    def believed(self, messages: int, malicious: int, most: int, rule: str) -> int:
        """The number to use, of at most `most`; `rule` says why more are refused."""
        if most < 0:
            raise InputError(
                f"aggregator.name = '{self.name}' needs {rule}, but {messages} message(s) meet in "
                "a round; raise participation.clients_per_round or partition.clients"
            )
        if self.suspects == "auto":
            return min(malicious, most)
        if self.suspects > most:
            raise InputError(
                f"aggregator.suspects = {self.suspects} of {messages} messages: {self.name} needs "
                f"{rule}, so at most {most}"
            )
        return self.suspects


def mean(messages: Array, weights: Array) -> Array:
    """[n, d], [n] -> the weighted mean [d]; a row without weight may hold anything."""
    rows = jnp.where(weights[:, None] > 0, messages, 0)
    share = weights / jnp.maximum(jnp.sum(weights), jnp.finfo(weights.dtype).tiny)
    return jnp.matmul(share, rows, precision=lax.Precision.HIGHEST)


def sort_rows(messages: Array, weights: Array) -> Array:
    """Every column of [n, d] by rising value, the rows without weight at the end as infinities.

    A bitonic network: each step exchanges whole rows, so it runs at the speed of memory. XLA's
    own sort of many short columns is an order of magnitude slower on CPU.
    """
    n = len(messages)
    size = 1 << (n - 1).bit_length()
    i = np.arange(size, dtype=np.int32)
    powers = range(1, size.bit_length())
    steps = [(1 << e, 1 << s) for e in powers for s in reversed(range(e))]

    def step(rows: Array, block: Array) -> tuple[Array, None]:
        run, gap = block
        partner = rows[i ^ gap]
        takes_smaller = ((i & run) == 0) == ((i & gap) == 0)
        smaller, larger = jnp.minimum(rows, partner), jnp.maximum(rows, partner)
        return jnp.where(takes_smaller[:, None], smaller, larger), None

    rows = jnp.where(weights[:, None] > 0, messages, jnp.inf)
    rows = jnp.pad(rows, ((0, size - n), (0, 0)), constant_values=jnp.inf)
    return lax.scan(step, rows, jnp.array(steps, jnp.int32).reshape(-1, 2))[0][:n]
