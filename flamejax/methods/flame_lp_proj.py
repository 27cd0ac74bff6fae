"""FLAME in a random subspace: ADMM-based Lp-Proj-2 (the paper's appendix "Extension").

    minimise  sum_i alpha_i ( f_i(theta_i) + lam/2 |P theta_i - w_i|^2 )   subject to  w_i = w

P is fixed, [d_sub, d] with rows of unit norm (`projection`), alpha_i = 1/m, and w_i, pi_i, u_i and
w are in R^d_sub, so there is no global model. As in FLAME, pi_i = lam alpha_i (P theta_i - w_i)
after every update; it is kept all the same: it is small, and the identity costs a product with P.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import jax.numpy as jnp
from jax import Array

from flamejax.methods import projection
from flamejax.methods.common import LocalSgd
from flamejax.methods.projection import Projection, Server
from flamejax.types import Info, Method, Model, Shard, Tree
from flamejax.values import Count, Positive


class FlameLpProj(LocalSgd):
    name: str = "flame_lp_proj"
    preset: str = "paper"
    presets: ClassVar = {"paper": {}}  # the algorithm to the letter
    lam: Positive = 1.0
    rho: Positive = 0.1
    d_sub: Count = 10  # dimension of the subspace

    def build(self, model: Model) -> Method:
        return flame_lp_proj(self, model)


class Client(NamedTuple):
    theta: Tree  # the personalized model
    w: Array  # [d_sub] the local copy of w
    pi: Array  # [d_sub] the dual


Draw = Callable[[Array, Tree, int], Projection]  # of a key, parameters like the model's, d_sub


def flame_lp_proj(settings: FlameLpProj, model: Model, draw: Draw = projection.draw) -> Method:
    def init(hyper: Any, params: Tree, key: Array) -> tuple[Server, Client]:
        P = draw(key, params, settings.d_sub)
        w = projection.project(P, params)
        return Server(w, P), Client(params, w, jnp.zeros_like(w))

    def message(hyper: Any, client: Client, shard: Shard) -> Array:
        return client.w + client.pi / hyper.rho  # u_i

    def client(
        hyper: Any, server: Server, client: Client, shard: Shard, key: Array
    ) -> tuple[Client, Array, Info]:
        P, w, x = server.projection, server.w, hyper.lam / shard.clients  # x = lam alpha_i
        # (183) theta_i: descend on f_i(theta) + lam/2 |P theta - w_i|^2
        objective = projection.pulled(model, hyper, P, client.w)
        theta, info = settings.descend(hyper, objective, client.theta, shard, key)
        # (184) w_i = (lam alpha_i P theta_i + rho w - pi_i) / (lam alpha_i + rho)
        projected = projection.project(P, theta)
        w_i = (x * projected + hyper.rho * w - client.pi) / (x + hyper.rho)
        # (185) pi_i = pi_i + rho (w_i - w)
        pi = client.pi + hyper.rho * (w_i - w)
        client = Client(theta, w_i, pi)
        return client, message(hyper, client, shard), info

    def server(hyper: Any, server: Server, mean: Array) -> Server:
        return Server(mean, server.projection)  # (186) w = (1/m) sum_i u_i

    def models(server: Server, client: Client) -> tuple[None, Tree]:
        return None, client.theta

    return Method(init, client, server, models, message, broadcast=lambda server: server.w)
