"""Statements of the paper's analysis that are wrong as printed, and what holds instead.

What is about linear regression under attack is in test_regression_theory, about the conditions in
test_conditions, about the Moreau envelope in test_moreau; experiments/theory/README.md has all.
"""

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from flamejax.theory import conditions, monte_carlo, study
from flamejax.theory.linear import Problem, personal, rounds, stationary

from .test_convergence import POINT, first, recorded

M, D = 4, 2
numbers = st.floats(-3, 3, width=32)


def least_squares(gram, moment):
    """Clients with grad f_i = A_i theta - c_i, A_i = G_i G_i'."""
    return Problem(gram @ gram.transpose(0, 2, 1), moment, np.full(len(moment), 1 / len(moment)))


def value(problem, theta):
    """f_i(theta_i), up to a constant: [C]."""
    quadratic = np.einsum("ij,ijk,ik->i", theta, problem.gram, theta) / 2
    return quadratic - np.sum(problem.moment * theta, axis=1)


def lagrangian(problem, lam, rho, theta, w_i):
    """With pi_i = lam alpha_i (theta_i - w_i), Lemma 3, and w the mean of the messages."""
    alpha = problem.alpha[:, None]
    pi = lam * alpha * (theta - w_i)
    w = np.mean(w_i + pi / rho, axis=0)
    pulled = value(problem, theta) + lam / 2 * np.sum((theta - w_i) ** 2, axis=1)
    away = w_i - w
    return problem.alpha @ pulled + np.sum(pi * away) + rho / 2 * np.sum(away**2), pi, w


def step(problem, lam, rho, theta, w_i, new):
    """The Lagrangian before and after a round whose theta-steps lead to `new`, and Delta Gamma."""
    before, pi, w = lagrangian(problem, lam, rho, theta, w_i)
    x = lam * problem.alpha[:, None]
    new_w_i = (x * new + rho * w - pi) / (x + rho)  # (13)
    after, _, new_w = lagrangian(problem, lam, rho, new, new_w_i)
    moved = np.sum((new - theta) ** 2) + np.sum((new_w_i - w_i) ** 2)
    return before, after, moved + len(theta) * np.sum((new_w - w) ** 2)


def test_printed_weight_of_epsilon_is_too_small():
    """At a stationary point, clients may step away as far as (16) allows. With alpha^2 in iota the
    Lyapunov function then rises; with 1/4 it falls, by as much as Lemma 1 says."""
    clients, smoothness, upsilon = 100, 1.0, 0.5
    point = conditions.nearest(conditions.Point(2.36, 0.1, 1 / clients, smoothness))
    assert conditions.all_hold(point)
    problem = least_squares(np.full((clients, 1, 1), smoothness**0.5), np.zeros((clients, 1)))
    at_rest, away = np.zeros((clients, 1)), np.full((clients, 1), 1e-2)
    before, after, moved = step(problem, point.lam, point.rho, at_rest, at_rest, away)
    # |alpha (grad f + lam (theta - w_i))|^2 is epsilon in this round, epsilon / upsilon before
    epsilon = (point.alpha * (smoothness + point.lam) * away[0, 0]) ** 2
    shrinks = clients * (epsilon / upsilon - epsilon)
    printed = before - after + conditions.iota_printed(point, upsilon) * shrinks
    corrected = before - after + conditions.iota(point, upsilon) * shrinks
    assert printed < 0
    assert corrected > conditions.descent_constant(point) * moved > 0


CONVEX = (1 + 17**0.5) / 2  # 2.56


@settings(max_examples=200, deadline=None)
@given(
    arrays(float, (M, D, D), elements=numbers),
    *[arrays(float, (M, D), elements=numbers) for _ in range(3)],
    st.floats(0.01, 100),
    st.floats(CONVEX, 30),
)
def test_exact_steps_on_convex_losses_descend_far_outside(gram, moment, theta, w_i, lam, ratio):
    """The conditions are far from necessary. With exact theta-steps and convex f_i the Lagrangian
    falls in every round, from any point, if rho >= (1 + sqrt 17)/2 lam alpha, whatever L is."""
    problem, rho = least_squares(gram, moment), ratio * lam / M
    before, after, _ = step(problem, lam, rho, theta, w_i, personal(problem, lam, w_i))
    assert after <= before + 1e-9 * (1 + abs(before))


def test_exact_steps_can_ascend_below():
    """Which is no accident of the proof alone: at rho = lam alpha / 4 a round can raise it."""
    problem = least_squares(np.array([[[1.0]], [[1.0]]]), np.array([[0.0], [0.0]]))
    lam = 2.0
    theta, w_i = np.array([[1.0], [1.0]]), np.array([[-1.0], [1.0]])
    before, after, _ = step(problem, lam, lam / 2 / 4, theta, w_i, personal(problem, lam, w_i))
    assert after > before + 0.1


@pytest.mark.full
def test_average_gradient_vanishes_like_one_over_t():
    """Theorem 3 prints a constant D_2 epsilon^1 on the right, with which nothing vanishes. Summing
    the tolerances instead leaves D_2 upsilon epsilon^0 / (1 - upsilon) / T."""
    setting, table = recorded()
    table = first(400, table)
    d1, d2 = conditions.descent_constant(POINT), conditions.relative_error_constant(POINT)
    fallen, summed = table["lyapunov"][0] - table["lagrangian"][-1], table["epsilon"][1:].sum()
    upsilon, start = setting.method.upsilon, table["epsilon"][0]
    assert summed <= start * upsilon / (1 - upsilon)
    for count in (10, 100, 400):
        average = np.mean(table["gradient"][:count] ** 2)
        assert average <= d2 / d1 / count * fallen + d2 * start * upsilon / (1 - upsilon) / count
    # as printed, the bound never goes below this, whatever T is, and gradients do
    assert np.mean(table["gradient"][-100:] ** 2) < 1e-6 * d2 * table["epsilon"][1]


def test_relaxed_problem_is_no_lower_bound_but_the_same(rng):
    """min over w of the envelopes, and min over w and Theta together: one value, one minimiser."""
    problem, lam = least_squares(rng.normal(size=(M, D, D)), rng.normal(size=(M, D))), 0.7
    w, theta = stationary(problem, lam)
    together = problem.alpha @ (value(problem, theta) + lam / 2 * np.sum((theta - w) ** 2, 1))

    def envelopes(w):
        nearest = personal(problem, lam, w)
        far = np.sum((nearest - w) ** 2, axis=1)
        return problem.alpha @ (value(problem, nearest) + lam / 2 * far)

    assert envelopes(w) == pytest.approx(together, rel=1e-12)
    for _ in range(20):
        assert envelopes(w + 0.1 * rng.normal(size=D)) > together


def test_analysis_of_personalized_models_is_not_of_algorithm_1(rng):
    """After its one round the analysis solves theta_i around w; Algorithm 1 does it around w_i."""
    b, lam, rho = 0.8, 1.5, 0.4
    problem = least_squares(np.tile(np.eye(D) * b**0.5, (M, 1, 1)), rng.normal(size=(M, D)))
    w, _ = rounds(problem, lam, rho, 1)
    analysed = personal(problem, lam, w)
    _, letter = rounds(problem, lam, rho, 2)
    own = problem.moment / (b + lam)  # theta after the first round
    x = lam / M
    np.testing.assert_allclose(letter, personal(problem, lam, x / (x + rho) * own), rtol=1e-12)
    assert np.abs(letter - analysed).max() > 0.01


def test_gradient_in_w_i_is_minus_the_dual_and_stays(rng):
    """Theorem 1 (c) has the gradient of f~ in W vanish; its proof sums over clients. Each part is
    -pi_i, which at the stationary point is the client's own gradient, grad f_i / m."""
    problem = least_squares(rng.normal(size=(M, D, D)), rng.normal(size=(M, D)))
    lam = 0.7
    w, theta = stationary(problem, lam)
    slope = lam * problem.alpha[:, None] * (w - theta)
    grads = np.einsum("ijk,ik->ij", problem.gram, theta) - problem.moment
    np.testing.assert_allclose(slope, problem.alpha[:, None] * grads, atol=1e-12)
    np.testing.assert_allclose(slope.sum(0), 0, atol=1e-12)
    assert np.abs(slope).max() > 0.01


def test_regression_loss_is_squared_and_noise_has_n_entries():
    """Without its square the printed loss of linear regression is of either sign, with mean zero at
    the true parameters, and has no minimum. The noise of N samples has N entries, not d."""
    clients, samples, features, sigma = 400, 12, 3, 1.5
    data = {"features": features, "samples": samples, "noise": sigma}
    config = study.configure(
        {"data": data, "partition": {"clients": clients}, "attack": {"fraction": 0.5}}, {}
    )
    federation, problem = monte_carlo.clients_of(config)
    positions = np.arange(samples, dtype=np.int32)
    everyone = np.arange(clients, dtype=np.int32)
    with jax.enable_x64(True):
        read = jax.jit(jax.vmap(federation.read, (None, 0, None)))
        x, y = map(np.asarray, read(federation.arrays, everyone, positions))
    noise = y - np.einsum("ijk,ik->ij", x, problem.theta)
    assert noise.shape == (clients, samples)
    assert np.linalg.matrix_rank(noise) == samples  # in d directions it would be d
    squared, printed = np.mean(noise**2, axis=1) / 2, np.mean(noise, axis=1) / 2
    error = squared.std() / clients**0.5
    assert squared.mean() == pytest.approx(sigma**2 / 2, abs=4 * error)
    assert abs(printed.mean()) < 4 * printed.std() / clients**0.5
    assert 0.3 < np.mean(printed < 0) < 0.7
