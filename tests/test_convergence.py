"""The convergence proof at work on linear regression, inside the region where it applies."""

from functools import cache

import jax
import numpy as np
import pytest

from flamejax import config
from flamejax.federation import assemble
from flamejax.models.dense import linear
from flamejax.theory import conditions
from flamejax.theory.findings import columns, descent, row, rows

from .problems import PER_CALL, precision, set_up
from .test_lagrangian import by_client

CLIENTS, B = 10, 0.1
POINT = conditions.Point(lam=0.2365, rho=0.1, alpha=1 / CLIENTS, smoothness=B)


@cache
def feasible(selected="all", **method):
    """An engine, ready for all tests that ask for it."""
    values = {
        "rounds": 1000,
        "data": {"name": "linreg", "features": 5, "samples": 20, "scale": B},
        "partition": {"clients": CLIENTS},
        "participation": {"clients_per_round": selected},
        "method": {"lam": POINT.lam, "rho": POINT.rho, "lr": 1 / (B + POINT.lam), "batch": 20,
                   "local_solver": "until_epsilon", "epsilon0": 1e-4, "max_steps": 20,
                   "upsilon": 0.95 if selected == "all" else 0.91, **method},
        "engine": {"precision": "float64", "devices": 1},
        "record": {"theory": True, "smoothness": B},
    }  # fmt: skip
    with jax.enable_x64(True):
        data, _ = assemble(config.make(values))
    return set_up(values, data, linear(0))


def start_of(eng):
    """A copy of the first state, because a run consumes the one that it is given."""
    return jax.tree.map(lambda x: x.copy(), eng.state)


@cache
def recorded(selected="all", rounds=1000, **method):
    """The settings, and the columns of theory.jsonl."""
    settings, _, eng = feasible(selected, **method)
    with precision(settings):
        found, state = [row(settings, 0, eng.measure(eng.state))], start_of(eng)
        for done in range(0, rounds, PER_CALL):
            state, log = eng.run(state, PER_CALL)
            found += rows(settings, done + 1, log.theory)
    return settings, columns(found)


def first(rounds, table):
    """The first so many rounds, and what was before them."""
    return {name: column[: rounds + 1] for name, column in table.items()}


everyone_and_some = pytest.mark.parametrize(
    "selected", ["all", pytest.param(5, marks=pytest.mark.full)]
)


@everyone_and_some
def test_inside_the_region_everything_converges(selected):
    assert conditions.all_hold(POINT)
    settings, table = recorded(selected)
    assert len(table["round"]) == 1001
    rounding = 64 * np.finfo(float).eps * table["lagrangian"][0]
    assert np.diff(table["lagrangian"]).max() < rounding  # monotone over 1,000 rounds
    assert np.diff(table["lyapunov"]).max() < rounding
    for name in ("theta", "w", "consensus", "dual"):
        assert table[f"residual_{name}"][-1] < 1e-10, name
    # (16) is met in every round with the tolerances of (17)
    assert table["inexactness_ratio"][1:].max() <= 1
    if selected == "all":
        expected = CLIENTS * 1e-4 * 0.95 ** np.arange(1001)
        np.testing.assert_allclose(table["epsilon"], expected, rtol=1e-9)
    # f, f~ and the Lagrangian have one limit
    np.testing.assert_allclose(table["f"][-1], table["lagrangian"][-1], rtol=1e-12)
    np.testing.assert_allclose(table["f_tilde"][-1], table["lagrangian"][-1], rtol=1e-12)
    # and the gradient of f~ in W does not vanish, though Theorem 1 (c) says so: it is minus pi_i
    assert table["gradient_w"][-1] > 0.01
    found = descent(settings, table, [POINT], proven=True)
    assert found["rises"] == found["tolerance_missed"] == found["lemma1_shortfalls"] == 0


@everyone_and_some
def test_the_dual_is_lam_alpha_theta_minus_w(selected):
    """Lemma 3: (14), carried along here for 1,000 rounds, against what the engine makes of it."""
    settings, _, eng = feasible(selected)
    with precision(settings):
        state = start_of(eng)
        theta, w_i, epsilon, w = by_client(eng, state)
        pi = np.zeros_like(theta)
        for _ in range(1000):
            state, _ = eng.run(state, 1)
            theta, w_i, shrunk, new_w = by_client(eng, state)
            chosen = (shrunk < epsilon)[:, None]
            pi = np.where(chosen, pi + POINT.rho * (w_i - w), pi)
            identity = POINT.lam * POINT.alpha * (theta - w_i)
            np.testing.assert_allclose(identity, pi, rtol=0, atol=1e-12)
            epsilon, w = shrunk, new_w
    assert np.abs(pi).max() > 1e-3


@pytest.mark.full
def test_relative_error_bound_needs_everyone():
    """Lemma 2 bounds the gradient by the steps of a round. A client that was not selected makes no
    step whatever its gradient is: with full participation the bound holds, without it does not."""
    excesses = {}
    for selected in ("all", 5):
        settings, table = recorded(selected)
        found = descent(settings, first(300, table), [POINT], proven=True)
        excesses[selected] = found["lemma2_excesses"]
    assert excesses["all"] == 0
    assert excesses[5] > 10


def test_descent_is_lost_far_outside():
    """rho far below lam alpha: the Lagrangian rises in some rounds, and that is counted."""
    settings, table = recorded(rounds=100, lam=5.0, rho=0.02, lr=1 / 5.1)
    point = POINT._replace(lam=5.0, rho=0.02)
    assert not conditions.all_hold(point)
    found = descent(settings, table, [point], proven=False)
    assert found["rises"] > 0
    assert found["largest_rise"] > 1e-6
    assert "lemma1_shortfalls" not in found
