"""Fully connected networks: the paper's MLP, and softmax regression."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from flax import linen as nn
from jax import Array, random

from flamejax.errors import InputError
from flamejax.models import from_flax
from flamejax.types import Model


def uniform(bound: float) -> nn.initializers.Initializer:
    def init(key: Array, shape: Any, dtype: Any = float, **_: Any) -> Array:
        return random.uniform(key, shape, dtype, -bound, bound)

    return init


class Dense(nn.Module):
    """Flatten, then dense layers with ReLU between them.

    Weights and biases start uniform in +-1/sqrt(fan-in), as in the runs behind the paper's table.
    """

    widths: Sequence[int]

    @nn.compact
    def __call__(self, x: Array) -> Array:  # [B, ...] -> [B, widths[-1]]
        x = x.reshape(x.shape[0], -1)
        for i, width in enumerate(self.widths):
            init = uniform(x.shape[-1] ** -0.5)
            x = nn.Dense(width, kernel_init=init, bias_init=init, param_dtype=x.dtype)(x)
            x = nn.relu(x) if i < len(self.widths) - 1 else x
        return x


def mlp(classes: int, **_: Any) -> Model:
    """784-128-64-10 on MNIST shapes: 109,386 parameters."""
    return from_flax(Dense((128, 64, classes)))


def mlr(classes: int, **_: Any) -> Model:
    """Multinomial logistic regression: 7,850 parameters on MNIST shapes."""
    return from_flax(Dense((classes,)))


def linear(classes: int, **_: Any) -> Model:
    """Least squares, 1/2 (x'theta - y)^2: no bias, and from zero on, as in the paper's theory."""
    if classes:
        raise InputError(
            f"model.name = 'linear' is a regression, and the data have {classes} classes"
        )
    return Model(
        init=lambda key, x: jnp.zeros(x[0].size, x.dtype),
        apply=lambda theta, x: x.reshape(len(x), -1) @ theta,
        loss=lambda outputs, y: 0.5 * (outputs - y.astype(outputs.dtype)) ** 2,
    )
