"""Clients whose samples are computed when they are read: the promised ones, and nothing stored."""

import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import flamejax as fj
from flamejax import config
from flamejax.datasets import load
from flamejax.errors import InputError
from flamejax.federation import TRAIN, assemble, federate
from flamejax.heterogeneity import clients_of
from flamejax.partitions import virtual
from flamejax.types import Dataset

CLEARLY = 1e-4  # below this p-value a law does not hold
DATA = load(config.Data(), np.random.default_rng(0))
SOME_RULES = [  # and the others in the long form
    name if name == "qlabel" else pytest.param(name, marks=pytest.mark.full)
    for name in virtual.RULES
]


def make(name="iid", clients=20, samples=100, seed=0, data=DATA, **values):
    """A federation of virtual clients; other keywords are tables of a config."""
    partition = {"name": name, "overlap": True, "clients": clients, **values.pop("partition", {})}
    tables = {"seed": seed, "data": {"samples": samples}, "partition": partition, **values}
    return federate(config.make(tables), data, np.random.default_rng(seed))


def rows_of(fed, clients, positions=None):
    """Rows [clients, positions] of the stored samples, by default of all positions."""
    numbers = np.arange(len(fed.arrays.labels), dtype=np.int32)  # every sample says its row
    honest = np.zeros_like(fed.arrays.poisoned)
    arrays = jax.tree.map(jnp.asarray, fed.arrays._replace(labels=numbers, poisoned=honest))
    if positions is None:
        positions = np.arange(fed.counts[0].sum())
    positions = jnp.asarray(positions, jnp.int32)
    read = jax.jit(jax.vmap(lambda client: fed.read(arrays, client, positions)[1]))
    return np.asarray(read(jnp.asarray(clients, jnp.int32)))


@pytest.mark.parametrize("name", virtual.RULES)
def test_clients_are_of_one_size_and_have_no_sample_twice(name):
    fed = make(name)
    assert fed.counts.tolist() == [[80, 5, 15]] * 20
    rows = rows_of(fed, np.arange(20))
    assert all(len(set(mine)) == 100 for mine in rows.tolist())
    assert len({tuple(mine) for mine in rows.tolist()}) == 20
    assert len(np.unique(rows)) < rows.size  # clients share samples


def test_a_client_may_take_everything():
    rows = rows_of(make(samples=len(DATA.labels)), [3])[0]
    np.testing.assert_array_equal(np.sort(rows), np.arange(len(DATA.labels)))


@pytest.mark.parametrize(
    ("q", "samples"),
    [
        (3, 50),
        (1, 30),
        pytest.param(2, 100, marks=pytest.mark.full),
        pytest.param(10, 200, marks=pytest.mark.full),
    ],
)
def test_every_client_has_q_classes_in_training_and_test(q, samples):
    fed = make("qlabel", 50, samples, partition={"q": q})
    labels = DATA.labels[rows_of(fed, np.arange(50))]
    train, test = fed.counts[0, TRAIN], fed.counts[0, 2]
    for mine in labels:
        classes, counts = np.unique(mine, return_counts=True)
        assert len(classes) == q
        assert sorted(counts) == sorted(len(part) for part in np.array_split(mine, q))
        assert set(mine[:train]) == set(classes)
        assert len(set(mine[-test:])) == min(q, test)


def test_the_remainder_falls_on_the_first_classes():
    fed = make("qlabel", 8, 50, partition={"q": 3})
    for mine in DATA.labels[rows_of(fed, np.arange(8))]:
        assert [(mine == k).sum() for k in mine[:3]] == [17, 17, 16]


def test_every_pair_of_classes_and_every_sample_is_as_likely():
    clients = 4500
    fed = make("qlabel", clients, 10)
    rows = rows_of(fed, np.arange(clients))
    pairs = np.sort(DATA.labels[rows[:, :2]], axis=1) @ [10, 1]
    found = np.unique(pairs, return_counts=True)[1]
    assert len(found) == 45
    assert stats.chisquare(found).pvalue > CLEARLY
    for k in range(10):  # samples of a class; no sample is in both halves of a client
        members = np.flatnonzero(DATA.labels == k)
        uses = np.bincount(rows.ravel(), minlength=len(DATA.labels))[members]
        assert stats.chisquare(uses).pvalue > CLEARLY
    uses = np.bincount(rows_of(make(clients=4000), np.arange(4000)).ravel())
    assert len(uses) == len(DATA.labels)
    # 100 of 7,936 without repeats: a little less spread than chi-square
    assert 0.9 < uses.var() / uses.mean() < 1.1


def test_the_two_classes_of_a_client_are_drawn_apart():
    """Of classes of the same size, a client does not have the samples of the same places."""
    labels = np.repeat([0, 1], 1000)
    fed = make("qlabel", 200, 20, data=Dataset(np.zeros((2000, 2), np.uint8), labels, 2))
    rows = rows_of(fed, np.arange(200)) % 1000
    same = (rows[:, ::2] == rows[:, 1::2]).sum()  # Poisson(2)
    assert same < 15


@pytest.mark.parametrize("name", SOME_RULES)
def test_a_sample_is_the_same_whenever_and_however_it_is_read(name):
    fed = make(name)
    read, arrays = jax.jit(fed.read), jax.tree.map(jnp.asarray, fed.arrays)
    x, y = read(arrays, np.int32(7), np.arange(100, dtype=np.int32))
    some = np.array([99, 3, 3, 0], np.int32)
    again = read(arrays, np.int32(7), some)
    np.testing.assert_allclose(again[0], x[some], atol=1e-6)
    np.testing.assert_array_equal(again[1], y[some])
    rows = rows_of(fed, np.arange(20))
    np.testing.assert_array_equal(rows_of(make(name, clients=9), [7])[0], rows[7])
    assert (rows_of(make(name, seed=1), [7])[0] != rows[7]).mean() > 0.9
    if name != "quality":
        expected = (DATA.images[rows[7]] / 255 - 0.1307) / 0.3081
        np.testing.assert_allclose(x, expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(y, DATA.labels[rows[7]])


def shuffled(key, position, n):
    """`flamejax.shuffle.permute` for one position, in Python's own integers."""
    pivots, salts = np.asarray(jax.random.bits(key, (2, 24), jnp.uint32)).tolist()
    x = int(position)
    for pivot, salt in zip(pivots, salts, strict=True):
        partner = (pivot % n - x) % n
        h = max(x, partner) ^ salt
        h = (h ^ h >> 16) * 0x85EBCA6B % 2**32
        h = (h ^ h >> 13) * 0xC2B2AE35 % 2**32
        x = partner if (h ^ h >> 16) & 1 else x
    return x


@pytest.mark.parametrize(
    ("name", "q"), [("iid", 1), pytest.param("qlabel", 2, marks=pytest.mark.full), ("qlabel", 3)]
)
def test_rows_by_a_plain_loop(name, q):
    """Also with classes that do not occur, and unequal ones."""
    labels = np.array([1, 4, 6, 7])[np.random.default_rng(1).choice(4, 300, p=[0.1, 0.2, 0.3, 0.4])]
    data = Dataset(np.zeros((300, 2), np.uint8), labels, 9)
    fed = make(name, 6, 13, data=data, partition={"q": q})
    found = rows_of(fed, np.arange(6))
    groups = [np.arange(300)]
    if name == "qlabel":
        groups = [np.flatnonzero(labels == k) for k in (1, 4, 6, 7)]
    for client in range(6):
        key = jax.random.fold_in(jax.random.key(int(fed.arrays.seed)), client)
        keys = [key] if name == "iid" else jax.random.split(key, 1 + q)
        for position in range(13):
            turn = position % q
            mine = groups[0] if name == "iid" else groups[shuffled(keys[0], turn, 4)]
            place = shuffled(keys[0 if name == "iid" else 1 + turn], position // q, len(mine))
            assert found[client, position] == mine[place]


@pytest.mark.parametrize("name", SOME_RULES)
def test_a_million_clients_are_a_few_numbers_each(name):
    started = time.perf_counter()
    fed = make(name, 1_000_000, attack={"name": "label_poison"})
    assert time.perf_counter() - started < 10  # seconds; 0.2 on an idle core
    assert fed.counts.shape == (1_000_000, 3)
    sizes = [np.size(x) for x in fed.arrays._replace(images=None) if x is not None]
    assert max(sizes) == 1_000_001
    assert sum(sizes) < 2.1 * 1_000_001 + 2 * len(DATA.labels)
    assert len(np.unique(rows_of(fed, [999_999]))) == 100


@pytest.mark.full
def test_real_digits_serve_a_million_clients(mnist_dir):
    tables = {
        "data": {"name": "mnist", "dir": str(mnist_dir), "samples": 300},
        "partition": {"name": "qlabel", "q": 3, "overlap": True, "clients": 1_000_000},
    }
    data, fed = assemble(config.make(tables))
    assert len(data.labels) == 70_000
    for mine in data.labels[rows_of(fed, [0, 999_999])]:
        assert np.unique(mine, return_counts=True)[1].tolist() == [100] * 3


def test_noise_and_wrong_labels_fall_on_them_too():
    attack = {"name": "label_poison", "fraction": 0.5}
    clean, noisy = (
        make("quality", 4, 400, partition={"sigma": sigma}, attack=attack) for sigma in (0.0, 0.4)
    )
    honest = make("quality", 4, 400, partition={"sigma": 0.4})
    every = np.arange(400, dtype=np.int32)
    for client in range(4):
        (a, _), (b, lies), (_, true) = (
            fed.read(jax.tree.map(jnp.asarray, fed.arrays), jnp.int32(client), every)
            for fed in (clean, noisy, honest)
        )
        np.testing.assert_allclose(np.var(b - a), 0.4 * (client + 1) / 4, rtol=0.02)
        wrong = np.asarray(lies != true)
        assert wrong[:320].any() == noisy.malicious[client]
        assert not wrong[320:].any()


def test_targets_of_a_regression_can_be_taken():
    data = Dataset(np.ones((50, 3)), np.linspace(0, 1, 50), 0)
    fed = make("iid", 1000, 30, data=data)
    assert fed.classes == 0
    read = fed.read(jax.tree.map(jnp.asarray, fed.arrays), jnp.int32(999), jnp.arange(30))
    assert len(np.unique(read[1])) == 30
    with pytest.raises(InputError, match="needs class labels"):
        make("qlabel", data=data)


@pytest.mark.parametrize(
    ("name", "samples"), [pytest.param("iid", 100, marks=pytest.mark.full), ("qlabel", 300)]
)
def test_what_they_hold_is_counted(name, samples):
    clients = 2**15 // samples * 2 + 5  # in three parts
    fed = make(name, clients, samples, attack={"name": "label_poison"})
    found = clients_of(DATA, fed)
    rows = rows_of(fed, np.arange(clients))
    for client in (0, 1, clients // 2, clients - 1):
        mine = DATA.labels[rows[client]]
        assert found.held[client].tolist() == np.bincount(mine, minlength=10).tolist()
        assert found.writers[client] == len(set(DATA.writers[rows[client]]))
    np.testing.assert_array_equal(found.held.sum(1), samples)
    assert (found.samples, found.used) == (len(DATA.labels), len(np.unique(rows)))


@pytest.mark.full
def test_devices_and_executions_agree_and_learn():
    found = []
    for engine in ({"devices": 1, "execution": "map"}, {"devices": 4, "execution": "vmap"}):
        result = fj.run(
            rounds=30, eval_every=30, method={"name": "fedavg", "lr": 0.05}, model={"name": "mlr"},
            partition={"name": "qlabel", "overlap": True, "clients": 1000},
            participation={"clients_per_round": 40}, engine=engine, quiet=True,
        )  # fmt: skip
        assert result.summary["last"]["gm"]["accuracy"] > 0.7
        found.append((result.models(999), result.clients["last_pm_loss"]))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-4), *found)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"samples": 7937}, "data.samples = 7937: a client can have at most 7936"),
        ({"name": "qlabel", "samples": 1417}, "data.samples = 1417.* at most 1416, 2 x 708"),
        ({"samples": 9}, "data.samples = 9 is less than partition.min_samples = 10"),
        ({"name": "qlabel", "partition": {"q": 11}}, "partition.q = 11 exceeds the 10 classes"),
        (
            {"name": "qlabel", "samples": 5, "partition": {"q": 6, "min_samples": 3}},
            "data.samples = 5 are too few for partition.q = 6",
        ),
        ({"name": "dirichlet"}, "partition.overlap applies to"),
        ({"name": "writer"}, "partition.overlap applies to"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_does_not_fit_is_refused_in_one_line(options, says):
    with pytest.raises(InputError, match=says) as refusal:
        make(**options)
    assert "\n" not in str(refusal.value)


def test_all_that_fits_is_allowed():
    fed = make("qlabel", 3, 1416)
    assert all(len(set(mine)) == 1416 for mine in rows_of(fed, np.arange(3)).tolist())
