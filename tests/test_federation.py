"""What clients read: the right samples, normalised, with the promised noise."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flamejax import config
from flamejax.datasets import load
from flamejax.federation import TRAIN, federate, split


def federation_of(seed=0, **values):
    settings = config.make({"seed": seed, **values})
    rng = np.random.default_rng(seed)
    data = load(settings.data, rng)
    return data, federate(settings, data, rng)


@given(samples=st.integers(3, 10_000), held=st.floats(0.01, 0.99), part=st.floats(0.01, 0.99))
def test_no_part_of_a_split_is_empty(samples, held, part):
    for validation in (0.0, part):
        sizes = split(samples, held, validation)
        assert sum(sizes) == samples
        assert min(sizes[0], sizes[2]) >= 1
        assert (sizes[1] >= 1) == (validation > 0)


def test_paper_split_is_eighty_twenty():
    _, fed = federation_of(partition={"name": "iid", "clients": 4}, selection={"on": "test"})
    assert fed.counts.tolist() == [[1587, 0, 397]] * 4


def test_training_does_not_depend_on_how_the_hybrid_is_chosen():
    (_, a), (_, b) = (federation_of(selection={"on": on}) for on in ("validation", "test"))
    np.testing.assert_array_equal(a.counts[:, TRAIN], b.counts[:, TRAIN])
    np.testing.assert_array_equal(a.arrays.rows, b.arrays.rows)


def test_reads_normalised_pixels_of_the_right_rows():
    data, fed = federation_of(partition={"name": "qlabel", "clients": 6})
    for client in (0, 5):
        start = fed.arrays.starts[client]
        rows = fed.arrays.rows[start + np.array([0, 3, 7])]
        device = jax.tree.map(jnp.asarray, fed.arrays)
        x, y = fed.read(device, jnp.int32(client), jnp.array([0, 3, 7]))
        expected = (data.images[rows] / 255 - 0.1307) / 0.3081
        np.testing.assert_allclose(x, expected, rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(y, data.labels[rows])
        assert set(np.asarray(y)) <= set(data.labels[rows])


@pytest.fixture(scope="module")
def noisy():
    quality = {"name": "quality", "clients": 5, "sigma": 0.4}
    _, noisy = federation_of(partition=quality)
    _, clean = federation_of(partition={**quality, "sigma": 0.0})
    return noisy, clean


def noise_of(noisy, client, positions):
    (x, _), (y, _) = (
        fed.read(jax.tree.map(jnp.asarray, fed.arrays), jnp.int32(client), positions)
        for fed in noisy
    )
    return np.asarray(x - y)


def test_noise_has_the_specified_variance(noisy):
    """sigma * i / m for client i = 1..m; 200 x 784 draws, so the variance is known to 0.4 %."""
    for client in range(5):
        noise = noise_of(noisy, client, jnp.arange(200))
        np.testing.assert_allclose(noise.var(), 0.4 * (client + 1) / 5, rtol=0.02)
        assert abs(noise.mean()) < 0.01


def test_noise_is_fixed_per_sample_and_differs_between_samples_and_clients(noisy):
    first = noise_of(noisy, 2, jnp.arange(10))
    again = noise_of(noisy, 2, jnp.array([7, 3]))
    np.testing.assert_allclose(again, first[[7, 3]], atol=1e-6)
    assert abs(np.corrcoef(first[0].ravel(), first[1].ravel())[0, 1]) < 0.15
    other = noise_of(noisy, 3, jnp.arange(10))
    assert abs(np.corrcoef(first.ravel(), other.ravel())[0, 1]) < 0.05


def test_samples_stay_bytes():
    _, fed = federation_of(partition={"name": "quality"})
    assert fed.arrays.images.dtype == np.uint8
    assert sum(x.nbytes for x in jax.tree.leaves(fed.arrays)) < 1.02 * fed.arrays.images.nbytes
