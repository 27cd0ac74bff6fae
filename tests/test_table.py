"""Every method under every attack with every aggregator: two rounds on tiny data.

The default run takes enough triples to meet every pair of (method, attack), (method, aggregator)
and (attack, aggregator); `-m table` takes all of them.
"""

import functools

import jax
import numpy as np
import pytest

from flamejax import config, registry
from flamejax.engine.compile import lower_rounds
from flamejax.engine.prepare import prepare
from flamejax.federation import federate
from flamejax.models import from_flax
from flamejax.models.dense import Dense

from .problems import blobs

METHODS, ATTACKS, AGGREGATORS = map(registry.names, ("methods", "attacks", "aggregators"))
MODEL = from_flax(Dense((3,)))


def few():
    """A triple for every pair of a method with an aggregator; attacks take turns."""
    for i, method in enumerate(METHODS):
        for j, aggregator in enumerate(AGGREGATORS):
            yield method, ATTACKS[(i + j) % len(ATTACKS)], aggregator


FEW = list(few())
ALL = [(m, a, g) for m in METHODS for a in ATTACKS for g in AGGREGATORS]


def test_the_few_meet_every_pair():
    for one, two in ((0, 1), (0, 2), (1, 2)):
        assert {(t[one], t[two]) for t in FEW} == {(t[one], t[two]) for t in ALL}


@functools.cache
def tiny(attack):
    values = {
        "partition": {"name": "quantity", "clients": 7, "min_samples": 8},
        "participation": {"clients_per_round": 6},
        "attack": {"name": attack, "fraction": 0.3},
        "engine": {"devices": 1},
    }
    return values, federate(config.make(values), blobs(200), np.random.default_rng(0))


def two_rounds(method, attack, aggregator):
    values, federation = tiny(attack)
    settings = config.make(
        {**values, "method": {"name": method}, "aggregator": {"name": aggregator}}
    )
    ready = prepare(settings, settings.method.build(MODEL), MODEL, federation)
    start = jax.tree.map(np.array, ready.state)
    compiled = lower_rounds(ready, federation, 2).compile()
    again = jax.tree.map(lambda x, like: jax.device_put(x, like.sharding), start, ready.state)
    first, log = compiled(ready.state, ready.setting, np.int32(2))
    second, _ = compiled(again, ready.setting, np.int32(2))
    jax.tree.map(np.testing.assert_array_equal, first, second)
    assert int(first.round) == 2
    assert log.nonfinite.tolist() == [0, 0]
    assert all(np.isfinite(x).all() for x in jax.tree.leaves((first, log.loss)))
    pairs = zip(jax.tree.leaves(start), jax.tree.leaves(first), strict=True)
    moved = [not np.array_equal(x, y) for x, y in pairs]
    assert any(moved[1:])  # more than the round number


@pytest.mark.parametrize("triple", FEW, ids="-".join)
def test_some_triples(triple):
    two_rounds(*triple)


@pytest.mark.full
@pytest.mark.parametrize("triple", ALL, ids="-".join)
def test_every_triple(triple):
    two_rounds(*triple)
