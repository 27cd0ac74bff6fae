"""One table for every registered method: it learns, repeats itself, and suits every strategy."""

import jax
import numpy as np
import pytest

import flamejax as fj
from flamejax import registry
from flamejax.evaluate import figures

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


@pytest.mark.parametrize(
    "method",
    [m if m == "flame" else pytest.param(m, marks=pytest.mark.full) for m in METHODS],
)
def test_learns_repeats_itself_and_suits_every_strategy(method):
    _, fed, eng = set_up(values(method, 4, execution="map"), blobs(), small_net())
    first, second, longer = (
        eng.run(jax.tree.map(lambda x: x.copy(), eng.state), rounds)[0] for rounds in (8, 8, 60)
    )
    jax.tree.map(np.testing.assert_array_equal, first, second)
    test = figures(eng.evaluate(longer), fed.counts, "validation").test
    assert test.accuracy["pm"].mean() > 0.7
    assert all(np.isfinite(loss).all() for loss in test.loss.values())

    other = values(method, 4, execution="vmap", devices=2)
    shared, personal, _ = train(*set_up(other, blobs(), small_net()), rounds=8)
    for i in range(fed.clients):
        one_shared, one_personal = eng.models(first, i)
        assert distance(jax.tree.map(lambda x, i=i: x[i], personal), one_personal) < 1e-5
        assert shared is None or distance(shared, one_shared) < 1e-5


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
