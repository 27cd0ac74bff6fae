"""pFedMe (Dinh et al. 2020, Algorithm 1), in its authors' form and with their defaults.

    client   theta = w_i = w; then `local_rounds` times, each with the next batch:
               `inner_steps` times  theta = theta - lr (grad f_i(theta) + lam (theta - w_i))
               w_i = w_i - global_lr lam (w_i - theta)
             sends w_i
    server   w = (1 - beta) w + beta mean of the selected clients' w_i

The personalized model is theta, not w_i.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from flamejax import local
from flamejax.config import Count, Positive
from flamejax.methods.common import Sgd, gradient
from flamejax.types import Info, Method, Model, Shard, Tree


class PFedMe(Sgd):
    name: str = "pfedme"
    lam: Positive = 15.0
    lr: Positive = 0.09
    global_lr: Positive = 0.005
    beta: Positive = 1.0  # 0 would freeze the server
    local_rounds: Count = 20
    inner_steps: Count = 5
    batch: Count = 20

    def build(self, model: Model) -> Method:
        return pfedme(self, model)


def pfedme(settings: PFedMe, model: Model) -> Method:
    def init(hyper: Any, params: Tree, key: Array) -> tuple[Tree, Tree]:
        return params, params  # w; theta, kept only to be evaluated

    def client(
        hyper: Any, w: Tree, client: Tree, shard: Shard, key: Array
    ) -> tuple[Tree, Tree, Info]:
        optimizer = settings.optimizer(hyper)

        def local_round(number: Array, carry: Tree) -> Tree:
            theta, w_i, info = carry
            batch = local.nth_batch(shard, key, number, settings.batch)
            objective = gradient(model, hyper, hyper.lam, w_i)

            def inner(_: Array, carry: Tree) -> Tree:
                theta, memory, info = carry
                loss, grads = objective(theta, batch)
                theta, memory = local.update(optimizer, grads, theta, memory)
                return theta, memory, local.count(info, loss, batch)

            start = (theta, optimizer.init(theta), info)
            theta, _, info = lax.fori_loop(0, settings.inner_steps, inner, start)
            rate = hyper.global_lr * hyper.lam
            w_i = jax.tree.map(lambda w, theta: w - rate * (w - theta), w_i, theta)
            return theta, w_i, info

        # a client without samples (an empty slot) does nothing
        rounds = jnp.where(shard.samples > 0, settings.local_rounds, 0)
        theta, w_i, info = lax.fori_loop(0, rounds, local_round, (w, w, local.no_info()))
        return theta, w_i, info

    def server(hyper: Any, w: Tree, mean: Tree) -> Tree:
        return jax.tree.map(lambda w, mean: (1 - hyper.beta) * w + hyper.beta * mean, w, mean)

    def models(w: Tree, theta: Tree) -> tuple[Tree, Tree]:
        return w, theta

    return Method(init, client, server, models)
