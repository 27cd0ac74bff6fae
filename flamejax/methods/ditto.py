"""Ditto (Li et al. 2021, Algorithm 1), in its authors' form.

client   on every batch of the local epochs, with w the model of this round's broadcast:
           v_i = v_i - lr (grad f_i(v_i) + lam (v_i - w))          personalized track
           x   = x - global_lr grad f_i(x),  x = w at the start    global track
         sends x
server   w = mean of the selected clients' x  (the same as adding the mean of x - w)
"""

from __future__ import annotations

from typing import Any

import optax
from jax import Array

from flamejax import local
from flamejax.config import NonNegative, Positive
from flamejax.methods.common import LocalSgd, gradient
from flamejax.types import Batch, Info, Method, Model, Shard, Tree


class Ditto(LocalSgd):
    name: str = "ditto"
    lam: NonNegative = 1.0
    global_lr: Positive = 0.01

    def build(self, model: Model) -> Method:
        return ditto(self, model)


def ditto(settings: Ditto, model: Model) -> Method:
    def init(hyper: Any, params: Tree, key: Array) -> tuple[Tree, Tree]:
        return params, params  # w; v_i

    def client(hyper: Any, w: Tree, v: Tree, shard: Shard, key: Array) -> tuple[Tree, Tree, Info]:
        personal, shared = settings.optimizer(hyper), optax.sgd(hyper.global_lr)
        pulled, plain = gradient(model, hyper, hyper.lam, w), gradient(model, hyper)

        def step(carry: Tree, batch: Batch) -> Tree:
            v, v_memory, x, x_memory, info = carry
            loss, grads = pulled(v, batch)
            v, v_memory = local.update(personal, grads, v, v_memory)
            _, grads = plain(x, batch)
            x, x_memory = local.update(shared, grads, x, x_memory)
            return v, v_memory, x, x_memory, local.count(info, loss, batch)

        start = (v, personal.init(v), w, shared.init(w), local.no_info())
        v, _, x, _, info = local.each_batch(
            step, start, shard, key, settings.epochs, settings.batch
        )
        return v, x, info

    def server(hyper: Any, w: Tree, mean: Tree) -> Tree:
        return mean

    def models(w: Tree, v: Tree) -> tuple[Tree, Tree]:
        return w, v

    return Method(init, client, server, models)
