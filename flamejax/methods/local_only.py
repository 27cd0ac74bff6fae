"""No communication: every client trains alone. The floor that federated methods should beat."""

from __future__ import annotations

from typing import Any

from jax import Array

from flamejax.methods.common import LocalSgd, gradient
from flamejax.types import Info, Method, Model, Shard, Tree


class Local(LocalSgd):
    name: str = "local"

    def build(self, model: Model) -> Method:
        def init(hyper: Any, params: Tree, key: Array) -> tuple[tuple, Tree]:
            return (), params

        def client(
            hyper: Any, server: tuple, theta: Tree, shard: Shard, key: Array
        ) -> tuple[Tree, tuple, Info]:
            theta, info = self.descend(hyper, gradient(model, hyper), theta, shard, key)
            return theta, (), info

        def server(hyper: Any, server: tuple, mean: tuple) -> tuple:
            return ()

        def models(server: tuple, theta: Tree) -> tuple[None, Tree]:
            return None, theta

        return Method(init, client, server, models)
