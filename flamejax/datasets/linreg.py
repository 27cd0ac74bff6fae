"""Federated linear regression, on which the paper's theory is worked out.

Client i has y = X_i theta_i + z with z ~ N(0, noise^2 I_N) and X_i'X_i = N b I exactly, b being
`data.scale`; validation and test sets have the same X_i and fresh z. The true parameters theta_i
are `data.spread` away from a common center of length 1, in root mean square over clients.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from flamejax.config import Data
from flamejax.errors import InputError
from flamejax.shuffle import permute
from flamejax.types import Generator

MOST = 46_000  # rows of X: beyond, (2n + 1) k would not fit into 32 bits


class Parameters(NamedTuple):
    """What the samples of one client are made with; d features."""

    theta: Array  # [d] true parameters
    frequency: Array  # [d] distinct numbers in 1 .. N-1
    sign: Array  # [d] +-1
    samples: Array  # N


def linreg(settings: Data, quiet: bool = True) -> Generator:
    """All clients have `data.samples` rows in each of their splits."""
    features, samples = settings.features, settings.samples
    if not features < samples <= MOST:
        raise InputError(
            f"data.samples = {samples}: linreg needs more than data.features = {features} "
            f"and at most {MOST}"
        )

    def parameters(key: Array, samples: Array) -> Parameters:
        keys = jax.random.split(key, 3)
        away = jax.random.normal(keys[0], (features,)) * features**-0.5
        return Parameters(
            theta=center(features) + settings.spread * away,
            frequency=1 + permute(keys[1], jnp.arange(features, dtype=jnp.int32), samples - 1),
            sign=jax.random.rademacher(keys[2], (features,), float),
            samples=samples,
        )

    def sample(of: Parameters, key: Array, position: Array) -> tuple[Array, Array]:
        x = of.sign * jnp.sqrt(2 * settings.scale) * row(of, position)
        clean = jnp.dot(x, of.theta, precision=lax.Precision.HIGHEST)
        return x, clean + settings.noise * jax.random.normal(key)

    return Generator(
        classes=0,
        sizes=lambda rng, clients: np.full(clients, samples),
        equal=samples,
        parameters=parameters,
        sample=sample,
        least=features + 1,
        repeats=True,
    )


def center(features: int) -> Array:
    """What the true parameters have in common [d]: the same in every federation."""
    return jnp.full(features, features**-0.5)


def row(of: Parameters, position: Array) -> Array:
    """cos(pi (2n + 1) k / 2N) for the frequencies k [d] of a client; n = position mod N.

    These are columns of the discrete cosine transform: orthogonal, of squared length N/2. The
    fraction is reduced to one turn in whole numbers, so that large N lose no digits.
    """
    rows = jnp.maximum(of.samples, 1).astype(jnp.uint32)
    n, k = position.astype(jnp.uint32) % rows, of.frequency.astype(jnp.uint32)
    turn = ((2 * n + 1) * k) % (4 * rows)
    return jnp.cos(jnp.pi * turn.astype(float) / (2 * rows).astype(float))
