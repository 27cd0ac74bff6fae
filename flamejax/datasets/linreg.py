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


class Parameters(NamedTuple):
    """What the samples of one client are made with; d features."""

    theta: Array  # [d] true parameters
    frequency: Array  # [d] distinct numbers in 1 .. N-1
    samples: Array  # N


def linreg(settings: Data, quiet: bool = True) -> Generator:
    """All clients have `data.samples` rows in each of their splits."""
    features, samples = settings.features, settings.samples
    if samples <= features:
        raise InputError(
            f"data.samples = {samples}: linreg needs more than data.features = {features}"
        )

    def parameters(key: Array, samples: Array) -> Parameters:
        for_theta, for_x = jax.random.split(key)
        away = jax.random.normal(for_theta, (features,)) * features**-0.5
        return Parameters(
            theta=center(features) + settings.spread * away,
            frequency=1 + permute(for_x, jnp.arange(features, dtype=jnp.int32), samples - 1),
            samples=samples,
        )

    def sample(of: Parameters, key: Array, position: Array) -> tuple[Array, Array]:
        x = (2 * settings.scale) ** 0.5 * row(of, position)
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

    These are columns of the discrete cosine transform: orthogonal, of squared length N/2. Whole
    turns are left out in integers, so that no digits are lost however large N is: if the products
    overflow, their difference does not.
    """
    rows = jnp.maximum(of.samples, 1)
    odd = 2 * (position % rows) + 1
    turns = jnp.floor(odd.astype(float) / (4 * rows).astype(float) * of.frequency.astype(float))
    part = odd * of.frequency - 4 * rows * turns.astype(rows.dtype)
    return jnp.cos(jnp.pi * part.astype(float) / (2 * rows).astype(float))
