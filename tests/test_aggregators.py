"""Aggregators against NumPy and brute force, with absent rows, and split over devices."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P
from scipy.optimize import minimize

from flamejax import config, registry
from flamejax.aggregators.common import sort_rows
from flamejax.aggregators.multi_krum import distances, krum_scores
from flamejax.engine.devices import AXIS, make_mesh
from flamejax.engine.messages import combine
from flamejax.errors import InputError

NAMES = registry.names("aggregators")


def settings(name, **values):
    return config.make({"aggregator": {"name": name, **values}}).aggregator


def aggregate(name, rows, weights=None, center=None, malicious=0, **values):
    """The aggregator on a plain matrix, in float64."""
    chosen = settings(name, **values)
    weights = np.ones(len(rows)) if weights is None else np.asarray(weights, float)
    center = np.zeros(rows.shape[1]) if center is None else center
    with jax.enable_x64(True):
        rule = chosen.build(int((weights > 0).sum()), malicious)
        hyper = jax.tree.map(jnp.asarray, chosen.hyper())
        combined = jax.jit(partial(rule.combine, total=lambda x: x))(
            hyper, jnp.asarray(rows), jnp.asarray(weights), jnp.asarray(center)
        )
        return np.asarray(combined)


@pytest.fixture
def rows(rng):
    return rng.normal(size=(11, 7)) * rng.uniform(0.1, 3, size=(11, 1)) + rng.normal(size=7)


@pytest.mark.parametrize("n", [1, 2, 3, 8, 11, 50])
def test_columns_are_sorted_with_the_absent_at_the_end(n, rng):
    rows = rng.normal(size=(n, 6)).round(1).astype(np.float32)  # with ties
    here = rng.random(n) < 0.7
    found = np.asarray(sort_rows(jnp.asarray(rows), jnp.asarray(here.astype(np.float32))))
    np.testing.assert_array_equal(found[: here.sum()], np.sort(rows[here], axis=0))
    assert np.isinf(found[here.sum() :]).all()


@pytest.mark.parametrize("n", [1, 2, 5, 8, 11])
def test_median_and_trimmed_mean_equal_numpy(n, rows):
    rows = rows[:n]
    np.testing.assert_allclose(aggregate("median", rows), np.median(rows, axis=0))
    for cut in range((n - 1) // 2 + 1):
        expected = np.sort(rows, axis=0)[cut : n - cut].mean(0)
        np.testing.assert_allclose(aggregate("trimmed_mean", rows, suspects=cut), expected)


def test_means(rows, rng):
    np.testing.assert_allclose(aggregate("mean", rows), rows.mean(0))
    weights = rng.uniform(1, 5, len(rows))
    expected = np.average(rows, axis=0, weights=weights)
    np.testing.assert_allclose(aggregate("weighted_mean", rows, weights), expected)
    rule = settings("weighted_mean").build(3, 0)
    np.testing.assert_array_equal(rule.weight(np.array([4.0, 9.0])), [4, 9])


def brute_force_scores(rows, suspects):
    n, scores = len(rows), []
    for i in range(n):
        away = sorted(np.sum((rows[i] - rows[j]) ** 2) for j in range(n) if j != i)
        scores.append(sum(away[: n - suspects - 2]))
    return np.array(scores)


@pytest.mark.parametrize("suspects", [0, 2, 4])
def test_krum_scores_equal_a_brute_force_loop(suspects, rows):
    here = jnp.ones(len(rows), bool)
    with jax.enable_x64(True):
        squared = distances(jnp.asarray(rows), here, lambda x: x)
        found = krum_scores(squared, here, suspects)
    expected = brute_force_scores(rows, suspects)
    np.testing.assert_allclose(found, expected)
    best = np.argsort(expected)
    kept = rows[best[: len(rows) - suspects]].mean(0)
    np.testing.assert_allclose(aggregate("multi_krum", rows, suspects=suspects), kept)
    single = aggregate("multi_krum", rows, suspects=suspects, keep=1)
    np.testing.assert_allclose(single, rows[best[0]])


def test_multi_krum_that_keeps_all_is_the_mean(rows):
    found = aggregate("multi_krum", rows, suspects=0, keep=len(rows))
    np.testing.assert_allclose(found, rows.mean(0))


def test_geometric_median_has_the_least_sum_of_distances(rows):
    found = aggregate("geometric_median", rows, iterations=500)
    best = minimize(lambda v: np.linalg.norm(rows - v, axis=1).sum(), rows.mean(0), tol=1e-12)
    np.testing.assert_allclose(found, best.x, atol=1e-4)


def test_clipping(rows, rng):
    center = rng.normal(size=rows.shape[1])

    def clipped(center, radius=None):
        steps = rows - center
        length = np.linalg.norm(steps, axis=1)
        radius = np.sort(length)[(len(rows) - 1) // 2] if radius is None else radius
        return center + (np.minimum(1, radius / length)[:, None] * steps).mean(0)

    np.testing.assert_allclose(aggregate("norm_clip", rows, None, center), clipped(center))
    expected = clipped(center, 0.5)
    np.testing.assert_allclose(aggregate("norm_clip", rows, None, center, radius=0.5), expected)
    found = aggregate("centered_clip", rows, None, center, radius=0.5, iterations=2)
    np.testing.assert_allclose(found, clipped(expected, 0.5))
    far = aggregate("norm_clip", rows, None, center, radius=1e9)
    np.testing.assert_allclose(far, rows.mean(0))


@pytest.mark.parametrize("name", [n for n in NAMES if n not in ("mean", "weighted_mean")])
def test_a_few_outliers_do_not_matter(name, rng):
    honest = rng.normal(size=(9, 5))
    rows = np.concatenate([honest, np.full((2, 5), 1e6)])
    found = aggregate(name, rows, malicious=2, center=np.zeros(5))
    assert np.linalg.norm(found - honest.mean(0)) < 3
    assert np.linalg.norm(rows.mean(0)) > 1e5


@pytest.mark.parametrize("name", NAMES)
def test_rows_without_weight_do_not_count_whatever_they_hold(name, rows):
    padded = np.insert(rows, 4, 1e9, axis=0)
    padded = np.append(padded, np.full((2, rows.shape[1]), np.inf), axis=0)
    weights = np.ones(len(padded))
    weights[[4, -2, -1]] = 0
    center = rows.mean(0) + 0.1
    np.testing.assert_allclose(
        aggregate(name, padded, weights, center, malicious=2),
        aggregate(name, rows, None, center, malicious=2),
    )


@pytest.mark.parametrize("name", NAMES)
def test_devices_share_the_columns(name, rng):
    """Rows on four devices, parameters that do not divide by four: as on one device."""
    messages = {"a": rng.normal(size=(12, 3, 2)), "b": rng.normal(size=(12, 5))}
    messages = jax.tree.map(lambda x: jnp.asarray(x, jnp.float32), messages)
    weights = jnp.asarray(np.r_[1, 0, np.ones(10)], jnp.float32)
    center = jax.tree.map(lambda x: x.mean(0) + 0.3, messages)
    chosen = settings(name)
    rule = chosen.build(11, 3)

    def on(devices):
        mesh = make_mesh(devices, useful=12)
        f = partial(combine, rule, jax.tree.map(jnp.float32, chosen.hyper()))
        specs = (P(AXIS), P(AXIS), P())
        mapped = jax.shard_map(f, mesh=mesh, in_specs=specs, out_specs=P(), check_vma=False)
        return jax.jit(mapped)(messages, weights, center)

    one, four = on(1), on(4)
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5), four, one)


REFUSED = [
    ("multi_krum", {"suspects": 4}, 10, r"aggregator\.suspects = 4 .* n >= 2f \+ 3, so at most 3"),
    ("multi_krum", {}, 2, r"'multi_krum' needs n >= 2f \+ 3"),
    ("multi_krum", {"keep": 11}, 10, r"aggregator\.keep = 11"),
    ("trimmed_mean", {"suspects": 5}, 10, r"aggregator\.suspects = 5 .* at most 4"),
]


@pytest.mark.parametrize(("name", "values", "messages", "said"), REFUSED)
def test_refused(name, values, messages, said):
    with pytest.raises(InputError, match=said):
        settings(name, **values).build(messages, 0)


def test_suspects_follow_the_attack_as_far_as_the_rule_allows(rng):
    """Of 9 messages multi-Krum bears 3 suspects; asked to bear 6 it still uses 3."""
    rows = rng.normal(size=(9, 4))
    three = aggregate("multi_krum", rows, suspects=3)
    np.testing.assert_allclose(aggregate("multi_krum", rows, malicious=6), three)
    np.testing.assert_allclose(
        aggregate("multi_krum", rows, malicious=1), aggregate("multi_krum", rows, suspects=1)
    )
