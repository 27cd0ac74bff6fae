"""Attacks: who attacks, what is sent, and what the server makes of it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm

import flamejax as fj
from flamejax import config
from flamejax.federation import TRAIN, federate
from flamejax.types import Dataset, Overheard

from .plain import algorithm_1, loop_inputs, mean
from .problems import blobs, distance, set_up, small_net, train

full = pytest.mark.full
SKEW = {"name": "quantity", "clients": 7, "beta": 0.7, "min_samples": 9}


def attack(name, **values):
    chosen = config.make({"attack": {"name": name, **values}}).attack
    return chosen.build(), jax.tree.map(jnp.float32, chosen.hyper())


def federation(seed=0, **values):
    settings = config.make({"seed": seed, "partition": {**SKEW, "clients": 10}, "attack": values})
    return federate(settings, blobs(), np.random.default_rng(seed))


def test_attackers_are_drawn_from_the_seed_and_leave_the_data_as_it_was():
    honest = federation()
    assert not honest.malicious.any()
    few, many = federation(name="ipm", fraction=0.2), federation(name="gaussian", fraction=0.8)
    assert few.malicious.sum() == 2
    assert many.malicious.sum() == 8
    assert (many.malicious >= few.malicious).all()  # the larger fraction adds to the smaller
    np.testing.assert_array_equal(few.counts, honest.counts)
    np.testing.assert_array_equal(few.arrays.rows, honest.arrays.rows)
    drawn = {tuple(federation(s, name="ipm", fraction=0.3).malicious) for s in range(8)}
    assert len(drawn) > 4


@pytest.mark.parametrize("fraction", [0.95, 1.0])
def test_someone_must_be_benign(fraction):
    with pytest.raises(fj.InputError, match=r"attack\.fraction = .* no benign client of 10"):
        config.make({"attack": {"name": "ipm", "fraction": fraction}})


def test_poisoned_labels_are_uniform_fixed_and_only_where_malicious_clients_train():
    poisoned = federation(name="label_poison", fraction=0.5)
    honest = federation()
    drawn, most = [], int(poisoned.counts.sum(1).max())
    readers = [(jax.jit(f.read), f.arrays) for f in (poisoned, poisoned, honest)]
    for client in range(10):
        count = int(poisoned.counts[client].sum())
        numbers = np.int32(client), jnp.arange(most, dtype=jnp.int32)
        labels = [np.asarray(read(arrays, *numbers)[1])[:count] for read, arrays in readers]
        np.testing.assert_array_equal(labels[0], labels[1])
        changed = labels[0] != labels[2]
        trains = np.arange(count) < poisoned.counts[client, TRAIN]
        assert not changed[~trains].any()
        if poisoned.malicious[client]:
            drawn.append(labels[0][trains])
        else:
            assert not changed.any()
    shares = np.bincount(np.concatenate(drawn), minlength=3) / len(np.concatenate(drawn))
    np.testing.assert_allclose(shares, 1 / 3, atol=0.1)


def test_targets_cannot_be_poisoned():
    data = Dataset(np.ones((99, 2)), np.linspace(0, 1, 99), 1)
    with pytest.raises(fj.InputError, match="label_poison"):
        fj.run(data=data, partition={"name": "iid", "clients": 3}, attack={"name": "label_poison"})


MESSAGE = {"a": np.array([[1.0, -2], [3, 4]], np.float32), "b": np.ones(3, np.float32)}


def drawn(name, times=4000, **values):
    """Crafted messages under many keys, [times, 7]."""
    found, hyper = attack(name, **values)
    keys = jax.random.split(jax.random.key(0), times)
    sent = jax.jit(jax.vmap(lambda key: found.craft(hyper, key, MESSAGE)))(keys)
    return np.concatenate([x.reshape(times, -1) for x in jax.tree.leaves(sent)], axis=1)


# gamma2 asked for -> the standard deviation behind the message
SCALES = [({}, 0.1**0.5), ({"gamma2": 0.4}, 0.4**0.5)]


@pytest.mark.parametrize(("values", "std"), [*SCALES, ({"preset": "published"}, 0.01)])
def test_same_value(values, std):
    sent = drawn("same_value", **values)
    assert (sent == sent[:, :1]).all()
    assert abs(sent[:, 0].mean()) < 4 * std / 4000**0.5
    np.testing.assert_allclose(sent[:, 0].std(), std, rtol=0.05)


@pytest.mark.parametrize(("values", "std"), [*SCALES, ({"preset": "published"}, 1)])
def test_sign_flip(values, std):
    sent = drawn("sign_flip", **values)
    honest = np.concatenate([x.ravel() for x in MESSAGE.values()])
    p = sent[:, 0] / honest[0]
    assert (p <= 0).all()
    np.testing.assert_allclose(sent, p[:, None] * honest, rtol=1e-6)
    np.testing.assert_allclose(np.mean(p**2), std**2, rtol=0.1)


@pytest.mark.parametrize(("values", "std"), [*SCALES, ({"preset": "published"}, 1)])
def test_gaussian(values, std):
    sent = drawn("gaussian", **values)
    np.testing.assert_allclose(np.cov(sent.T), std**2 * np.eye(7), atol=0.1 * std**2)


def test_alie_is_as_far_as_the_majority_rule_allows():
    found, hyper = attack("alie")
    for n, a in ((50, 12), (25, 11), (11, 5)):
        z = norm.ppf((n - a - (n // 2 + 1 - a)) / (n - a))
        overheard = Overheard(MESSAGE, MESSAGE, None, jnp.float32(n), jnp.float32(a))
        lie = found.collude(hyper, overheard)
        jax.tree.map(lambda x, y, z=z: np.testing.assert_allclose(x, y - z * y, 1e-4), lie, MESSAGE)
    majority = Overheard(MESSAGE, MESSAGE, None, jnp.float32(10), jnp.float32(8))
    assert np.isfinite(found.collude(hyper, majority)["b"]).all()


def test_ipm_reverses_the_mean_step():
    found, hyper = attack("ipm", epsilon=2.0)
    center = jax.tree.map(lambda x: x + 1, MESSAGE)
    lie = found.collude(hyper, Overheard(MESSAGE, None, center, None, None))
    jax.tree.map(lambda x, c: np.testing.assert_allclose(x, c + 2), lie, center)


# --- the whole of FLAME under attack, against a plain loop that keeps every message ---


def each(f, *trees):
    return jax.tree.map(f, *trees)


def lies(settings, malicious):
    """The attack on a list of messages, from the paper's formulas and the documented keys."""
    _, run_key = jax.random.split(jax.random.key(settings.seed))
    m = len(malicious)

    def send(t, chosen, u):
        liars = [i for i in chosen if malicious[i]]
        honest = [u[i] for i in chosen if not malicious[i]] or [u[i] for i in liars]
        middle = mean(honest)
        spread = each(np.sqrt, mean([each(lambda x, c: (x - c) ** 2, x, middle) for x in honest]))
        for i in liars:
            key = jax.random.fold_in(jax.random.fold_in(run_key, t), m + 1 + i)
            if settings.attack.name == "sign_flip":
                p = settings.attack.gamma2**0.5 * float(jax.random.normal(key, (), np.float64))
                u[i] = each(lambda x, p=p: -abs(p) * x, u[i])
            elif settings.attack.name == "alie":
                u[i] = each(lambda c, s: c - settings.attack.z * s, middle, spread)

    return send


SERVERS = {
    "mean": lambda u, w: mean(u),
    "median": lambda u, w: each(lambda *x: np.median(np.stack(x), axis=0), *u),
}


@pytest.mark.parametrize(
    ("name", "server", "selected", "devices"),
    [
        ("sign_flip", "median", 3, 3),
        pytest.param("sign_flip", "mean", "all", 2, marks=full),
        pytest.param("sign_flip", "mean", 3, 1, marks=full),
        pytest.param("alie", "mean", 3, 2, marks=full),
        pytest.param("alie", "median", "all", 1, marks=full),
        pytest.param("none", "median", 3, 2, marks=full),
    ],
)
def test_flame_under_attack_equals_a_plain_loop(name, server, selected, devices):
    rounds = 10
    values = {
        "seed": 3,
        "partition": SKEW,
        "participation": {"clients_per_round": selected},
        "attack": {"name": name, "fraction": 0.45, **({"z": 0.7} if name == "alie" else {})},
        "aggregator": {"name": server},
        "method": {"lam": 1.3, "rho": 0.2, "lr": 0.05, "batch": 16},
        "engine": {"devices": devices, "precision": "float64"},
    }
    run = set_up(values, blobs(), small_net())
    settings, fed, _ = run
    start, clients, select, batches = loop_inputs(*run, blobs())
    with jax.enable_x64(True):
        w, theta = algorithm_1(
            start, clients, rounds, select, batches, lam=1.3, rho=0.2, lr=0.05, mu=0.0, decay=0.0,
            center="local", send=lies(settings, fed.malicious), hear=SERVERS[server],
        )  # fmt: skip
    shared, personal, _ = train(*run, rounds)
    assert distance(shared, w) < 1e-10
    assert distance(personal, each(lambda *x: np.stack(x), *theta)) < 1e-10


WEIGHTED = {
    "seed": 3,
    "partition": SKEW,
    "participation": {"clients_per_round": 3},
    "aggregator": {"name": "weighted_mean"},
    "engine": {"precision": "float64"},
}


def test_weighted_mean_of_flame_is_over_all_clients():
    run = set_up({**WEIGHTED, "method": {"lr": 0.1}}, blobs(), small_net())
    counts = run[1].counts[:, TRAIN]
    start, clients, select, batches = loop_inputs(*run, blobs())
    w, _ = algorithm_1(
        start, clients, 5, select, batches, lam=1.0, rho=0.1, lr=0.1, mu=0.0, decay=0.0,
        center="local",
        hear=lambda u, w: each(lambda *x: np.average(x, axis=0, weights=counts), *u),
    )  # fmt: skip
    assert distance(train(*run, 5)[0], w) < 1e-10


@full
def test_weighted_mean_of_fedavg_is_over_the_selected():
    """After one round it is the mean of models trained alone."""
    run, alone = (
        set_up({**WEIGHTED, "method": {"name": name, "lr": 0.1}}, blobs(), small_net())
        for name in ("fedavg", "local")
    )
    select = loop_inputs(*run, blobs())[2]
    chosen = np.asarray(select(0))
    weights = run[1].counts[chosen, TRAIN]
    _, personal, _ = train(*alone, 1)
    expected = each(lambda x: np.average(x[chosen], axis=0, weights=weights), personal)
    assert distance(train(*run, 1)[0], expected) < 1e-10


# --- measures and failures, as a user meets them ---


def tiny(**settings):
    base = {
        "rounds": 4, "eval_every": 2, "partition": {"name": "iid", "clients": 6}, "quiet": True,
        "data": blobs(600), "model": small_net(), "method": {"lr": 0.1, "batch": 16},
    }  # fmt: skip
    return fj.run(**{**base, **settings})


def test_figures_are_over_benign_clients():
    result = tiny(attack={"name": "label_poison", "fraction": 0.5})
    malicious = result.clients["malicious"]
    assert malicious.sum() == 3
    assert result.summary["benign_clients"] == 3
    accuracy = result.clients["last_pm_accuracy"]
    assert np.isnan(accuracy[malicious]).all()
    last = result.summary["last"]
    assert last["pm"]["accuracy"] == pytest.approx(accuracy[~malicious].mean())
    assert last["gap"] == pytest.approx(last["pm"]["accuracy"] - last["gm"]["accuracy"])
    honest = tiny()
    assert result.metrics["train_loss"][-1] < honest.metrics["train_loss"][-1] + 0.2


def with_a_broken_client(**settings):
    """Client 0 of six has a NaN among its samples."""
    data = blobs(600)
    broken = data._replace(images=data.images.copy())
    chosen = config.make({"partition": {"name": "iid", "clients": 6}})
    fed = federate(chosen, data, np.random.default_rng(0))
    broken.images[fed.arrays.rows[0]] = np.nan
    return tiny(data=broken, **settings)


@pytest.mark.parametrize(
    ("method", "aggregator"),
    [
        ("fedavg", "mean"),
        pytest.param("fedavg", "median", marks=full),
        pytest.param("flame", "mean", marks=full),
        pytest.param("flame", "median", marks=full),
    ],
)
def test_a_client_with_numbers_that_are_not_finite_is_left_out(method, aggregator):
    result = with_a_broken_client(
        method={"name": method, "lr": 0.1}, aggregator={"name": aggregator}
    )
    assert result.metrics["nonfinite"].tolist() == [2, 2]  # once a round
    assert result.summary["nonfinite"] == 4
    assert np.isfinite(result.metrics["train_loss"]).all()
    assert result.metrics["gm_accuracy"][-1] > 0.5
    assert np.isfinite(jax.tree.leaves(result.models(0)[1])[0]).all()


@pytest.mark.parametrize(
    ("choice", "said"),
    [
        ("stop", r"round 1: .* client\(s\) 0; engine\.on_nonfinite"),
        pytest.param("keep", r"diverged: .* round 1", marks=full),
    ],
    ids=["stop", "keep"],
)
def test_it_may_also_end_the_run_or_be_kept(choice, said):
    with pytest.raises(fj.RunError, match=said):
        with_a_broken_client(engine={"on_nonfinite": choice})


def test_a_round_without_any_finite_message_ends_the_run():
    with pytest.raises(fj.RunError, match=r"diverged: .* in round"):
        tiny(method={"lr": 1e30})


@full
def test_attackers_alone_do_not_end_a_run():
    """Two of six are selected: some rounds have no benign client, and so no training loss."""
    result = tiny(
        rounds=20,
        eval_every=1,
        participation={"clients_per_round": 2},
        attack={"name": "gaussian", "fraction": 0.5},
    )
    among = np.isnan(result.metrics["train_loss"])
    assert 0 < among.sum() < 20
    assert np.isfinite(result.metrics["pm_loss"]).all()


def test_a_lie_counts_even_if_its_training_went_wrong():
    """All clients diverge, the attackers' messages are noise all the same: something is heard."""
    result = tiny(
        method={"name": "fedavg", "lr": 1e30, "batch": 16},
        attack={"name": "gaussian", "fraction": 0.5},
    )
    assert result.metrics["nonfinite"].tolist() == [6, 6]  # three benign clients, every round
    assert np.isnan(result.metrics["train_loss"]).all()
