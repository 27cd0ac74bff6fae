"""The convergence conditions: their corners, the region they leave, and the constants."""

import math
import subprocess
import sys

import numpy as np
import pytest
from scipy import optimize

from flamejax.theory import conditions
from flamejax.theory.conditions import PAPER, Point

TOP = (math.sqrt(17) - 3) / 4  # where the band closes without curvature


def test_the_papers_own_setting_fails_a_alone():
    a, b, c = conditions.check(PAPER)
    assert (a.left, a.right) == pytest.approx((1.1, 0.1))
    assert (b.left, b.right) == pytest.approx((0.1, 0.1))
    assert (c.left, c.right) == pytest.approx((0.99, 0.05))
    assert [condition.name for condition in (a, b, c) if not condition.holds] == ["a"]
    assert a.margin == pytest.approx(0.1 / 1.1)
    assert c.margin == pytest.approx(0.99 / 0.05)


def holds_as_printed(lam, alpha, rho, smoothness):
    """The three as Lemma 1 prints them: < 0, >=, > 0."""
    a = lam**2 * alpha**2 * (1 + rho) / rho**2 - (lam * alpha + rho) / 2
    c = (1 - rho**2) / rho**2 * lam**2 * alpha**2 - (smoothness * alpha + rho) / 2
    return a < 0, rho >= lam * alpha, c > 0


def test_random_points_against_the_lemma(rng):
    seen = set()
    for _ in range(5000):
        rho = 10 ** rng.uniform(-3, 0.3)
        alpha, smoothness = 10 ** rng.uniform(-2, 0), rng.choice([0.0, 0.01, 1.0])
        lam = rho * rng.uniform(0.01, 1.5) / alpha
        point = Point(lam, rho, alpha, smoothness)
        expected = holds_as_printed(lam, alpha, rho, smoothness)
        assert tuple(c.holds for c in conditions.check(point)) == expected
        assert all((c.margin > 1) == c.holds for c in conditions.check(point) if c.left != c.right)
        low, high = conditions.band(rho, point.la)
        assert conditions.all_hold(point) == all(expected) == (low < point.x < high)
        assert expected[1] or not expected[0]  # (a) implies (b)
        seen.add(expected)
    assert len(seen) == 6  # (a) and (b) or only (b) or none of the two, each with and without (c)


def test_the_band_is_where_the_conditions_turn():
    for rho, la in [(0.1, 0.0), (0.2, 0.0), (0.15, 0.01), (1e-4, 0.0)]:
        low, high = conditions.band(rho, la)
        for edge, inside in ((low, 1), (high, -1)):
            for step, expected in ((1e-9, True), (-1e-9, False)):
                x = edge * (1 + inside * step)
                assert conditions.all_hold(Point(x, rho, 1.0, la)) == expected
    low, high = conditions.band(0.1, 0.0)
    assert (low, high) == pytest.approx((0.0225, 0.0237), abs=5e-5)
    assert math.isinf(conditions.band(1.0, 0.0)[0])


def test_the_largest_curvature_that_leaves_room():
    found = optimize.minimize_scalar(
        lambda rho: -conditions.room(rho), bounds=(0, 1), method="bounded", options={"xatol": 1e-12}
    )
    most, rho = conditions.limit()
    assert most == pytest.approx(-found.fun, rel=1e-12)
    assert rho == pytest.approx(found.x, abs=1e-6)
    assert (most, rho) == pytest.approx((0.014643, 0.16330), abs=5e-6)
    assert conditions.room(0.1) == pytest.approx(0.01134, abs=5e-6)


def test_the_rho_that_leave_room():
    assert conditions.feasible_rho(0.0) == pytest.approx((0, TOP), abs=1e-12)
    for la in (1e-9, 0.003, 0.0146):
        low, high = conditions.feasible_rho(la)
        for rho, expected in ((low, False), (high, True)):
            assert conditions.room(rho * (1 - 1e-6)) > la or not expected
            assert (conditions.room(rho * (1 + 1e-6)) > la) != expected
            bottom, top = conditions.band(rho, la)
            assert bottom == pytest.approx(top, rel=1e-6)
    assert all(map(math.isnan, conditions.feasible_rho(0.015)))


def closest_by_search(point):
    """The squared distance to the band, on a fine grid of rho over all its width."""
    low, high = conditions.feasible_rho(point.la)
    found = math.inf
    for rho in np.geomspace(max(low, 1e-12) * (1 + 1e-9), high * (1 - 1e-9), 20_000):
        bottom, top = conditions.band(rho, point.la)
        x = min(max(point.x, bottom), top)
        found = min(found, math.log(rho / point.rho) ** 2 + math.log(x / point.x) ** 2)
    return math.sqrt(found)


@pytest.mark.parametrize(
    "point",
    [
        PAPER,
        Point(1.0, 0.1, 0.1, 0.05),
        Point(0.01, 0.2, 0.5, 0.02),
        Point(100.0, 10.0, 0.1, 0.0),
        Point(1e-6, 1e-6, 0.1, 0.0),
        Point(0.2, 0.1, 0.1, 0.112),
        Point(5.0, 1e-3, 0.01, 1.4),
    ],
)
def test_the_nearest_point_satisfies_all_and_none_is_much_nearer(point):
    found = conditions.nearest(point)
    assert conditions.all_hold(found)
    assert (found.alpha, found.smoothness) == (point.alpha, point.smoothness)
    away = math.hypot(math.log(found.lam / point.lam), math.log(found.rho / point.rho))
    assert away < closest_by_search(point) + 0.02  # it stays a little inside
    assert len(f"{found.lam:g}{found.rho:g}") <= 16  # few digits


def test_a_point_that_satisfies_all_is_its_own_nearest():
    point = Point(0.23, 0.1, 0.1, 0.0)
    assert conditions.nearest(point) == point


def test_nearest_exists_exactly_where_there_is_room(rng):
    most, _ = conditions.limit()
    for _ in range(200):
        point = Point(*10 ** rng.uniform([-12, -12, -6, -9], [12, 12, 0, 9]))
        found = conditions.nearest(point)
        assert (found is not None) == (point.la < most)
        assert found is None or conditions.all_hold(found)
    assert conditions.nearest(Point(1.0, 0.1, 1.0, most)) is None
    assert conditions.nearest(Point(1.0, 0.1, 1.0, most * (1 - 1e-9))) is not None


@pytest.mark.parametrize("smoothness", [0.0, 0.01, 1.0, 37.5, 1e6])
def test_how_many_clients_are_needed(smoothness):
    clients = conditions.clients_needed(smoothness)
    assert conditions.nearest(Point(1.0, 0.1, 1 / clients, smoothness)) is not None
    fewer = Point(1.0, 0.1, 1 / (clients - 1), smoothness) if clients > 1 else None
    assert fewer is None or conditions.nearest(fewer) is None


def test_extreme_numbers_raise_nothing():
    for lam in (1e-300, 1.0, 1e300):
        for rho in (1e-300, 1.0, 1e300):
            conditions.nearest(Point(lam, rho, 1e-9, 0.0))
            conditions.nearest(Point(lam, rho, 1.0, 1e300))


# ---- constants


def test_constants_by_hand():
    point = Point(0.23, 0.1, 0.1, 0.05)  # x = .023, L alpha = .005
    k = 0.99 * 0.23**2 - 0.105 / 2
    assert conditions.slack(point) == pytest.approx(k)
    assert conditions.descent_constant(point) == pytest.approx(0.123 / 2 - 1.1 * 0.23**2)
    assert conditions.descent_constant(Point(1e-3, 0.1, 0.1, 0.0)) == pytest.approx(0.05)
    assert math.isnan(conditions.iota(point, 0.9))  # k < 0
    flat = point._replace(smoothness=0.0)
    k = 0.99 * 0.23**2 - 0.05
    assert conditions.iota(flat, 0.9) == pytest.approx(1 / (0.4 * k))
    assert conditions.iota_printed(flat, 0.9) == pytest.approx(0.01 / (0.1 * k))


def test_the_printed_weight_of_epsilon_is_too_small():
    """Lemma 1 needs <g, d> <= k|d|² + iota (epsilon_t − epsilon_t+1) for every |g|² = epsilon_t+1,
    epsilon_t+1 = upsilon epsilon_t. The worst d is g/(2k): 1/(4k) <= iota (1 − upsilon)/upsilon."""
    point, upsilon = Point(0.23, 0.1, 0.1, 0.0), 0.95
    k = conditions.slack(point)
    g = 1.0
    d = g / (2 * k)
    gained = g * d - k * d**2
    dropped = g**2 * (1 / upsilon - 1)
    assert gained <= conditions.iota(point, upsilon) * dropped
    assert gained > conditions.iota_printed(point, upsilon) * dropped


def lemma_2(point, rng):
    """|grad L|² and the squared steps of one round on scalar quadratics: the two sides of Lemma 2.

    f(theta) = L theta²/2 for each of two clients; any earlier round leaves pi = x (theta − w_i).
    """
    lam, rho, alpha, smoothness = point
    x = point.x
    theta, w_i = rng.normal(size=(2, 2))
    pi = x * (theta - w_i)
    w = np.mean(w_i + pi / rho)
    new_theta = lam * w_i / (smoothness + lam)  # exact, epsilon = 0
    new_w_i = (x * new_theta + rho * w - pi) / (x + rho)
    new_pi = pi + rho * (new_w_i - w)
    new_w = np.mean(new_w_i + new_pi / rho)
    gradient = np.concatenate(
        [
            alpha * (smoothness * theta + lam * (theta - w_i)),
            x * (w_i - theta) + pi + rho * (w_i - w),
            w_i - w,
            [np.sum(-pi - rho * (w_i - w))],
        ]
    )
    steps = np.concatenate([new_theta - theta, new_w_i - w_i, [new_w - w] * 2])
    return np.sum(gradient**2), np.sum(steps**2)


def test_the_relative_error_is_bounded(rng):
    """And by the printed constant only because it adds what should be the larger of two."""
    for _ in range(300):
        point = Point(*10 ** rng.uniform(-2, 1, size=4))
        gradient, steps = lemma_2(point, rng)
        assert gradient <= conditions.relative_error_constant(point) * steps * (1 + 1e-9)
    small, large = Point(0.2, 0.1, 0.1, 0.1), Point(0.2, 0.1, 0.1, 20.0)
    assert conditions.relative_error_constant(small) < conditions.relative_error_printed(small)
    assert conditions.relative_error_constant(large) > conditions.relative_error_printed(large)
    x, la = 0.02, 2.0
    by_hand = 4 * x**2 * (1 + 100) + 4 * (la**2 + x**2)
    assert conditions.relative_error_constant(large) == pytest.approx(by_hand)


def test_no_jax_is_needed():
    code = (
        "import sys, flamejax.theory.conditions, flamejax.cli_theory; print('jax' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "False"
