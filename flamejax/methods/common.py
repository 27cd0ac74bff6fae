"""What most methods share: settings of local SGD, and the gradients it follows."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import jax
import optax
from jax import Array
from pydantic import Field

from flamejax import local
from flamejax.config import MethodSettings
from flamejax.types import Batch, Info, Model, Shard, Tree
from flamejax.values import Count, NonNegative, Positive


class Sgd(MethodSettings):
    """Settings of a method whose clients take steps of mini-batch SGD."""

    preset: str = "standard"
    presets: ClassVar = {"standard": {}}  # a method with several forms has its own
    lr: Positive = 0.01
    batch: Count = 100
    momentum: Annotated[float, Field(ge=0, lt=1)] = 0.0
    weight_decay: NonNegative = 0.0

    def optimizer(self, hyper: Any) -> optax.GradientTransformation:
        return optax.sgd(hyper.lr, hyper.momentum if self.momentum else None)


class LocalSgd(Sgd):
    """The same in whole epochs over a client's samples."""

    epochs: Count = 1

    def descend(
        self, hyper: Any, gradient: local.Gradient, params: Tree, shard: Shard, key: Array
    ) -> tuple[Tree, Info]:
        """The client's epochs of SGD along a gradient."""
        optimizer = self.optimizer(hyper)
        return local.sgd(gradient, optimizer, params, shard, key, self.epochs, self.batch)


def gradient(
    model: Model, hyper: Any, strength: Array | float = 0.0, center: Tree = None
) -> local.Gradient:
    """Loss and gradient of f_i(x) + strength/2 |x - center|^2 + weight_decay/2 |x|^2.

    The loss reported is f_i alone.
    """
    loss_and_grad = local.loss_and_gradient(model)

    def plain(x: Tree, batch: Batch) -> tuple[Array, Tree]:
        loss, grads = loss_and_grad(x, batch)
        return loss, jax.tree.map(lambda g, x: g + hyper.weight_decay * x, grads, x)

    def pulled(x: Tree, batch: Batch) -> tuple[Array, Tree]:
        loss, grads = loss_and_grad(x, batch)
        return loss, jax.tree.map(
            lambda g, x, c: g + strength * (x - c) + hyper.weight_decay * x, grads, x, center
        )

    return plain if center is None else pulled
