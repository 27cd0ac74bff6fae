"""The recorded quantities against plain NumPy on the engine's own states, and their identities."""

from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from flamejax.federation import TRAIN
from flamejax.theory.lagrangian import Measured, Round, Rule, finish, terms
from flamejax.types import Admm, Dataset, Shard

from .problems import linear, precision, set_up

LAM, RHO, DECAY = 0.8, 0.15, 0.05


def regression(seed=5, samples=240, features=4):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(samples, features)) * rng.uniform(0.5, 1.5, features)
    return Dataset(x, x @ rng.normal(size=features) + rng.normal(size=samples), 1)


@cache
def problem(selected="all", weights="uniform", devices=1, **record):
    values = {
        "seed": 2,
        "partition": {"name": "quantity", "clients": 6, "beta": 2.0, "min_samples": 15},
        "participation": {"clients_per_round": selected},
        "method": {"lam": LAM, "rho": RHO, "lr": 0.1, "alpha": weights, "weight_decay": DECAY,
                   "local_solver": "until_epsilon", "epsilon0": 1e-3, "upsilon": 0.8},
        "engine": {"precision": "float64", "devices": devices},
        "record": {"theory": True, **record},
    }  # fmt: skip
    return set_up(values, regression(), linear())


def by_client(eng, state):
    """theta, w_i, epsilon of all clients, in order, and w."""
    found = list(eng.states(state).parts)
    ids = np.concatenate([i for i, _ in found])
    kept = jax.tree.map(lambda *x: np.concatenate(x)[np.argsort(ids)], *[s for _, s in found])
    return kept.state.theta, kept.state.w, kept.state.epsilon, np.asarray(state.server)


class Reference:
    """The paper's formulas, one after another, in NumPy."""

    def __init__(self, fed, data, weights):
        counts = fed.counts[:, TRAIN]
        starts = fed.arrays.starts
        rows = [fed.arrays.rows[s : s + n] for s, n in zip(starts, counts, strict=False)]
        self.data = [(data.images[r], data.labels[r]) for r in rows]
        m = len(counts)
        self.alpha = np.full(m, 1 / m) if weights == "uniform" else counts / counts.sum()

    def f(self, i, theta):
        x, y = self.data[i]
        return np.sum((x @ theta - y) ** 2) / (2 * len(y)) + DECAY / 2 * theta @ theta

    def grad(self, i, theta):
        x, y = self.data[i]
        return x.T @ (x @ theta - y) / len(y) + DECAY * theta

    def envelope(self, i, w):
        x, y = self.data[i]
        eye = np.eye(len(w))
        theta = np.linalg.solve(x.T @ x / len(y) + (DECAY + LAM) * eye, x.T @ y / len(y) + LAM * w)
        return self.f(i, theta) + LAM / 2 * np.sum((theta - w) ** 2), LAM * (w - theta)

    def measure(self, old, new, chosen):
        theta, w_i, epsilon, w = new
        theta_old, w_i_old, _, w_old = old
        a, m = self.alpha[:, None], len(theta)
        pi = LAM * a * (theta - w_i)
        grads = np.stack([self.grad(i, theta[i]) for i in range(m)])
        losses = np.array([self.f(i, theta[i]) for i in range(m)])
        sq = lambda x: np.sum(np.square(x))  # noqa: E731
        f_tilde = self.alpha @ (losses + LAM / 2 * np.sum((theta - w_i) ** 2, 1))
        pi_old = LAM * a * (theta_old - w_i_old)
        stepped = np.where(chosen[:, None], pi_old + RHO * (w_i - w_old), pi_old)
        missed = np.sum((a * (grads + LAM * (theta - w_i_old))) ** 2, 1)[chosen]
        envelopes = [self.envelope(i, w) for i in range(m)]
        slope_theta = a * (grads + LAM * (theta - w_i))
        slope_w_i = a * LAM * (w_i - theta) + pi + RHO * (w_i - w)
        slope_w = -np.sum(pi + RHO * (w_i - w), 0)
        return {
            "lagrangian": f_tilde + np.sum(pi * (w_i - w)) + RHO / 2 * sq(w_i - w),
            "f": self.alpha @ (losses + LAM / 2 * np.sum((theta - w) ** 2, 1)),
            "f_tilde": f_tilde,
            "residual_theta": np.sqrt(sq(grads + LAM * (theta - w_i))),
            "residual_w": np.sqrt(sq(a * LAM * (w_i - theta) + stepped)),
            "residual_consensus": np.sqrt(sq(w_i - w)),
            "residual_dual": np.sqrt(sq(pi.sum(0))),
            "gradient": np.sqrt(sq(slope_theta) + sq(slope_w_i) + sq(w_i - w) + sq(slope_w)),
            "gradient_w": np.sqrt(sq(pi)),
            "moved": sq(theta - theta_old) + sq(w_i - w_i_old) + m * sq(w - w_old),
            "epsilon": epsilon.sum(),
            "inexactness": missed.sum(),
            "inexactness_ratio": (missed / epsilon[chosen]).max(),
            "envelope": sum(p * v for p, (v, _) in zip(self.alpha, envelopes, strict=True)),
            "envelope_gradient": np.linalg.norm(
                sum(p * g for p, (_, g) in zip(self.alpha, envelopes, strict=True))
            ),
        }


@pytest.mark.parametrize(
    ("selected", "weights", "devices"),
    [
        ("all", "samples", 4),
        pytest.param(2, "uniform", 1, marks=pytest.mark.full),
        pytest.param("all", "uniform", 1, marks=pytest.mark.full),
        pytest.param(2, "samples", 4, marks=pytest.mark.full),
    ],
)
def test_recorded_quantities_equal_the_formulas(selected, weights, devices):
    ready, fed, eng = problem(selected, weights, devices, smoothness=4.0, prox_steps=400)
    reference = Reference(fed, regression(), weights)
    with precision(ready):
        state = eng.state
        for _ in range(6):
            old = by_client(eng, state)
            state, log = eng.run(state, 1)
            new = by_client(eng, state)
            chosen = new[2] < old[2]  # epsilon shrinks where a client takes part
            assert chosen.sum() == (6 if selected == "all" else 2)
            for name, value in reference.measure(old, new, chosen).items():
                found = float(getattr(log.theory, name)[0])
                assert found == pytest.approx(value, rel=1e-9, abs=1e-15), name
            assert log.theory.prox_residual[0] < 1e-12
            assert log.theory.inexactness_ratio[0] <= 1


def test_before_the_first_round_nothing_has_moved():
    ready, fed, eng = problem(smoothness=0.5)
    with precision(ready):
        found = eng.measure(eng.state)
        theta = by_client(eng, eng.state)[0]
        reference = Reference(fed, regression(), "uniform")
        losses = [reference.f(i, theta[i]) for i in range(6)]
    assert found.moved == found.residual_consensus == found.residual_dual == 0
    assert float(found.lagrangian) == pytest.approx(np.mean(losses))
    assert np.isnan(found.envelope)  # not asked for


def test_lyapunov_adds_the_tolerances_and_needs_slack():
    """By 1/(4 k (1 - upsilon)) each, k = (1 - rho^2) x^2 / rho^2 - (L/m + rho)/2, x = lam/m."""
    found = {}
    for smoothness in (0.5, 1e3):
        ready, _, eng = problem(smoothness=smoothness)
        with precision(ready):
            state = jax.tree.map(lambda x: x.copy(), eng.state)  # a run consumes its own
            found[smoothness] = eng.run(state, 3)[1].theory
    x = LAM / 6
    k = (1 - RHO**2) * x**2 / RHO**2 - (0.5 / 6 + RHO) / 2
    added = found[0.5].lyapunov - found[0.5].lagrangian
    np.testing.assert_allclose(added, found[0.5].epsilon / (4 * k * (1 - 0.8)), rtol=1e-12)
    assert np.isnan(found[1e3].lyapunov).all()  # (c) does not hold: the weight is not defined


# on clients made up for the purpose: f_i(theta) = |A_i theta - b_i|^2 / (2 N)

M, D, N = 4, 3, 5
numbers = st.floats(-3, 3, width=32)
clients = st.fixed_dictionaries(
    {
        "x": arrays(float, (M, N, D), elements=numbers),
        "y": arrays(float, (M, N), elements=numbers),
        "theta": arrays(float, (M, D), elements=numbers),
        "w_i": arrays(float, (M, D), elements=numbers),
        "w": arrays(float, (D,), elements=numbers),
    }
)


class Hyper:
    lam, rho, weight_decay, upsilon = (np.float64(v) for v in (0.7, 0.3, 0.0, 0.5))


@jax.jit
def _measured(x, y, theta, w_i, w) -> Measured:
    rule, alpha = Rule(linear(), 0, True), jnp.array(1 / M)

    def one(x, y, theta, w_i):
        shard = Shard(jnp.int32(0), M, jnp.int32(N), N, alpha, lambda rows: (x[rows], y[rows]))
        me = Admm(theta, w_i, Hyper.lam * alpha * (theta - w_i), alpha, jnp.array(1e-3))
        return terms(rule, Round(Hyper, jnp.array(0.1), w, w, jnp.array(True), shard), me, me)

    found, ratio, left = jax.vmap(one)(x, y, theta, w_i)
    sums = jax.tree.map(lambda a: jnp.sum(a, axis=0), found)
    return finish(sums, jnp.array(0.0), M, ratio.max(), left.max())


def measured(case, order=range(M)) -> Measured:
    """All clients' terms, summed in an order."""
    fields = [case[name][np.array(order)] for name in ("x", "y", "theta", "w_i")]
    with jax.enable_x64(True):
        return jax.tree.map(float, _measured(*fields, case["w"]))


@settings(max_examples=40, deadline=None)
@given(clients)
def test_lagrangian_is_f_tilde_and_a_penalty_that_vanishes_at_consensus(case):
    apart = measured(case)
    away = case["w_i"] - case["w"]
    pi = Hyper.lam / M * (case["theta"] - case["w_i"])
    penalty = np.sum(pi * away) + Hyper.rho / 2 * np.sum(away**2)
    assert apart.lagrangian == pytest.approx(apart.f_tilde + penalty, abs=1e-9)
    # Lemma 4's form of it, (rho - lam alpha)/2 |w_i - w|^2 above f(Theta, w)
    gap = (Hyper.rho - Hyper.lam / M) / 2 * np.sum(away**2)
    assert apart.lagrangian == pytest.approx(apart.f + gap, abs=1e-9)
    together = measured({**case, "w_i": np.broadcast_to(case["w"], (M, D))})
    assert together.lagrangian == pytest.approx(together.f_tilde, abs=1e-12)
    assert together.f == pytest.approx(together.f_tilde, abs=1e-12)
    assert together.residual_consensus == 0


@settings(max_examples=30, deadline=None)
@given(clients, st.permutations(range(M)))
def test_nothing_depends_on_the_order_of_clients(case, order):
    for name, value in measured(case, order)._asdict().items():
        expected = getattr(measured(case), name)
        assert value == pytest.approx(expected, rel=1e-9, abs=1e-9, nan_ok=True), name
