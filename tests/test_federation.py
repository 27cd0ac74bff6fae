"""What clients read: the right samples, normalised, with the promised noise."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from flamejax import config
from flamejax.federation import TRAIN, assemble, split
from flamejax.types import Dataset


def federation_of(own=None, **values):
    return assemble(config.make(values), own)


@given(
    samples=st.lists(st.integers(3, 10_000), min_size=1),
    held=st.floats(0.01, 0.99),
    part=st.floats(0.01, 0.99),
)
def test_no_part_of_a_split_is_empty(samples, held, part):
    for validation in (0.0, part):
        sizes = split(np.array(samples), held, validation)
        np.testing.assert_array_equal(sizes.sum(1), samples)
        assert sizes[:, [0, 2]].min() >= 1
        assert ((sizes[:, 1] >= 1) == (validation > 0)).all()


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


COLOURS = Dataset(np.full((500, 16, 16, 3), 40, np.uint8), np.zeros(500, int), 1, mean=0.5, std=0.5)


@pytest.fixture(
    scope="module",
    params=[
        "mnist_mini",
        *(pytest.param(x, marks=pytest.mark.full) for x in ("synthetic", "colours")),
    ],
)
def noise_of(request):
    """(client, positions) -> the noise on its inputs [B, ...]; sigma = 0.4, five clients."""
    quality = {"name": "quality", "clients": 5, "sigma": 0.4}
    name = request.param
    values = {"data": {"name": name, "samples": 400}} if name == "synthetic" else {}
    own = COLOURS if name == "colours" else None
    noisy, clean = (
        federation_of(own=own, partition={**quality, "sigma": sigma}, **values)[1]
        for sigma in (0.4, 0.0)
    )
    assert noisy.clients == 5
    arrays = jax.tree.map(jnp.asarray, noisy.arrays)

    @jax.jit
    def noise(client, positions):
        (x, _), (y, _) = (fed.read(arrays, client, positions) for fed in (noisy, clean))
        return x - y

    return lambda client, positions: np.asarray(noise(jnp.int32(client), jnp.asarray(positions)))


def test_noise_has_the_specified_variance(noise_of):
    """sigma * i / m for client i = 1..m."""
    for client in range(5):
        noise = noise_of(client, np.arange(100)) / (0.4 * (client + 1) / 5) ** 0.5
        total = stats.chi2(noise.size).cdf((noise.astype(float) ** 2).sum())
        assert 1e-5 < total < 1 - 1e-5
        assert stats.kstest(noise.ravel(), "norm").pvalue > 1e-5


def test_noise_is_fixed_per_sample_and_differs_between_samples_and_clients(noise_of):
    first = noise_of(2, np.arange(10))
    again = noise_of(2, np.array([7, 3]))
    np.testing.assert_allclose(again, first[[7, 3]], atol=1e-5)
    samples = first.reshape(10, -1)
    between = np.corrcoef(samples)[np.triu_indices(10, 1)] * samples.shape[1] ** 0.5
    assert stats.kstest(between, "norm").pvalue > 1e-5
    other = noise_of(3, np.arange(10))
    assert abs(np.corrcoef(first.ravel(), other.ravel())[0, 1]) < 5 / first.size**0.5


POISON = {"name": "label_poison", "fraction": 0.5}


@pytest.mark.parametrize(
    "values",
    [
        {"partition": {"name": "quality"}, "attack": POISON},
        pytest.param(
            {"partition": {"name": "quality", "overlap": True}, "attack": POISON},
            marks=pytest.mark.full,
        ),
        pytest.param({"partition": {"name": "qlabel", "overlap": True}}, marks=pytest.mark.full),
        {"data": {"name": "synthetic"}, "partition": {"name": "quality"}, "attack": POISON},
        pytest.param({"data": {"name": "linreg"}}, marks=pytest.mark.full),
    ],
)
def test_one_program_reads_the_samples_of_any_seed(values):
    """What is read depends on the seed by the arrays alone."""
    one, other = (federation_of(**values, seed=seed)[1] for seed in (1, 4_000_000_000))
    traced = []

    @jax.jit
    def read(*arguments):
        traced.append(arguments)
        return one.read(*arguments)

    positions, alone = np.arange(70, dtype=np.int32), jax.jit(other.read)
    assert one.arrays._fields == other.arrays._fields
    for client in (0, 3, 9):
        found = read(other.arrays, np.int32(client), positions)
        expected = alone(other.arrays, np.int32(client), positions)
        jax.tree.map(np.testing.assert_array_equal, found, expected)
        before = read(one.arrays, np.int32(client), positions)[0]
        assert np.abs(np.asarray(before) - np.asarray(found[0])).max() > 0.1
    assert len(traced) == 1


def test_samples_stay_bytes():
    _, fed = federation_of(partition={"name": "quality"})
    assert fed.arrays.images.dtype == np.uint8
    assert sum(x.nbytes for x in jax.tree.leaves(fed.arrays)) < 1.02 * fed.arrays.images.nbytes


def test_devices_of_a_cpu_share_the_samples_with_the_host():
    """Whatever the address they came at; three quarters of a data set's memory would be copies."""
    room = np.zeros(1001, np.uint8)
    off = room[1 - room.ctypes.data % 2 :][:1000].reshape(10, 10, 10)
    _, fed = federation_of(
        Dataset(off, np.arange(10) % 2, 2),
        partition={"name": "iid", "clients": 2, "min_samples": 3},
    )
    images = fed.arrays.images
    np.testing.assert_array_equal(images, off)
    mesh = jax.make_mesh((len(jax.devices()),), ("clients",))
    placed = jax.device_put(images, jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec()))
    places = {shard.data.unsafe_buffer_pointer() for shard in placed.addressable_shards}
    assert places == {images.ctypes.data}
