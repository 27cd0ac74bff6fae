"""FLAME: personalized federated learning by ADMM on the Moreau envelope (Algorithm 1).

    minimise  sum_i alpha_i ( f_i(theta_i) + lam/2 |theta_i - w_i|^2 )   subject to  w_i = w

The dual pi_i is not stored: after every update pi_i = lam alpha_i (theta_i - w_i) (Lemma 3), and
so it is at the start, where theta_i = w_i and pi_i = 0.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array

from flamejax import local
from flamejax.methods.common import LocalSgd, gradient
from flamejax.types import Admm, Info, Method, Model, Shard, Tree
from flamejax.values import Count, Fraction, Positive


class Flame(LocalSgd):
    name: str = "flame"
    preset: str = "paper"
    presets: ClassVar = {
        "paper": {},  # Algorithm 1 to the letter
        "published": {"momentum": 0.5, "weight_decay": 0.01, "prox_center": "global"},
    }
    lam: Positive = 1.0
    rho: Positive = 0.1
    alpha: Literal["uniform", "samples"] = "uniform"  # weight of a client in the objective
    prox_center: Literal["local", "global"] = "local"  # theta_i is pulled to w_i, or to w
    local_solver: Literal["epochs", "until_epsilon"] = "epochs"
    epsilon0: Positive = 1e-3  # until_epsilon: first tolerance of (16),
    upsilon: Fraction = 0.95  # its factor per round taken part in (17),
    max_steps: Count = 100  # and a bound on the steps of one round

    def build(self, model: Model) -> Method:
        return flame(self, model)


class Client(NamedTuple):
    theta: Tree  # the personalized model
    w: Tree  # the local copy of the global model
    epsilon: Array  # tolerance of the theta-step, used by until_epsilon


def flame(settings: Flame, model: Model) -> Method:
    def init(hyper: Any, params: Tree, key: Array) -> tuple[Tree, Client]:
        return params, Client(params, params, jnp.asarray(hyper.epsilon0))

    def alpha(shard: Shard) -> Array:
        if settings.alpha == "samples":
            return shard.share
        return jnp.ones_like(shard.share) / shard.clients

    def message(hyper: Any, client: Client, shard: Shard) -> Tree:
        ratio = hyper.lam * alpha(shard) / hyper.rho
        # u_i = w_i + pi_i / rho, with pi_i = lam alpha_i (theta_i - w_i)
        return jax.tree.map(lambda theta, w: w + ratio * (theta - w), client.theta, client.w)

    def client(
        hyper: Any, w: Tree, client: Client, shard: Shard, key: Array
    ) -> tuple[Client, Tree, Info]:
        # (12) theta_i: descend on f_i(theta) + lam/2 |theta - w_i|^2
        center = client.w if settings.prox_center == "local" else w
        theta, epsilon, info = solve(hyper, client, center, shard, key)
        # (13) w_i = (lam alpha_i theta_i + rho w - pi_i) / (lam alpha_i + rho), with the old pi_i
        x = hyper.lam * alpha(shard)
        w_i = jax.tree.map(
            lambda new, w, old, w_i: (x * new + hyper.rho * w - x * (old - w_i)) / (x + hyper.rho),
            theta, w, client.theta, client.w,
        )  # fmt: skip
        # (14) pi_i = pi_i + rho (w_i - w) equals lam alpha_i (theta_i - w_i) from here on
        client = Client(theta, w_i, epsilon)
        return client, message(hyper, client, shard), info

    def solve(
        hyper: Any, client: Client, center: Tree, shard: Shard, key: Array
    ) -> tuple[Tree, Array, Info]:
        objective = gradient(model, hyper, hyper.lam, center)
        if settings.local_solver == "epochs":
            theta, info = settings.descend(hyper, objective, client.theta, shard, key)
            return theta, client.epsilon, info
        # (16) |alpha_i (grad f_i + lam (theta_i - w_i))|^2 <= epsilon_i, (17) epsilon_i shrinks
        epsilon = hyper.upsilon * client.epsilon
        tolerance = epsilon / alpha(shard) ** 2
        theta, info = local.until(
            objective,
            settings.optimizer(hyper),
            client.theta,
            shard,
            settings.batch,
            tolerance,
            settings.max_steps,
        )
        return theta, epsilon, info

    def server(hyper: Any, w: Tree, mean: Tree) -> Tree:
        return mean  # (15) w = (1/m) sum_i u_i

    def models(w: Tree, client: Client) -> tuple[Tree, Tree]:
        return w, client.theta

    def admm(hyper: Any, client: Client, shard: Shard) -> Admm:
        x = hyper.lam * alpha(shard)
        pi = jax.tree.map(lambda theta, w: x * (theta - w), client.theta, client.w)  # Lemma 3
        return Admm(client.theta, client.w, pi, alpha(shard), client.epsilon)

    return Method(init, client, server, models, last_message=message, admm=admm)
