"""pFedMe (Dinh et al. 2020, Algorithm 1), in its authors' form and with their defaults.

    client   theta = w_i = w; then `local_rounds` times, each with the next batch:
               `inner_steps` times  theta = theta - lr (grad f_i(theta) + lam (theta - w_i))
               w_i = w_i - global_lr lam (w_i - theta)
             sends w_i
    server   w = (1 - beta) w + beta mean of the selected clients' w_i

The personalized model is theta, not w_i. In the `published` form, the one behind the paper's table,
theta goes on from where the client left it (`restart = false`), through a whole epoch
(`inner_steps = "epoch"`), and then there is one w-step. That is FLAME with its dual held at zero,
if global_lr lam = lam alpha / (lam alpha + rho).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
from jax import Array, lax

from flamejax import local
from flamejax.methods.common import Sgd, gradient
from flamejax.types import Batch, Info, Method, Model, Shard, Tree
from flamejax.values import Count, Positive


class PFedMe(Sgd):
    name: str = "pfedme"
    presets: ClassVar = {
        "standard": {},
        "published": {
            "lam": 1.0,
            "lr": 0.01,
            "global_lr": 0.1,
            "momentum": 0.5,
            "weight_decay": 0.01,
            "batch": 100,
            "restart": False,
            "local_rounds": 1,
            "inner_steps": "epoch",
        },
    }
    lam: Positive = 15.0
    lr: Positive = 0.09
    global_lr: Positive = 0.005
    beta: Positive = 1.0  # 0 would freeze the server
    batch: Count = 20
    restart: bool = True  # theta starts every round at w, not where the client left it
    local_rounds: Count = 20
    inner_steps: Count | Literal["epoch"] = 5  # so many on one batch, or one on each batch

    def build(self, model: Model) -> Method:
        return pfedme(self, model)


def pfedme(settings: PFedMe, model: Model) -> Method:
    def init(hyper: Any, params: Tree, key: Array) -> tuple[Tree, Tree]:
        return params, params  # w; theta

    def client(
        hyper: Any, w: Tree, theta: Tree, shard: Shard, key: Array
    ) -> tuple[Tree, Tree, Info]:
        optimizer, rate = settings.optimizer(hyper), hyper.global_lr * hyper.lam

        def local_round(number: Array, carry: Tree) -> Tree:
            theta, w_i, info = carry
            objective = gradient(model, hyper, hyper.lam, w_i)
            steps, batch = inner_batches(shard, key, number)

            def inner(step: Array, carry: Tree) -> Tree:
                theta, memory, info = carry
                seen = batch(step)
                loss, grads = objective(theta, seen)
                theta, memory = local.update(optimizer, grads, theta, memory)
                return theta, memory, local.count(info, loss, seen)

            start = (theta, optimizer.init(theta), info)
            theta, _, info = lax.fori_loop(0, steps, inner, start)
            w_i = jax.tree.map(lambda w, theta: w - rate * (w - theta), w_i, theta)
            return theta, w_i, info

        # a client without samples (an empty slot) does nothing
        rounds = jnp.where(shard.samples > 0, settings.local_rounds, 0)
        start = (w if settings.restart else theta, w, local.no_info())
        return lax.fori_loop(0, rounds, local_round, start)

    def inner_batches(
        shard: Shard, key: Array, number: Array
    ) -> tuple[Array | int, Callable[[Array], Batch]]:
        """How many theta-steps a local round has, and the batch of each of them."""
        if settings.inner_steps == "epoch":
            steps = local.batches(shard, settings.batch)
            first = number * steps
            return steps, lambda step: local.nth_batch(shard, key, first + step, settings.batch)
        one = local.nth_batch(shard, key, number, settings.batch)
        return settings.inner_steps, lambda step: one._replace(
            key=jax.random.fold_in(one.key, step)
        )

    def server(hyper: Any, w: Tree, mean: Tree) -> Tree:
        return jax.tree.map(lambda w, mean: (1 - hyper.beta) * w + hyper.beta * mean, w, mean)

    def models(w: Tree, theta: Tree) -> tuple[Tree, Tree]:
        return w, theta

    return Method(init, client, server, models)
