"""Methods, attacks and aggregators of one's own, through the public registry."""

import jax
import jax.numpy as jnp
import pytest

import flamejax as fj
from flamejax import registry
from flamejax.config import AggregatorSettings, AttackSettings
from flamejax.methods.common import LocalSgd, gradient

from .problems import blobs, small_net


class FedAvgM(LocalSgd):  # FedAvg with momentum at the server: a whole method
    name: str = "fedavgm"
    server_momentum: float = 0.5

    def build(self, model):
        def init(hyper, params, key):
            return (params, jax.tree.map(jnp.zeros_like, params)), ()

        def client(hyper, server, state, shard, key):
            w, _ = server
            theta, info = self.descend(hyper, gradient(model, hyper), w, shard, key)
            return (), jax.tree.map(jnp.subtract, theta, w), info

        def server(hyper, server, mean):
            w, velocity = server
            velocity = jax.tree.map(lambda v, d: hyper.server_momentum * v + d, velocity, mean)
            return jax.tree.map(jnp.add, w, velocity), velocity

        def models(server, state):
            return server[0], server[0]

        return fj.Method(
            init, client, server, models, broadcast=lambda server: server[0], sends_updates=True
        )


class Silence(AttackSettings):
    name: str = "silence"

    def build(self):
        return fj.Attack(craft=lambda hyper, key, message: jax.tree.map(jnp.zeros_like, message))


class Loudest(AggregatorSettings):
    name: str = "loudest"

    def build(self, messages, malicious):
        def combine(hyper, messages, weights, center, total):
            away = total(jnp.sum((messages - center[None]) ** 2, axis=1))
            return messages[jnp.argmax(jnp.where(weights > 0, away, -1))]

        return fj.Aggregator(combine)


@pytest.fixture(autouse=True)
def _registered():
    entries = {"methods": FedAvgM, "attacks": Silence, "aggregators": Loudest}
    for kind, settings in entries.items():
        fj.register(kind, settings.model_fields["name"].default, settings)
    yield
    for kind, settings in entries.items():
        registry.unregister(kind, settings.model_fields["name"].default)


def trained(method, **settings):
    base = {"rounds": 20, "eval_every": 20, "partition": {"name": "iid", "clients": 5}}
    return fj.run(method=method, data=blobs(), model=small_net(), **base, **settings)


def test_a_method_of_ones_own():
    settings = {"name": "fedavgm", "lr": 0.05, "batch": 16}
    result = trained(settings)
    assert result.summary["last"]["gm"]["accuracy"] > 0.7
    assert result.config.method.hyper().server_momentum == 0.5
    still = trained({**settings, "server_momentum": 0.0})
    plain = trained({**settings, "name": "fedavg"})
    close = pytest.approx(plain.summary["last"]["gm"]["loss"], rel=1e-5)
    assert still.summary["last"]["gm"]["loss"] == close


def test_an_attack_and_an_aggregator_of_ones_own():
    result = trained(
        {"name": "fedavgm", "lr": 0.05},
        attack={"name": "silence", "fraction": 0.4},
        aggregator={"name": "loudest"},
    )
    assert result.summary["benign_clients"] == 3
    assert result.summary["last"]["gm"]["accuracy"] > 0.5


def test_one_of_ones_own_is_refused_like_the_others():
    with pytest.raises(fj.InputError, match=r"method\.server_momentm .* 'method\.server_momentum'"):
        trained({"name": "fedavgm", "server_momentm": 0.1})
