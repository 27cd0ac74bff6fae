"""The Moreau envelope: what it is for every function, and closed forms for quadratics."""

import itertools
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from flamejax.theory.moreau import envelope, prox

D = 3
numbers = st.floats(-4, 4, width=32)
vectors = arrays(float, (D,), elements=numbers)
lams = st.floats(0.05, 50)


def logistic(theta, x, y):
    """Mean of log(1 + exp(-y x'theta)): convex, L at most the largest eigenvalue of x'x / 4N."""
    return jnp.mean(jnp.logaddexp(jnp.zeros(len(x)), -y * (x @ theta)))


def wavy(theta):
    """sum of cos(theta_i): not convex, L = 1."""
    return jnp.sum(jnp.cos(theta))


def quadratic(theta, a, b):
    return theta @ (a @ theta) / 2 - b @ theta


@partial(jax.jit, static_argnums=0)
def _solve(f, w, lam, rate, *parameters):
    g = jax.value_and_grad(lambda theta: f(theta, *parameters))
    found = envelope(g, w, lam, w, rate, 20_000)
    nearest, _ = prox(g, w, lam, w, rate, 20_000)
    return found, nearest, g(nearest)[1], g(w)[0]


def solved(f, smoothness, w, lam, *parameters):
    """The envelope at w, the prox there, grad f at the prox, and f(w)."""
    with jax.enable_x64(True):
        rate = np.float64(1 / (smoothness + lam))
        return jax.tree.map(np.asarray, _solve(f, w, np.float64(lam), rate, *parameters))


def curvature(x):
    return float(np.linalg.eigvalsh(x.T @ x).max() / (4 * len(x)))


@settings(max_examples=40, deadline=None)
@given(arrays(float, (5, D), elements=numbers), st.lists(st.booleans(), min_size=5, max_size=5),
       vectors, lams, vectors)  # fmt: skip
def test_envelope_is_the_least_value_and_below_f(x, signs, w, lam, other):
    y = np.where(signs, 1.0, -1.0)
    found, nearest, slope, at_w = solved(logistic, curvature(x), w, lam, x, y)
    assert found.value <= at_w + 1e-12  # theta = w is one choice
    at_other = np.mean(np.logaddexp(0, -y * (x @ other)))
    assert found.value <= at_other + lam / 2 * np.sum((other - w) ** 2) + 1e-9
    # optimality of the prox: grad f + lam (theta - w) = 0, so grad F = lam (w - prox) = grad f
    np.testing.assert_allclose(slope + lam * (nearest - w), 0, atol=1e-7)
    np.testing.assert_allclose(found.gradient, slope, atol=1e-7)


@settings(max_examples=25, deadline=None)
@given(vectors, vectors)
def test_gradient_is_that_of_the_value(w, direction):
    """Also where f is not convex, for lam > 2 L."""
    h, lam = 1e-5, 2.5
    found, ahead, behind = (
        solved(wavy, 1.0, w + step * direction, lam)[0] for step in (0.0, h, -h)
    )
    numeric = (ahead.value - behind.value) / (2 * h)
    assert found.gradient @ direction == pytest.approx(numeric, abs=1e-5)


def test_of_a_quadratic_it_is_known(rng):
    a = rng.normal(size=(D, D))
    a, b, w, lam = a @ a.T, rng.normal(size=D), rng.normal(size=D), 0.7
    found, nearest, _, _ = solved(quadratic, np.linalg.eigvalsh(a).max(), w, lam, a, b)
    exact = np.linalg.solve(a + lam * np.eye(D), b + lam * w)
    np.testing.assert_allclose(nearest, exact, rtol=1e-10)
    np.testing.assert_allclose(found.gradient, lam * (w - exact), rtol=1e-9)
    least = quadratic(exact, a, b) + lam / 2 * np.sum((exact - w) ** 2)
    assert found.value == pytest.approx(least, rel=1e-12)


def test_it_approaches_f_as_lam_grows_not_as_it_becomes_smaller(rng):
    """The paper says the opposite of what its definition of F gives."""
    x, y, w = rng.normal(size=(6, D)), np.sign(rng.normal(size=6)), rng.normal(size=D)
    gaps = []
    for lam in (0.01, 0.1, 1.0, 10.0, 100.0):
        found, _, _, at_w = solved(logistic, curvature(x), w, lam, x, y)
        gaps.append(at_w - found.value)
    assert all(a > b > 0 for a, b in itertools.pairwise(gaps))
    assert gaps[-1] < gaps[0] / 50
    assert gaps[-2] / gaps[-1] == pytest.approx(10, rel=0.2)  # |grad f|^2 / (2 lam) in the end
