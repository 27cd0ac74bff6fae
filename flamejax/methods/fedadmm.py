"""FedADMM: consensus ADMM, what FLAME becomes as lam grows without bound.

client   theta_i: SGD on f_i(theta) + <pi_i, theta - w> + rho/2 |theta - w|^2, from theta_i
         pi_i = pi_i + rho (theta_i - w)
         sends u_i = theta_i + pi_i / rho
server   w = mean of all clients' last u_i
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
from jax import Array

from flamejax import tree
from flamejax.methods.common import LocalSgd, gradient
from flamejax.types import Info, Method, Model, Shard, Tree
from flamejax.values import Positive


class FedAdmm(LocalSgd):
    name: str = "fedadmm"
    rho: Positive = 0.1

    def build(self, model: Model) -> Method:
        return fedadmm(self, model)


class Client(NamedTuple):
    theta: Tree
    pi: Tree  # the dual


def fedadmm(settings: FedAdmm, model: Model) -> Method:
    def init(hyper: Any, params: Tree, key: Array) -> tuple[Tree, Client]:
        return params, Client(params, tree.zeros_like(params))

    def message(hyper: Any, client: Client, shard: Shard) -> Tree:
        return jax.tree.map(lambda theta, pi: theta + pi / hyper.rho, client.theta, client.pi)

    def client(
        hyper: Any, w: Tree, client: Client, shard: Shard, key: Array
    ) -> tuple[Client, Tree, Info]:
        # pi_i + rho (theta - w) is a pull of strength rho to w - pi_i / rho
        center = jax.tree.map(lambda w, pi: w - pi / hyper.rho, w, client.pi)
        objective = gradient(model, hyper, hyper.rho, center)
        theta, info = settings.descend(hyper, objective, client.theta, shard, key)
        pi = jax.tree.map(lambda pi, theta, w: pi + hyper.rho * (theta - w), client.pi, theta, w)
        client = Client(theta, pi)
        return client, message(hyper, client, shard), info

    def server(hyper: Any, w: Tree, mean: Tree) -> Tree:
        return mean

    def models(w: Tree, client: Client) -> tuple[Tree, Tree]:
        return w, client.theta

    return Method(init, client, server, models, last_message=message)
