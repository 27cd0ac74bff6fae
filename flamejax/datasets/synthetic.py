"""Synthetic(alpha, beta) of the federated learning literature: ten classes of Gaussian inputs.

Client k has a linear classifier W_k, b_k with entries from N(u_k, 1), u_k ~ N(0, alpha^2), and
inputs x ~ N(v_k, diag(j^-1.2)) with the entries of v_k from N(B_k, 1), B_k ~ N(0, beta^2); its
labels are y = argmax(W_k x + b_k). The papers call alpha and beta variances; the programs that made
the data sets in use take them for standard deviations, and so does this one.

As u_k adds the same to the scores of all classes, alpha changes no label and so no data: clients
differ in their classifiers even in Synthetic(0, 0).
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from flamejax.config import Data
from flamejax.types import Generator

CLASSES = 10
LARGEST = 10_000  # the law of sizes has a heavy tail: one client in 200 would have more


class Parameters(NamedTuple):
    """What the samples of one client are made with; F features."""

    weights: Array  # W_k [F, CLASSES]
    bias: Array  # b_k [CLASSES]
    center: Array  # v_k [F]


def synthetic(settings: Data, quiet: bool = True) -> Generator:
    """Sizes, all splits together, are lognormal(4, 2) + 50, and at most 10,000."""
    features = settings.features

    def parameters(key: Array, samples: Array) -> Parameters:
        # one draw for everything: several small ones take seven times as long
        draw = jax.random.normal(key, (2 + (features + 1) * CLASSES + features,))
        u, shift, entries = settings.alpha * draw[0], settings.beta * draw[1], draw[2:]
        bias, weights, center = jnp.split(entries, [CLASSES, (features + 1) * CLASSES])
        return Parameters(u + weights.reshape(features, CLASSES), u + bias, shift + center)

    def sample(of: Parameters, key: Array, position: Array) -> tuple[Array, Array]:
        deviation = jnp.arange(1, features + 1).astype(float) ** -0.6
        x = of.center + deviation * jax.random.normal(key, (features,))
        scores = jnp.dot(x, of.weights, precision=lax.Precision.HIGHEST) + of.bias
        return x, jnp.argmax(scores).astype(jnp.int32)

    return Generator(CLASSES, sizes, settings.samples, parameters, sample)


def sizes(rng: np.random.Generator, clients: int) -> np.ndarray:
    """Sizes [clients] by the law of the literature, but for its longest tail."""
    return np.minimum(rng.lognormal(4, 2, clients), LARGEST - 50).astype(int) + 50
