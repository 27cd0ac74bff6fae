"""Permutations that are evaluated, not stored."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flamejax.shuffle import permute

permute_all = jax.jit(lambda key, n, size: permute(key, jnp.arange(size), n), static_argnums=2)


@given(n=st.integers(1, 300), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=50, deadline=None)
def test_is_a_permutation(n, seed):
    places = np.asarray(permute_all(jax.random.key(seed), n, 300))[:n]
    assert sorted(places) == list(range(n))


@pytest.mark.parametrize(
    "n", [3, 16, *(pytest.param(n, marks=pytest.mark.full) for n in (2, 10, 17))]
)
def test_every_element_stands_everywhere_equally_often(n):
    keys = jax.random.split(jax.random.key(1), 20_000)
    places = np.asarray(jax.vmap(lambda k: permute(k, jnp.arange(n), n))(keys))
    counts = np.stack([np.bincount(places[:, i], minlength=n) for i in range(n)])
    expected = len(keys) / n
    chi_square = ((counts - expected) ** 2 / expected).sum()
    freedom = (n - 1) ** 2
    assert abs(chi_square - freedom) < 5 * np.sqrt(2 * freedom) + 5


def test_neighbours_are_independent():
    n, keys = 5, jax.random.split(jax.random.key(2), 40_000)
    places = np.asarray(jax.vmap(lambda k: permute(k, jnp.arange(2), n))(keys))
    pairs = np.bincount(places[:, 0] * n + places[:, 1], minlength=n * n).reshape(n, n)
    assert (np.diag(pairs) == 0).all()
    off = pairs[~np.eye(n, dtype=bool)]
    expected = len(keys) / len(off)
    assert ((off - expected) ** 2 / expected).sum() < 19 + 5 * np.sqrt(2 * 19)


def test_positions_can_be_read_in_any_piece():
    key = jax.random.key(3)
    whole = permute(key, jnp.arange(1000), 1000)
    np.testing.assert_array_equal(permute(key, jnp.arange(300, 400), 1000), whole[300:400])


def test_needs_nothing_of_size_n():
    few = permute(jax.random.key(4), jnp.arange(100), 2**31 - 1)
    assert len(set(few.tolist())) == 100
    assert int(few.min()) >= 0
    assert float(few.std()) > 1e8
