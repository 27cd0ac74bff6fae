"""Ditto (Li et al. 2021, Algorithm 1): its authors' form, and the one behind the paper's table.

    client   with w the model of this round's broadcast:
               v_i = v_i - lr (grad f_i(v_i) + lam (v_i - w))    personalized track, on every batch
               x = x - global_lr grad f_i(x)                     global track, on the same batches
             sends x
    server   w = mean of the selected clients' x  (the same as adding the mean of x - w)

The authors' global track starts every round at x = w. In the `published` form it never does: every
client keeps its own x_i (`reload = false`) and takes one step a round, along the gradient over all
its samples (`global_steps = "one"`), so w is the mean of models trained apart.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, NamedTuple

import jax
import optax
from jax import Array

from flamejax import local
from flamejax.methods.common import LocalSgd, gradient
from flamejax.types import Info, Method, Model, Shard, Tree
from flamejax.values import NonNegative, Positive


class Ditto(LocalSgd):
    name: str = "ditto"
    presets: ClassVar = {
        "standard": {},
        "published": {
            "momentum": 0.5,  # these two are of the personalized track; the other is plain SGD
            "weight_decay": 0.01,
            "reload": False,
            "global_steps": "one",
            "global_lr": 0.1,
        },
    }
    lam: NonNegative = 1.0
    global_lr: Positive = 0.01
    reload: bool = True  # the global track starts each round at w, not where the client left it
    global_steps: Literal["epochs", "one"] = "epochs"  # one on each batch, or one on all samples

    def build(self, model: Model) -> Method:
        return ditto(self, model)


class Client(NamedTuple):
    v: Tree  # the personalized model
    x: Tree  # the client's global track, where it is not reloaded


def ditto(settings: Ditto, model: Model) -> Method:
    def init(hyper: Any, params: Tree, key: Array) -> tuple[Tree, Client]:
        return params, Client(v=params, x=() if settings.reload else params)

    def client(
        hyper: Any, w: Tree, client: Client, shard: Shard, key: Array
    ) -> tuple[Client, Tree, Info]:
        pulled = gradient(model, hyper, hyper.lam, w)
        v, info = settings.descend(hyper, pulled, client.v, shard, key)
        x = global_track(hyper, w if settings.reload else client.x, shard, key)
        return Client(v, x=() if settings.reload else x), x, info

    def global_track(hyper: Any, x: Tree, shard: Shard, key: Array) -> Tree:
        plain = local.loss_and_gradient(model)
        if settings.global_steps == "epochs":
            optimizer = optax.sgd(hyper.global_lr)
            return local.sgd(plain, optimizer, x, shard, key, settings.epochs, settings.batch)[0]
        grads, _ = local.full_gradient(plain, x, shard, settings.batch)
        return jax.tree.map(lambda x, g: x - hyper.global_lr * g, x, grads)

    def server(hyper: Any, w: Tree, mean: Tree) -> Tree:
        return mean

    def models(w: Tree, client: Client) -> tuple[Tree, Tree]:
        return w, client.v

    return Method(init, client, server, models)
