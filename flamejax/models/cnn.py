"""The paper's convolutional networks: two convolutions, each with a pool, then dense layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
from flax import linen as nn
from jax import Array

from flamejax.errors import InputError
from flamejax.models import from_flax
from flamejax.models.conv import convolve_and_pool
from flamejax.models.dense import Dense, uniform
from flamejax.types import Model


class Cnn(nn.Module):
    """Images of one channel stand for gray images with that channel repeated `channels` times.

    Weights and biases start uniform in +-1/sqrt(fan-in), as in the runs behind the paper's table.
    """

    convolutions: Sequence[tuple[int, int]]  # features and size of each kernel
    widths: Sequence[int]  # of the dense layers
    channels: int  # of the images
    same: bool  # images keep their size in a convolution, zeros around them
    native: bool | None  # XLA's convolutions, or products of matrices; None: what suits the backend
    dropout: float = 0.0

    @nn.compact
    def __call__(self, x: Array, train: bool = False) -> Array:  # [B, H, W, C] -> [B, outputs]
        if x.ndim != 4 or x.shape[-1] not in (1, self.channels):
            needed = "one channel" if self.channels == 1 else f"1 or {self.channels} channels"
            shape = " x ".join(map(str, x.shape[1:]))
            raise InputError(f"model.name: this network needs images of {needed}, not {shape}")
        native = jax.default_backend() != "cpu" if self.native is None else self.native
        x, channels = x.transpose(3, 1, 2, 0), self.channels  # batch last
        for i, (features, size) in enumerate(self.convolutions):
            around = size // 2 * self.same
            if min(x.shape[1:3]) + 2 * around < size + 1:  # nothing would be left to pool
                raise InputError("model.name: the images are too small for this network")
            init = uniform((size * size * channels) ** -0.5)
            kernel = self.param(f"kernel{i}", init, (size, size, channels, features), x.dtype)
            bias = self.param(f"bias{i}", init, (features,), x.dtype)
            if len(x) < channels:  # equal channels see the sum of their weights
                kernel = kernel.sum(axis=2, keepdims=True)
            x = convolve_and_pool(x, kernel, around, native)
            x, channels = nn.relu(x + bias[:, None, None, None]), features
        x = x.reshape(-1, x.shape[-1]).T
        x = nn.Dropout(self.dropout, deterministic=not train)(x)
        return Dense(self.widths)(x)


def _build(piece: int, convolution: str, **architecture: Any) -> Model:
    """piece: how many images at a time are fastest on CPU; the patches of more leave its caches."""
    native = {"native": True, "matmul": False}.get(convolution)
    module = Cnn(native=native, **architecture)
    training = {"train": True} if module.dropout else None
    return from_flax(module, training=training)._replace(cpu_piece=piece)


def cnn_cifar(classes: int, convolution: str = "auto", **_: Any) -> Model:
    """32 x 32 x 3: 268,650 parameters for 10 classes."""
    return _build(
        5, convolution, convolutions=((16, 3), (32, 3)), widths=(128, classes), channels=3,
        same=True,
    )  # fmt: skip


def cnn_medical(classes: int, convolution: str = "auto", **_: Any) -> Model:
    """64 x 64 x 3, gray or not: 206,678 parameters for 6 classes."""
    return _build(
        5, convolution, convolutions=((32, 3), (16, 3)), widths=(64, classes), channels=3,
        same=False, dropout=0.2,
    )  # fmt: skip


def cnn_femnist(classes: int, convolution: str = "auto", **_: Any) -> Model:
    """28 x 28 x 1: 214,590 parameters. It has 62 outputs, as in the paper, though digits are 10."""
    return _build(
        10, convolution, convolutions=((32, 7), (64, 3)), widths=(max(62, classes),), channels=1,
        same=True,
    )  # fmt: skip
