"""Curvatures by power iteration against eigenvalues of whole Hessians."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.flatten_util import ravel_pytree

from flamejax import config, registry
from flamejax.federation import TRAIN, assemble, federate
from flamejax.models import from_flax
from flamejax.models.cnn import Cnn
from flamejax.models.dense import Dense
from flamejax.theory.smoothness import curvatures
from flamejax.types import Dataset

from .problems import blobs, precision

RAGGED = {"name": "quantity", "clients": 4, "beta": 0.8, "min_samples": 12}
LONG = {"iterations": 5000, "tolerance": 1e-10}


def pictures(samples=90, side=8):
    rng = np.random.default_rng(2)
    images = rng.integers(256, size=(samples, side, side, 1)).astype(np.uint8)
    return Dataset(images, rng.integers(3, size=samples), 3, mean=0.3, std=0.4)


def small_cnn(native, dropout=0.0, piece=None):
    net = Cnn(
        native=native, convolutions=((2, 3), (3, 3)), widths=(3,), channels=1, same=True,
        dropout=dropout,
    )  # fmt: skip
    training = {"train": True} if dropout else None
    return from_flax(net, training=training)._replace(cpu_piece=piece)


def samples_of(fed, client):
    positions = np.arange(fed.counts[client, TRAIN], dtype=np.int32)
    return fed.read(jax.tree.map(jnp.asarray, fed.arrays), jnp.int32(client), positions)


def by_eigenvalues(model, fed, params, weight_decay):
    """All entries of every client's Hessian, from one pass over all of its samples."""
    flat, shape = ravel_pytree(params)

    @jax.jit
    def hessian(x, y):
        return jax.hessian(lambda p: jnp.mean(model.loss(model.apply(shape(p), x), y)))(flat)

    whole = [np.asarray(hessian(*samples_of(fed, i)), float) for i in range(fed.clients)]
    return np.array([np.abs(np.linalg.eigvalsh(h) + weight_decay).max() for h in whole])


def set_up(data, model, wide="float64", **values):
    """(settings, federation, parameters); needs to be within `precision`."""
    settings = config.make({"partition": RAGGED, "engine": {"precision": wide}, **values})
    with precision(settings):
        fed = federate(settings, data, np.random.default_rng(0))
        params = model.init(jax.random.key(3), samples_of(fed, 0)[0])
    return settings, fed, params


@pytest.mark.parametrize(
    ("widths", "weight_decay", "wide"),
    [
        pytest.param((3,), 0.0, "float64", marks=pytest.mark.full),
        ((5, 3), 0.3, "float64"),
        pytest.param((5, 3), 0.0, "float32", marks=pytest.mark.full),
    ],
    ids=["mlr", "mlp", "mlp32"],
)
def test_curvatures_of_ragged_clients(widths, weight_decay, wide):
    model = from_flax(Dense(widths))
    settings, fed, params = set_up(blobs(900), model, wide)
    assert fed.counts[:, TRAIN].max() > 250 > 2 * fed.counts[:, TRAIN].min()  # several batches
    with precision(settings):
        found = curvatures(model, fed, params, weight_decay, **LONG)
        expected = by_eigenvalues(model, fed, params, weight_decay)
        quick = curvatures(model, fed, params, weight_decay)
        some = curvatures(model, fed, params, weight_decay, clients=np.array([3, 1]))
    assert found.dtype == wide
    np.testing.assert_allclose(found, expected, rtol=1e-6 if wide == "float64" else 1e-4)
    np.testing.assert_allclose(some, quick[[3, 1]], rtol=1e-5)
    assert (quick <= expected * (1 + 1e-5)).all()  # from below
    np.testing.assert_allclose(quick, expected, rtol=0.02)


@pytest.mark.full
@pytest.mark.parametrize(
    ("native", "dropout", "piece"),
    [(True, 0.0, None), (False, 0.0, None), (False, 0.4, 7)],
    ids=["native", "matmul", "dropout-pieces"],
)
def test_convolutions_with_dropout_and_in_pieces(native, dropout, piece):
    model = small_cnn(native, dropout, piece)
    settings, fed, params = set_up(pictures(), model, partition={"name": "iid", "clients": 2})
    with precision(settings):
        found = curvatures(model, fed, params, **LONG)
        # XLA's own convolutions have second derivatives of their own
        expected = by_eigenvalues(small_cnn(True), fed, params, 0.0)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_a_negative_eigenvalue_counts_by_its_size():
    """A loss that bends down, f = -3/2 |theta|² + theta_0²/2 for every sample."""
    bent = jnp.array([1.0, 0.0, 0.0])
    model = small_linear(lambda theta, x: 0 * x[:, 0] + jnp.sum((bent - 3) / 2 * theta**2))
    _, fed, _ = set_up(blobs(features=3), model, "float32")
    found = curvatures(model, fed, jnp.ones(3), **LONG)
    np.testing.assert_allclose(found, 3, rtol=1e-5)


def small_linear(apply):
    dense = from_flax(Dense((1,)))
    return dense._replace(
        init=lambda key, x: jnp.zeros(3), apply=apply, loss=lambda outputs, y: outputs
    )


def test_a_flat_loss_has_no_curvature():
    model = small_linear(lambda theta, x: x @ theta)
    _, fed, _ = set_up(blobs(features=3), model, "float32")
    np.testing.assert_allclose(curvatures(model, fed, jnp.ones(3)), 0, atol=1e-6)
    np.testing.assert_allclose(curvatures(model, fed, jnp.ones(3), weight_decay=0.5), 0.5)


@pytest.mark.parametrize("wide", [pytest.param("float64", marks=pytest.mark.full), "float32"])
def test_least_squares_with_an_orthogonal_design(wide):
    values = {
        "data": {"name": "linreg", "samples": 300, "features": 5, "scale": 2.5},
        "partition": {"name": "quantity", "clients": 3},
        "engine": {"precision": wide},
    }
    settings = config.make(values)
    with precision(settings):
        fed = assemble(settings)[1]
        model = registry.get("models", "linear")(0)
        found = curvatures(model, fed, jnp.zeros(5))
    np.testing.assert_allclose(found, 2.5, rtol=1e-5 if wide == "float32" else 1e-10)


def test_softmax_regression_stays_below_its_bound():
    model = from_flax(Dense((3,)))
    settings, fed, params = set_up(blobs(), model)
    with precision(settings):
        found = curvatures(model, fed, params)
        for client in range(fed.clients):
            x = np.asarray(samples_of(fed, client)[0])
            x = np.column_stack([x, np.ones(len(x))])
            assert found[client] < np.linalg.eigvalsh(x.T @ x / len(x)).max() / 2
