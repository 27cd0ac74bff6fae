"""FedAvg (McMahan et al. 2017), and FedProx (Li et al. 2020), its proximal form.

    client   theta = w, then epochs of SGD on f_i(theta) + mu/2 |theta - w|^2   (mu = 0 in FedAvg)
    server   w = mean of the selected clients' theta

Clients keep nothing, so there is no personalized model: PM is the global model.
"""

from __future__ import annotations

from typing import Any

from jax import Array

from flamejax.methods.common import LocalSgd, gradient
from flamejax.types import Info, Method, Model, Shard, Tree
from flamejax.values import NonNegative


class FedAvg(LocalSgd):
    name: str = "fedavg"

    def build(self, model: Model) -> Method:
        return fedavg(self, model)


class FedProx(LocalSgd):
    name: str = "fedprox"
    mu: NonNegative = 0.1

    def build(self, model: Model) -> Method:
        return fedavg(self, model)


def fedavg(settings: FedAvg | FedProx, model: Model) -> Method:
    def init(hyper: Any, params: Tree, key: Array) -> tuple[Tree, tuple]:
        return params, ()

    def client(
        hyper: Any, w: Tree, client: tuple, shard: Shard, key: Array
    ) -> tuple[tuple, Tree, Info]:
        proximal = isinstance(settings, FedProx)
        objective = gradient(model, hyper, hyper.mu, w) if proximal else gradient(model, hyper)
        theta, info = settings.descend(hyper, objective, w, shard, key)
        return (), theta, info

    def server(hyper: Any, w: Tree, mean: Tree) -> Tree:
        return mean

    def models(w: Tree, client: tuple) -> tuple[Tree, Tree]:
        return w, w

    return Method(init, client, server, models)
