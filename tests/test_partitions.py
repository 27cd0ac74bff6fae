"""Every partition: disjoint, reproducible, lawful, and honest about what it cannot do."""

import zipfile
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from flamejax import config, registry
from flamejax.datasets import load
from flamejax.errors import InputError
from flamejax.partitions import deal, dirichlet_shares
from flamejax.partitions.quantity import sizes_at_least
from flamejax.types import Dataset

from .conftest import SHARED

RULES = [name for name in registry.names("partitions") if name != "natural"]
DATA = load(config.Data(), np.random.default_rng(0))
CLEARLY = 1e-4  # below this p-value a law does not hold


def parts_of(seed=0, data=DATA, **options):
    return deal(np.random.default_rng(seed), data, config.Partition(**options))


def toy(labels, writers=None):
    images = np.zeros((len(labels), 1), np.uint8)
    return Dataset(images, np.asarray(labels), int(np.max(labels)) + 1, writers)


SETS = {
    "mnist_mini": 70,  # writers
    "mnist": 836,
    "fashion_mnist": 0,
    "medical_mnist": 0,
    "cifar10": 0,
}


@cache
def labels_of(name):
    """Labels and writers of a data set at hand, with next to nothing for images; or None."""
    if name == "mnist_mini":
        return DATA
    if name in ("mnist", "fashion_mnist"):
        if not (SHARED / name).is_dir():
            return None
        settings = config.Data(name=name, dir=str(SHARED / name))
        data = load(settings, np.random.default_rng(0))
        return toy(data.labels, data.writers)
    archive = SHARED / {"medical_mnist": "medical_mnist.zip", "cifar10": "cifar10_jpeg.zip"}[name]
    if not archive.is_file():
        return None
    with zipfile.ZipFile(archive) as folder:  # .../CLASS/FILE
        classes = [n.split("/")[-2] for n in folder.namelist() if not n.endswith("/")]
    return toy(np.unique(classes, return_inverse=True)[1])


REAL = [name for name in SETS if name != "mnist_mini"]
ALL = ["mnist_mini", *(pytest.param(name, marks=pytest.mark.full) for name in REAL)]


@pytest.fixture(params=ALL)
def data(request):
    """Each data set in turn; those that are not at hand are skipped."""
    found = labels_of(request.param)
    if found is None:
        pytest.skip(f"needs {request.param}")
    assert SETS[request.param] == (0 if found.writers is None else len(set(found.writers)))
    return found


@pytest.mark.parametrize("clients", [2, 7, 50])
@pytest.mark.parametrize("name", RULES)
def test_disjoint_complete_reproducible_and_large_enough(data, name, clients):
    if name == "writer" and data.writers is None:
        pytest.skip("no writers")
    options = {"data": data, "name": name, "clients": clients, "min_samples": 10}
    parts = parts_of(**options)
    assert len(parts) == clients
    assert min(map(len, parts)) >= 10
    held = np.bincount(np.concatenate(parts), minlength=len(data.labels))
    assert held.max() == 1
    # qlabel and its half of hybrid have q = 2 classes for a client, and leave out the others
    labelled = {"qlabel": clients, "hybrid": clients // 2}.get(name)
    if labelled is None or 2 * labelled >= data.classes:
        assert held.min() == 1
    again = parts_of(**options)
    assert all(np.array_equal(a, b) for a, b in zip(parts, again, strict=True))
    other = parts_of(seed=1, **options)
    assert not all(np.array_equal(a, b) for a, b in zip(parts, other, strict=True))


@pytest.mark.parametrize("name", ["iid", "quality"])
def test_equal_shares_are_alike(data, name):
    parts = parts_of(data=data, name=name, clients=8)
    assert np.ptp([len(part) for part in parts]) <= 1
    table = [np.bincount(data.labels[part], minlength=data.classes) for part in parts]
    assert stats.chi2_contingency(table).pvalue > CLEARLY


def test_dirichlet_shares_of_each_class_follow_the_law(data):
    """A client's share of a class is Beta(beta, (m - 1) beta), and classes are independent."""
    shares = []
    for seed in range(120):
        first = parts_of(seed, data, name="dirichlet", clients=5, beta=0.7, min_samples=3)[0]
        held = np.bincount(data.labels[first], minlength=data.classes)
        shares.append(held / np.bincount(data.labels))
    shares = np.array(shares)  # [seeds, classes]
    rounding = np.random.default_rng(0).uniform(-0.5, 0.5, shares.shape)
    smooth = np.clip(shares + rounding / np.bincount(data.labels), 0, 1)  # sizes are whole numbers
    law = stats.beta(0.7, 4 * 0.7)
    assert stats.kstest(smooth.ravel(), law.cdf).pvalue > CLEARLY
    eighths = np.histogram(law.cdf(smooth), bins=8, range=(0, 1))[0]
    assert stats.chisquare(eighths).pvalue > CLEARLY
    between = np.corrcoef(law.cdf(smooth).T)[np.triu_indices(data.classes, 1)]
    assert stats.kstest(between * 120**0.5, "norm").pvalue > CLEARLY


def test_quantity_lifts_small_clients_and_leaves_the_others_in_proportion(data):
    lifted = 0
    for seed in range(20):
        shares = dirichlet_shares(np.random.default_rng(seed), 0.5, 10)
        sizes = np.array(
            [len(part) for part in parts_of(seed, data, name="quantity", clients=10, beta=0.5,
                                            min_samples=100)]
        )  # fmt: skip
        assert sizes.sum() == len(data.labels)
        low = sizes == 100
        lifted += low.sum()
        scale = (len(data.labels) - 100 * low.sum()) / shares[~low].sum()
        np.testing.assert_allclose(sizes[~low], scale * shares[~low], atol=1)
        assert (scale * shares[low] < 101).all()
    assert lifted > 5


def test_hybrid_is_half_and_half(data):
    parts = parts_of(data=data, name="hybrid", clients=10)
    assert all(len(np.unique(data.labels[part])) == 2 for part in parts[:5])
    assert sum(len(np.unique(data.labels[part])) for part in parts[5:]) > 3 * data.classes
    sizes = np.array([len(part) for part in parts])
    assert sizes[5:].std() > 3 * sizes[:5].std()


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


@pytest.mark.parametrize("name", ["mnist_mini", pytest.param("mnist", marks=pytest.mark.full)])
def test_writers_are_never_split(name):
    data = labels_of(name)
    if data is None:
        pytest.skip(f"needs {name}")
    parts = parts_of(data=data, name="writer", clients=7)
    homes = [set(data.writers[part]) for part in parts]
    assert sum(map(len, homes)) == len(set.union(*homes)) == SETS[name]
    assert max(map(len, homes)) - min(map(len, homes)) <= 1


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


def test_one_of_very_many_clients_may_have_everything():
    shares = dirichlet_shares(np.random.default_rng(0), 1e-9, 1_000_000)
    assert (shares.sum(), shares.max()) == (1.0, 1.0)


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
        ({"name": "dirichlet", "overlap": True}, "partition.overlap"),
        ({"name": "quantity", "overlap": True, "clients": 8000}, "partition.clients"),
        ({"name": "natural"}, "needs generated data"),
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
