"""One table for every registered method: it learns, repeats itself, and suits every strategy."""

import jax
import numpy as np
import pytest

import flamejax as fj
from flamejax import registry

from .problems import blobs, distance, set_up, small_net, train

METHODS = registry.names("methods")


def values(method, selected, **engine):
    return {
        "rounds": 40,
        "eval_every": 20,
        "partition": {"name": "dirichlet", "clients": 6, "beta": 1.0, "min_samples": 8},
        "participation": {"clients_per_round": selected},
        "method": {"name": method, "lr": 0.1, "batch": 16},
        "engine": {"devices": 1, **engine},
    }


@pytest.mark.parametrize("method", METHODS)
def test_learns_a_small_problem_and_repeats_itself(method):
    first, second = (
        fj.run(values(method, "all"), data=blobs(), model=small_net()) for _ in range(2)
    )
    assert first.summary["last"]["pm"]["accuracy"] > 0.7
    for name, column in first.metrics.items():
        np.testing.assert_array_equal(column, second.metrics[name])


@pytest.mark.parametrize("method", METHODS)
def test_strategies_agree(method):
    one = train(*set_up(values(method, 4, execution="map"), blobs(), small_net()), rounds=8)
    two = train(
        *set_up(values(method, 4, execution="vmap", devices=2), blobs(), small_net()), rounds=8
    )
    assert distance(two[1], one[1]) < 1e-5
    assert one[0] is None or distance(two[0], one[0]) < 1e-5


@pytest.mark.parametrize("method", METHODS)
def test_every_preset_is_valid_and_named_in_the_config(method):
    for preset in registry.get("methods", method).presets:
        config = fj.Config.model_validate({"method": {"name": method, "preset": preset}})
        assert config.method.preset == preset
        assert all(isinstance(v, float) for v in config.method.hyper())


def test_absent_clients_keep_their_state():
    _, fed, eng = set_up(values("flame", 2), blobs(), small_net())
    before = [eng.models(eng.state, i)[1] for i in range(fed.clients)]
    before = jax.tree.map(np.array, before)
    state, _ = eng.run(eng.state, 1)
    changed = [distance(eng.models(state, i)[1], before[i]) > 0 for i in range(fed.clients)]
    assert sum(changed) == 2
