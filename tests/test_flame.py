"""FLAME against a plain NumPy loop of Algorithm 1, and against closed forms."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flamejax.federation import TRAIN
from flamejax.theory.linear import problem, stationary
from flamejax.types import Dataset

from .plain import algorithm_1, loop_inputs
from .problems import blobs, distance, linear, precision, set_up, small_net, train


def reference(settings, fed, eng, data, rounds):
    """The loop above on the clients, initial model and batch order of the engine."""
    method = settings.method
    start, clients, select, batches = loop_inputs(settings, fed, eng, data)
    return algorithm_1(
        start, clients, rounds, select, batches, lam=method.lam, rho=method.rho, lr=method.lr,
        mu=method.momentum, decay=method.weight_decay, center=method.prox_center,
    )  # fmt: skip


CASES = [
    *itertools.product([0.0, 0.5], ["local", "global"], ["all", 3], ["float64"]),
    (0.0, "local", 3, "float32"),
    (0.5, "global", 3, "float32"),
]
MAIN = [(0.5, "local", 3, "float64"), (0.0, "global", "all", "float64")]
full = pytest.mark.full


@pytest.mark.parametrize(
    ("momentum", "center", "selected", "precision_name"),
    [case if case in MAIN else pytest.param(*case, marks=full) for case in CASES],
)
def test_engine_equals_a_plain_loop(momentum, center, selected, precision_name):
    tolerance = 1e-10 if precision_name == "float64" else 1e-5
    values = {
        "seed": 3,
        "partition": {"name": "quantity", "clients": 7, "beta": 0.7, "min_samples": 9},
        "participation": {"clients_per_round": selected},
        "method": {"lam": 1.3, "rho": 0.2, "lr": 0.05, "batch": 16, "epochs": 2,
                   "momentum": momentum, "weight_decay": 0.01, "prox_center": center},
        "engine": {"devices": 2, "precision": precision_name},
    }  # fmt: skip
    data, rounds = blobs(), 20
    ready = set_up(values, data, small_net())
    w, theta = reference(*ready, data, rounds)
    shared, personal, _ = train(*ready, rounds)
    assert distance(shared, w) < tolerance
    assert distance(personal, jax.tree.map(lambda *x: np.stack(x), *theta)) < tolerance


def regression(features=4, samples=300):
    rng = np.random.default_rng(5)
    x = rng.normal(size=(samples, features)) * rng.uniform(0.5, 1.5, features)
    return Dataset(x, x @ rng.normal(size=features) + rng.normal(size=samples), 1)


@pytest.mark.parametrize(
    ("selected", "weights"),
    [
        (2, "samples"),
        pytest.param(2, "uniform", marks=full),
        pytest.param("all", "samples", marks=full),
        pytest.param("all", "uniform", marks=full),
    ],
)
def test_exact_local_steps_reach_the_closed_form_stationary_point(selected, weights):
    data, lam = regression(), 0.8
    values = {
        "partition": {"name": "quantity", "clients": 5, "beta": 2.0, "min_samples": 20},
        "participation": {"clients_per_round": selected},
        "method": {"lam": lam, "rho": 0.15, "lr": 0.2, "alpha": weights, "batch": 64,
                   "local_solver": "until_epsilon", "epsilon0": 1e-24, "max_steps": 2000},
        "engine": {"precision": "float64", "devices": 1},
    }  # fmt: skip
    ready = set_up(values, data, linear())
    w, theta = stationary(problem(ready[1], weights), lam)
    shared, personal, _ = train(*ready, rounds=100 if selected == "all" else 300)
    assert distance(shared, w) < 1e-9
    assert distance(personal, theta) < 1e-9


def test_the_tolerance_of_the_local_solver_is_met_and_shrinks():
    data = regression()
    values = {
        "partition": {"name": "iid", "clients": 3},
        "method": {"local_solver": "until_epsilon", "epsilon0": 1e-4, "upsilon": 0.5, "lr": 0.1,
                   "max_steps": 500},
        "engine": {"precision": "float64", "devices": 1},
    }  # fmt: skip
    settings, fed, eng = set_up(values, data, linear())
    with precision(settings):
        before = jax.tree.map(np.asarray, eng.state)
        for done in range(1, 6):
            state, _ = eng.run(jax.tree.map(jnp.asarray, before), 1)
            after = jax.tree.map(np.asarray, state)
            for i in range(3):  # one device, equal sizes: clients keep their order
                first = fed.arrays.starts[i]
                rows = fed.arrays.rows[first : first + fed.counts[i, TRAIN]]
                x, y = data.images[rows], data.labels[rows]
                theta, center = after.clients.state.theta[i], before.clients.state.w[i]
                grad = x.T @ (x @ theta - y) / len(y) + settings.method.lam * (theta - center)
                assert np.sum((grad / 3) ** 2) <= 1e-4 * 0.5**done * (1 + 1e-9)
            before = after


def test_one_client_is_plain_training():
    """With one client w_1 = w = theta, so only the pull to the last theta remains."""
    data = regression()
    base = {
        "partition": {"name": "iid", "clients": 1},
        "engine": {"precision": "float64"},
        "method": {"local_solver": "until_epsilon", "epsilon0": 1e-20, "lr": 0.2, "max_steps": 999},
    }
    ready = set_up(base, data, linear())
    fed = ready[1]
    rows = fed.arrays.rows[: fed.counts[0, TRAIN]]
    best = np.linalg.lstsq(data.images[rows], data.labels[rows], rcond=None)[0]
    shared, personal, _ = train(*ready, rounds=200)
    assert distance(personal[0], best) < 1e-6
    assert distance(shared, best) < 1e-6
