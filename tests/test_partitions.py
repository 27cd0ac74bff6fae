"""Every partition: disjoint, reproducible, lawful, and honest about what it cannot do."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from flamejax import config, registry
from flamejax.datasets import load
from flamejax.errors import InputError
from flamejax.partitions import deal
from flamejax.partitions.quantity import sizes_at_least
from flamejax.types import Dataset

RULES = registry.names("partitions")
DATA = load(config.Data(), np.random.default_rng(0))


def parts_of(seed=0, data=DATA, **options):
    return deal(np.random.default_rng(seed), data, config.Partition(**options))


def toy(labels, writers=None):
    images = np.zeros((len(labels), 2), np.uint8)
    return Dataset(images, np.asarray(labels), int(np.max(labels)) + 1, writers)


@pytest.mark.parametrize("clients", [2, 7, 50])
@pytest.mark.parametrize("name", RULES)
def test_disjoint_reproducible_and_large_enough(name, clients):
    parts = parts_of(name=name, clients=clients, min_samples=10)
    assert len(parts) == clients
    assert min(map(len, parts)) >= 10
    everything = np.concatenate(parts)
    assert len(np.unique(everything)) == len(everything)
    again = parts_of(name=name, clients=clients, min_samples=10)
    assert all(np.array_equal(a, b) for a, b in zip(parts, again, strict=True))
    other = parts_of(seed=1, name=name, clients=clients, min_samples=10)
    assert not all(np.array_equal(a, b) for a, b in zip(parts, other, strict=True))


@pytest.mark.parametrize("name", ["iid", "dirichlet", "writer", "quality", "quantity"])
def test_every_sample_is_dealt(name):
    assert sum(map(len, parts_of(name=name, clients=13))) == len(DATA.labels)


@pytest.mark.parametrize("clients", [5, 10, 37])
@pytest.mark.parametrize("q", [1, 2, 3, 6, 10])
def test_qlabel_clients_hold_exactly_q_classes(q, clients):
    parts = parts_of(name="qlabel", q=q, clients=clients)
    assert all(len(np.unique(DATA.labels[part])) == q for part in parts)
    holders = np.bincount(np.concatenate([np.unique(DATA.labels[p]) for p in parts]), minlength=10)
    assert np.ptp(holders) <= 1
    assert (sum(map(len, parts)) == len(DATA.labels)) == (clients * q >= 10)


def test_qlabel_pairs_vary():
    parts = parts_of(name="qlabel", q=2, clients=10)
    assert len({tuple(np.unique(DATA.labels[part])) for part in parts}) > 6


def test_writers_are_never_split():
    parts = parts_of(name="writer", clients=7)
    homes = [set(DATA.writers[part]) for part in parts]
    assert sum(map(len, homes)) == len(set.union(*homes)) == 70
    assert {len(home) for home in homes} == {10}


def test_hybrid_is_half_and_half():
    parts = parts_of(name="hybrid", clients=10)
    assert all(len(np.unique(DATA.labels[part])) == 2 for part in parts[:5])
    assert sum(len(np.unique(DATA.labels[part])) for part in parts[5:]) > 30
    sizes = np.array([len(part) for part in parts])
    assert sizes[5:].std() > 3 * sizes[:5].std()


@pytest.mark.parametrize("name", ["quantity", "hybrid"])
def test_published_clients_may_overlap(name):
    parts = parts_of(name=name, clients=10, overlap=True)
    everything = np.concatenate(parts)
    assert len(np.unique(everything)) < len(everything)
    assert all(len(np.unique(part)) == len(part) for part in parts)


def test_quantity_shares_follow_the_dirichlet_law():
    """Client 0's share is Beta(beta, (m - 1) beta); large draws keep rounding out of the way."""
    data, clients, beta = toy(np.zeros(100_000, int)), 5, 2.0
    options = {"name": "quantity", "clients": clients, "beta": beta, "min_samples": 3}
    shares = [len(parts_of(seed, data, **options)[0]) / 100_000 for seed in range(300)]
    assert stats.kstest(shares, stats.beta(beta, (clients - 1) * beta).cdf).pvalue > 0.001


def test_dirichlet_class_shares_follow_the_law():
    labels = np.repeat(np.arange(50), 2000)
    options = {"name": "dirichlet", "clients": 4, "beta": 0.5, "min_samples": 3}
    shares = []
    for seed in range(6):
        first = parts_of(seed, toy(labels), **options)[0]
        shares.extend(np.bincount(labels[first], minlength=50) / 2000)
    assert stats.kstest(shares, stats.beta(0.5, 1.5).cdf).pvalue > 0.001


@given(
    shares=st.lists(st.floats(0, 1), min_size=1, max_size=30).filter(lambda s: sum(s) > 1e-3),
    least=st.integers(1, 20),
    spare=st.integers(0, 500),
)
@settings(max_examples=200, deadline=None)
def test_sizes_sum_up_and_nobody_falls_short(shares, least, spare):
    total = least * len(shares) + spare
    sizes = sizes_at_least(np.array(shares), total, least)
    assert sizes.sum() == total
    assert sizes.min() >= least
    order = np.argsort(shares, kind="stable")
    assert (np.diff(sizes[order]) >= -1).all()  # a larger share never gets less, but for rounding


@pytest.mark.parametrize("beta", [1e-300, 1e-12, 1e-3, 0.5, 1e6, 1e38])
@pytest.mark.parametrize("name", ["dirichlet", "quantity", "hybrid"])
def test_any_beta_ends_with_everyone_served(name, beta):
    parts = parts_of(name=name, beta=beta, clients=20, min_samples=30)
    assert min(map(len, parts)) >= 30


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"name": "iid", "clients": 8000}, "partition.clients"),
        ({"name": "iid", "clients": 10, "min_samples": 1000}, "partition.min_samples"),
        ({"name": "qlabel", "q": 11}, "partition.q = 11"),
        ({"name": "hybrid", "q": 11}, "partition.q = 11"),
        ({"name": "qlabel", "q": 10, "clients": 1000, "min_samples": 3}, "shards"),
        ({"name": "writer", "clients": 71}, "70 writers"),
        ({"name": "hybrid", "clients": 1}, "at least 2"),
        ({"name": "iid", "overlap": True}, "partition.overlap"),
        ({"name": "qlabel", "clients": 10, "q": 2, "min_samples": 790}, "min_samples"),
    ],
)
def test_impossible_requests_are_refused_in_one_line(options, says):
    with pytest.raises(InputError, match=says) as refusal:
        parts_of(**options)
    assert "\n" not in str(refusal.value)


def test_a_rare_class_cannot_be_cut_into_more_pieces_than_it_has():
    data = toy([0] * 500 + [1] * 2)
    with pytest.raises(InputError, match="class 1 has 2 samples"):
        parts_of(data=data, name="qlabel", q=2, clients=10)


def test_writer_needs_writers():
    with pytest.raises(InputError, match="writers"):
        parts_of(data=DATA._replace(writers=None), name="writer")
