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


class Linear(nn.Module):
    """x K + b, where K is kept as [in, out] or, `outputs_first`, as [out, in].

    Kept the second way, on CPU, softmax regression is half as fast again and the MLP 4 % faster in
    batches of 100; a few samples at a time, as convolutional networks take them, it is slower.
    """

    width: int
    outputs_first: bool

    @nn.compact
    def __call__(self, x: Array) -> Array:  # [B, in] -> [B, out]
        init = uniform(x.shape[-1] ** -0.5)

        def initial(key: Array) -> Array:
            kernel = init(key, (x.shape[-1], self.width), x.dtype)
            return kernel.T if self.outputs_first else kernel

        kernel = self.param("kernel", initial)
        kernel = kernel.T if self.outputs_first else kernel
        return x @ kernel + self.param("bias", init, (self.width,), x.dtype)[None]


class Dense(nn.Module):
    """Flatten, then dense layers with ReLU between them.

    Weights and biases start uniform in +-1/sqrt(fan-in), as in the runs behind the paper's table.
    """

    widths: Sequence[int]
    outputs_first: bool = False

    @nn.compact
    def __call__(self, x: Array) -> Array:  # [B, ...] -> [B, widths[-1]]
        x = x.reshape(x.shape[0], -1)
        for i, width in enumerate(self.widths):
            x = Linear(width, self.outputs_first, name=f"Dense_{i}")(x)
            x = nn.relu(x) if i < len(self.widths) - 1 else x
        return x


def mlp(classes: int, **_: Any) -> Model:
    """784-128-64-10 on MNIST shapes: 109,386 parameters."""
    return from_flax(Dense((128, 64, classes), outputs_first=True))


def mlr(classes: int, **_: Any) -> Model:
    """Multinomial logistic regression: 7,850 parameters on MNIST shapes."""
    return from_flax(Dense((classes,), outputs_first=True))


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
