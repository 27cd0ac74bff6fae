"""Closed forms for least squares with any inputs: the engine does what they say."""

from functools import cache

import jax
import numpy as np
import pytest

from flamejax import config
from flamejax.datasets import load
from flamejax.federation import TRAIN, federate
from flamejax.theory import linear as theory
from flamejax.types import Dataset

from .problems import distance, linear, precision, set_up, train

LAM, RHO = 0.8, 0.15
FEATURES = np.array([1.0, 0.3, 0.0, -0.4])  # true parameters
RAGGED = {"name": "quantity", "clients": 5, "beta": 2.0, "min_samples": 20}


def regression():
    rng = np.random.default_rng(5)
    mixed = rng.normal(size=(300, 4)) @ rng.normal(size=(4, 4))  # features depend on each other
    x = 0.5 + mixed / mixed.std()
    return Dataset(x, x @ FEATURES + rng.normal(size=300), 1)


@cache
def exact(weights="uniform", selected="all"):
    """An engine whose local solutions are exact, ready for all tests that ask for it."""
    solver = {"lr": 0.3, "local_solver": "until_epsilon", "epsilon0": 1e-24, "upsilon": 0.9999}
    values = {
        "partition": RAGGED,
        "participation": {"clients_per_round": selected},
        "method": {
            "lam": LAM,
            "rho": RHO,
            "alpha": weights,
            "batch": 300,
            "max_steps": 500,
            **solver,
        },
        "engine": {"precision": "float64", "devices": 1},
    }
    return set_up(values, regression(), linear())


def trained(ready, rounds):
    settings, fed, eng = ready
    state = jax.tree.map(lambda x: x.copy(), eng.state)  # a run consumes its own
    return train(settings, fed, eng._replace(state=state), rounds)


def initial(ready):
    """The model that the engine starts from."""
    settings, _, eng = ready
    with precision(settings):
        return np.asarray(eng.models(eng.state, 0)[0])


def test_the_problem_is_that_of_the_clients_samples():
    _, fed, _ = exact()
    found, data = theory.problem(fed, "samples"), regression()
    counts = fed.counts[:, TRAIN]
    assert len(set(counts)) > 2
    np.testing.assert_allclose(found.alpha, counts / counts.sum())
    np.testing.assert_allclose(theory.problem(fed).alpha, 0.2)
    for i in range(5):
        first = fed.arrays.starts[i]
        rows = fed.arrays.rows[first : first + counts[i]]
        x, y = data.images[rows], data.labels[rows]
        np.testing.assert_allclose(found.gram[i], x.T @ x / len(x), rtol=1e-12)
        np.testing.assert_allclose(found.moment[i], x.T @ y / len(x), rtol=1e-12)
        apart = np.linalg.eigvalsh(found.gram[i])
        assert apart[-1] > 3 * apart[0]  # nothing like a multiple of the identity


@pytest.mark.parametrize("weights", ["uniform", "samples"])
@pytest.mark.parametrize("count", [1, 5])
def test_the_engine_makes_the_same_rounds(count, weights):
    ready = exact(weights)
    problem, start = theory.problem(ready[1], weights), initial(ready)
    w, theta = theory.rounds(problem, LAM, RHO, count, start)
    shared, personal, _ = trained(ready, count)
    assert distance(shared, w) < 1e-9
    assert distance(personal, theta) < 1e-9
    assert distance(shared, theory.rounds(problem, LAM, RHO, count)[0]) > 1e-3  # w0 matters


def test_the_first_round_from_zero(rng):
    """theta_i = (A_i + lam)^-1 c_i, u_i = w_i + pi_i / rho = 2 x theta_i / (x + rho)."""
    problem = random_problem(rng)
    w, theta = theory.one_round(problem, LAM, RHO)
    x = LAM * problem.alpha[:, None]
    for gram, moment, found in zip(problem.gram, problem.moment, theta, strict=True):
        np.testing.assert_allclose(gram @ found + LAM * found, moment)
    np.testing.assert_allclose(w, np.mean(2 * x * theta / (x + RHO), axis=0))


@pytest.mark.parametrize(
    ("selected", "weights"),
    [("all", "uniform"), (2, "samples")]
    + [
        pytest.param(*more, marks=pytest.mark.full) for more in [("all", "samples"), (2, "uniform")]
    ],
)
def test_the_engine_stops_at_the_stationary_point(selected, weights):
    ready = exact(weights, selected)
    w, theta = theory.stationary(theory.problem(ready[1], weights), LAM)
    shared, personal, _ = trained(ready, rounds=600 if selected == "all" else 1500)
    assert distance(shared, w) < 1e-8
    assert distance(personal, theta) < 1e-8


def random_problem(rng, clients=6, features=4):
    x = rng.normal(size=(clients, 2 * features, features))
    weights = rng.uniform(0.5, 2, clients)
    gram = x.swapaxes(1, 2) @ x / (2 * features)
    return theory.Problem(gram, rng.normal(size=(clients, features)), weights / weights.sum())


def test_the_stationary_point_minimises_the_objective(rng):
    """And is a fixed point of the rounds; the gradients are written out."""
    problem = random_problem(rng)
    w, theta = theory.stationary(problem, LAM)
    slopes = np.einsum("ijk,ik->ij", problem.gram, theta) - problem.moment + LAM * (theta - w)
    np.testing.assert_allclose(slopes, 0, atol=1e-12)
    np.testing.assert_allclose(problem.alpha @ (theta - w), 0, atol=1e-12)
    found = theory.rounds(problem, LAM, RHO, 3000)
    np.testing.assert_allclose(found[0], w, atol=1e-9)
    np.testing.assert_allclose(found[1], theta, atol=1e-9)


def as_printed(problem, lam):
    """The paper's w* for general X_i and alpha = 1/m, with its factor lam in the second sum."""
    eye = np.eye(problem.gram.shape[-1])
    pulls = [lam * np.linalg.inv(a + lam * eye) for a in problem.gram]
    own = [np.linalg.solve(a, c) for a, c in zip(problem.gram, problem.moment, strict=True)]
    right = [p @ a @ o for p, a, o in zip(pulls, problem.gram, own, strict=True)]
    return np.linalg.solve(eye - np.mean(pulls, axis=0), np.mean(right, axis=0))


@pytest.mark.parametrize("lam", [0.5, 2.0])
def test_the_printed_solution_has_a_factor_too_many(rng, lam):
    moment = rng.normal(size=(6, 4))
    isotropic = theory.Problem(np.tile(0.7 * np.eye(4), (6, 1, 1)), moment, np.full(6, 1 / 6))
    own = moment / 0.7
    np.testing.assert_allclose(theory.stationary(isotropic, lam)[0], own.mean(0))
    np.testing.assert_allclose(as_printed(isotropic, lam), lam * own.mean(0))
    general = random_problem(rng)._replace(alpha=np.full(6, 1 / 6))
    w, _ = theory.stationary(general, lam)
    np.testing.assert_allclose(as_printed(general, lam), lam * w)


def test_a_large_lam_leads_to_the_consensus(rng):
    problem = random_problem(rng)
    w = theory.consensus(problem)
    slopes = problem.gram @ w - problem.moment
    np.testing.assert_allclose(problem.alpha @ slopes, 0, atol=1e-12)
    for part in (0, 1):  # w, and every theta_i
        apart = [np.abs(theory.stationary(problem, lam)[part] - w).max() for lam in (1e4, 1e5, 1e6)]
        assert apart[0] < 1e-2
        np.testing.assert_allclose(np.divide(apart[:-1], apart[1:]), 10, rtol=0.01)


@pytest.mark.full
def test_fedadmm_reaches_the_consensus():
    values = {
        "partition": RAGGED,
        "method": {"name": "fedadmm", "rho": 0.75, "lr": 0.2, "epochs": 60, "batch": 300},
        "engine": {"precision": "float64", "devices": 1},
    }
    ready = set_up(values, regression(), linear())
    w = theory.consensus(theory.problem(ready[1]))
    shared, personal, _ = train(*ready, rounds=300)
    assert distance(shared, w) < 1e-8
    assert distance(personal, np.tile(w, (5, 1))) < 1e-8


def test_generated_clients_are_read_as_a_run_reads_them():
    """X'X = N b I of every client, whatever its size, and the same y as in a float64 run."""
    values = {
        "data": {"name": "linreg", "samples": 30, "features": 4, "scale": 0.7},
        "partition": {"name": "quantity", "clients": 4, "min_samples": 6},
        "engine": {"precision": "float64"},
    }
    settings = config.make(values)
    with precision(settings):
        rng = np.random.default_rng(0)
        fed = federate(settings, load(settings.data, rng), rng)
        size = fed.counts[2, TRAIN]
        x, y = jax.jit(fed.read)(fed.arrays, np.int32(2), np.arange(size, dtype=np.int32))
        x, y = np.asarray(x), np.asarray(y)
    found = theory.problem(fed)
    np.testing.assert_allclose(found.gram, np.tile(0.7 * np.eye(4), (4, 1, 1)), atol=1e-12)
    np.testing.assert_allclose(found.moment[2], x.T @ y / size, rtol=1e-10)
