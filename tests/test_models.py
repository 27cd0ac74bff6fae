"""The paper's dense models, and models of one's own."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn

import flamejax as fj
from flamejax import registry, tree
from flamejax.models import cross_entropy

from .problems import blobs

SMALL = {
    "rounds": 30,
    "eval_every": 30,
    "partition": {"name": "iid", "clients": 3},
    "method": {"lr": 0.2, "batch": 20},
    "engine": {"devices": 1},
}


@pytest.mark.parametrize(("name", "parameters"), [("mlp", 109_386), ("mlr", 7_850)])
def test_parameter_counts(name, parameters):
    model = registry.get("models", name)(10)
    params = model.init(jax.random.key(0), jnp.zeros((1, 28, 28, 1)))
    assert tree.size(params) == parameters
    assert model.apply(params, jnp.zeros((7, 28, 28, 1))).shape == (7, 10)
    for leaf in jax.tree.leaves(params):  # uniform in +-1/sqrt(fan-in)
        assert 0 < float(jnp.abs(leaf).max()) <= 0.126


def test_cross_entropy_equals_optax(rng):
    logits = jnp.asarray(rng.normal(size=(8, 5)) * 30, jnp.float32)
    labels = jnp.asarray(rng.integers(5, size=8))
    expected = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
    np.testing.assert_allclose(cross_entropy(logits, labels), expected, rtol=1e-5, atol=1e-6)


def test_a_flax_module_of_ones_own_is_recorded_as_such(tmp_path):
    class Wide(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.Dense(3)(nn.tanh(nn.Dense(20)(x)))

    result = fj.run(SMALL, data=blobs(), model=fj.from_flax(Wide()), out=tmp_path / "run")
    assert result.summary["last"]["gm"]["accuracy"] > 0.8
    assert result.summary["parameters"] == 6 * 20 + 20 + 20 * 3 + 3
    assert (result.summary["data"], result.summary["model"]) == ("own", "own")
    written = (tmp_path / "run" / "config.toml").read_text()
    assert written.startswith("# data: passed from Python")


def test_a_pair_of_functions_of_ones_own():
    model = fj.Model(
        init=lambda key, x: {"w": jnp.zeros((x.shape[1], 3), x.dtype)},
        apply=lambda params, x: x @ params["w"],
        loss=cross_entropy,
    )
    result = fj.run(SMALL, data=blobs(), model=model)
    assert result.summary["last"]["pm"]["accuracy"] > 0.75


def test_data_of_ones_own_are_a_dataset():
    with pytest.raises(fj.InputError, match="data should be a Dataset"):
        fj.run(SMALL, data=[1, 2])
