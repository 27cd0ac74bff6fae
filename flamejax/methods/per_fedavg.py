"""Per-FedAvg (Fallah et al. 2020, Algorithm 1), first-order: the Hessian term is left out.

    client   x = w; then `local_steps` times, with the next batch D and the one after it, D':
               x~ = x - inner_lr grad f_i(x; D)
               x  = x - lr grad f_i(x~; D')
             sends x
    server   w = mean of the selected clients' x

w is meant to be one step away from good: the personalized model, made when it is used, is
w - inner_lr grad f_i(w), with the gradient over all of a client's training samples.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from flamejax import local
from flamejax.methods.common import Sgd, gradient
from flamejax.types import Info, Method, Model, Shard, Tree
from flamejax.values import Count, Positive


class PerFedAvg(Sgd):
    name: str = "per_fedavg"
    inner_lr: Positive = 0.01  # alpha of the authors; lr is their beta
    local_steps: Count = 10  # tau

    def build(self, model: Model) -> Method:
        return per_fedavg(self, model)


def per_fedavg(settings: PerFedAvg, model: Model) -> Method:
    def init(hyper: Any, params: Tree, key: Array) -> tuple[Tree, tuple]:
        return params, ()

    def adapted(hyper: Any, x: Tree, grads: Tree) -> Tree:
        return jax.tree.map(lambda x, g: x - hyper.inner_lr * g, x, grads)

    def client(
        hyper: Any, w: Tree, client: tuple, shard: Shard, key: Array
    ) -> tuple[tuple, Tree, Info]:
        optimizer, objective = settings.optimizer(hyper), gradient(model, hyper)

        def step(number: Array, carry: Tree) -> Tree:
            x, memory, info = carry
            inner, outer = (
                local.nth_batch(shard, key, 2 * number + j, settings.batch) for j in (0, 1)
            )
            _, grads = objective(x, inner)
            loss, grads = objective(adapted(hyper, x, grads), outer)
            x, memory = local.update(optimizer, grads, x, memory)
            return x, memory, local.count(info, loss, outer)

        # a client without samples (an empty slot) does nothing
        steps = jnp.where(shard.samples > 0, settings.local_steps, 0)
        x, _, info = lax.fori_loop(0, steps, step, (w, optimizer.init(w), local.no_info()))
        return (), x, info

    def server(hyper: Any, w: Tree, mean: Tree) -> Tree:
        return mean

    def models(w: Tree, client: tuple) -> tuple[Tree, Tree]:
        return w, w

    def personalize(hyper: Any, w: Tree, client: tuple, shard: Shard) -> Tree:
        grads, _ = local.full_gradient(gradient(model, hyper), w, shard, settings.batch)
        return adapted(hyper, w, grads)

    return Method(init, client, server, models, personalize=personalize)
