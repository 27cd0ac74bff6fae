"""Networks behind `Model(init, apply, loss)`: one file per family."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
from flax import linen as nn
from jax import Array, lax

from flamejax.types import Model

_PAPERS = {  # the paper's network for a data set; for all others the multilayer perceptron
    "medical_mnist": "cnn_medical",
    "cifar10": "cnn_cifar",
    "femnist": "cnn_femnist",
    "synthetic": "mlr",
    "linreg": "linear",
}


def choose(name: str, data: str) -> str:
    """What `model.name` stands for with the data set `data.name`.

    >>> choose("auto", "tfds:cifar10"), choose("auto", "mnist"), choose("mlr", "mnist")
    ('cnn_cifar', 'mlp', 'mlr')
    """
    return _PAPERS.get(data.removeprefix("tfds:"), "mlp") if name == "auto" else name


def cross_entropy(logits: Array, labels: Array) -> Array:
    """Softmax cross-entropy of each sample: logits [B, K], labels [B] -> [B]."""
    shifted = logits - lax.stop_gradient(jnp.max(logits, axis=-1, keepdims=True))
    at_label = jnp.take_along_axis(shifted, labels[:, None], axis=-1)[:, 0]
    return jnp.log(jnp.sum(jnp.exp(shifted), axis=-1)) - at_label


def from_flax(
    module: nn.Module,
    loss: Callable[[Array, Array], Array] = cross_entropy,
    training: Mapping[str, Any] | None = None,
) -> Model:
    """Any Flax (linen) module whose only collection is `params`.

    training: arguments that the module takes in training only, such as {"train": True} for one
    with dropout.
    """

    def apply(params: Any, x: Array) -> Any:
        return module.apply({"params": params}, x)

    def train(params: Any, x: Array, key: Array) -> Any:
        return module.apply({"params": params}, x, rngs={"dropout": key}, **training or {})

    return Model(
        init=lambda key, x: module.init(key, x)["params"],
        apply=apply,
        loss=loss,
        train=None if training is None else train,
    )
