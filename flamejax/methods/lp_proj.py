"""Lp-Proj-2 (Lin et al. 2022), in the form of its authors' public code.

    client   w_i = w; then `local_rounds` times:
               `inner_steps` times, each with the next batch:
                 theta_i = theta_i - lr (grad f_i(theta_i) + lam P^T (P theta_i - w_i))
               w_i = w_i - global_lr lam (w_i - P theta_i)
             sends w_i, d_sub numbers
    server   w = mean of the selected clients' w_i

P is fixed, [d_sub, d] with rows of unit norm (`projection`), and w starts at P theta_0. There is no
global model: w lives in R^d_sub. Batch size and numbers of steps are the authors' defaults; their
rates and lam (0.1 and 15) are left to the user, for they need d much larger than d_sub.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import Array, lax

from flamejax import local
from flamejax.methods import projection
from flamejax.methods.common import Sgd
from flamejax.methods.projection import Server
from flamejax.types import Info, Method, Model, Shard, Tree
from flamejax.values import Count, Positive


class LpProj(Sgd):
    name: str = "lp_proj"
    lam: Positive = 1.0
    global_lr: Positive = 0.1
    batch: Count = 64
    local_rounds: Count = 5
    inner_steps: Count = 20
    d_sub: Count = 10  # dimension of the subspace

    def build(self, model: Model) -> Method:
        return lp_proj(self, model)


def lp_proj(settings: LpProj, model: Model) -> Method:
    def init(hyper: Any, params: Tree, key: Array) -> tuple[Server, Tree]:
        P = projection.draw(key, params, settings.d_sub)
        return Server(projection.project(P, params), P), params

    def client(
        hyper: Any, server: Server, theta: Tree, shard: Shard, key: Array
    ) -> tuple[Tree, Array, Info]:
        P, optimizer, steps = server.projection, settings.optimizer(hyper), settings.inner_steps

        def local_round(number: Array, carry: Tree) -> Tree:
            theta, w_i, info = carry
            objective = projection.pulled(model, hyper, P, w_i)

            def inner(step: Array, carry: Tree) -> Tree:
                theta, memory, info = carry
                batch = local.nth_batch(shard, key, number * steps + step, settings.batch)
                loss, grads = objective(theta, batch)
                theta, memory = local.update(optimizer, grads, theta, memory)
                return theta, memory, local.count(info, loss, batch)

            start = (theta, optimizer.init(theta), info)
            theta, _, info = lax.fori_loop(0, steps, inner, start)
            w_i = w_i - hyper.global_lr * hyper.lam * (w_i - projection.project(P, theta))
            return theta, w_i, info

        # a client without samples (an empty slot) does nothing
        rounds = jnp.where(shard.samples > 0, settings.local_rounds, 0)
        return lax.fori_loop(0, rounds, local_round, (theta, server.w, local.no_info()))

    def server(hyper: Any, server: Server, mean: Array) -> Server:
        return Server(mean, server.projection)

    def models(server: Server, theta: Tree) -> tuple[None, Tree]:
        return None, theta

    return Method(init, client, server, models, broadcast=lambda server: server.w)
