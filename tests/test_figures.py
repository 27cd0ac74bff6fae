"""What figures mean: each one computed again in NumPy from models, data and definitions."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import flamejax as fj
from flamejax import config as configs
from flamejax.evaluate import Figures as Split
from flamejax.evaluate import oracle, summarize
from flamejax.federation import TEST, TRAIN, VALIDATION, assemble, split
from flamejax.runner import run_together
from flamejax.types import Shard

from .faults import Rows
from .imagined import imagine
from .plain import gradient, loop_inputs
from .problems import blobs, distance, linear, precision, set_up, small_net
from .test_flame import regression

MODELS = ("pm", "gm")


def outputs(params, x):
    """Of a network with one hidden layer."""
    (k1, b1), (k2, b2) = ((params[d]["kernel"], params[d]["bias"]) for d in ("Dense_0", "Dense_1"))
    return np.maximum(x @ np.float64(k1) + b1, 0) @ np.float64(k2) + b2


def losses(params, x, y):
    """Cross-entropy of every sample."""
    logits = outputs(params, x)
    return np.log(np.exp(logits).sum(1)) - logits[np.arange(len(y)), y]


def held(federation, data, client, part):
    """A client's samples of one split; they lie in the order of the splits."""
    counts = federation.counts[client]
    first = federation.arrays.starts[client] + counts[:part].sum()
    rows = federation.arrays.rows[first : first + counts[part]]
    return data.images[rows], data.labels[rows]


class Found(NamedTuple):
    """By hand: model -> [C] on a split."""

    accuracy: dict[str, np.ndarray]
    loss: dict[str, np.ndarray]


def by_hand(models, federation, data, part):
    """models: client -> (global, personalized)."""
    found = Found({name: np.zeros(federation.clients) for name in MODELS},
                  {name: np.zeros(federation.clients) for name in MODELS})  # fmt: skip
    for client in range(federation.clients):
        x, y = held(federation, data, client, part)
        shared, personal = models(client)
        for name, params in zip(MODELS, (personal, shared), strict=True):
            found.accuracy[name][client] = (outputs(params, x).argmax(1) == y).mean()
            found.loss[name][client] = losses(params, x, y).mean()
    return found


# --- a run as users see it


def forgetful():
    """A network that loses inputs in training, and in training only."""
    model = small_net()

    def train(params, x, key):
        kept = jax.random.bernoulli(key, 0.8, x.shape)
        return model.apply(params, jnp.where(kept, x, 0))

    return model._replace(train=train)


DATA = blobs(300)
RUN = {
    "seed": 1,
    "rounds": 7,
    "partition": {"name": "quantity", "clients": 15, "beta": 2.0, "min_samples": 10},
    "method": {"lam": 0.3, "lr": 0.15, "batch": 8},
    "engine": {"devices": 2},
}


class Whole(NamedTuple):
    result: Any
    rows: list
    federation: Any
    test: Found  # of the last round
    selection: Found


@pytest.fixture(scope="module")
def whole():
    """Fifteen clients, evaluated after each of seven rounds."""
    rows = Rows()
    own = {"data": DATA, "model": forgetful(), "quiet": True}
    result = fj.run(RUN, eval_every=1, callbacks=[rows], **own)
    federation = assemble(result.config, DATA)[1]
    parts = [by_hand(result.models, federation, DATA, part) for part in (TEST, VALIDATION)]
    return Whole(result, rows.rows, federation, *parts)


@pytest.fixture(scope="module")
def until_best(whole):
    """The same run, stopped after its best round; evaluated only there."""
    best = whole.result.summary["best"]["round"]
    own = {"data": DATA, "model": forgetful(), "quiet": True}
    return fj.run(RUN, rounds=best, eval_every=best, **own)


def better(selection):
    """Where the hybrid is the global model: more accurate, or as accurate with less loss."""
    (pm, gm), (pm_loss, gm_loss) = ([part[name] for name in MODELS] for part in selection)
    return (gm > pm) | ((gm == pm) & (gm_loss < pm_loss))


def check_clients(arrays, when, test, selection):
    """The figures of single clients that a run reports."""
    for name in MODELS:
        np.testing.assert_allclose(arrays[f"{when}_{name}_accuracy"], test.accuracy[name])
        np.testing.assert_allclose(arrays[f"{when}_{name}_loss"], test.loss[name], rtol=1e-4)
    picks = better(selection)
    assert 0 < picks.sum() < len(picks)
    np.testing.assert_array_equal(arrays[f"{when}_hm_is_global"], picks)
    for figure, by_model in test._asdict().items():
        hybrid = np.where(picks, by_model["gm"], by_model["pm"])
        np.testing.assert_allclose(arrays[f"{when}_hm_{figure}"], hybrid, rtol=1e-4)


def test_the_last_figures_of_clients_are_those_of_their_models(whole):
    check_clients(whole.result.clients, "last", whole.test, whole.selection)


def test_the_best_figures_of_clients_are_those_of_their_models_then(whole, until_best):
    parts = [by_hand(until_best.models, whole.federation, DATA, p) for p in (TEST, VALIDATION)]
    check_clients(whole.result.clients, "best", *parts)
    last = whole.result.clients["last_pm_loss"]
    assert not np.allclose(whole.result.clients["best_pm_loss"], last, rtol=1e-3)


def test_the_best_round_is_the_first_of_the_best_by_the_selection_split(whole):
    chosen, tested = (
        [row["selection"]["accuracy"]["hm"] for row in whole.rows],
        [row["hm"]["accuracy"] for row in whole.rows],
    )
    best = int(np.argmax(chosen))
    assert best not in (np.argmax(tested), len(chosen) - 1)  # or else nothing is shown
    summary = whole.result.summary["best"]
    assert summary["round"] == best + 1
    assert summary["chosen_on"] == "validation"
    for key in ("pm", "gm", "hm", "gap", "oracle", "train_loss"):
        assert summary[key] == whole.rows[best][key]
        assert summary[key] != whole.rows[-1][key]
    last = whole.result.summary["last"]
    assert last == {key: whole.rows[-1][key] for key in last}


def test_a_row_has_means_of_the_selection_split(whole):
    said = whole.rows[-1]["selection"]
    picks = better(whole.selection)
    for figure, by_model in whole.selection._asdict().items():
        hybrid = np.where(picks, by_model["gm"], by_model["pm"])
        for name, values in {**by_model, "hm": hybrid}.items():
            assert said[figure][name] == pytest.approx(values.mean(), rel=1e-4)


def test_spread_over_clients(whole):
    """The tenth of fifteen clients is two of them."""
    for name in MODELS:
        row, accuracy = whole.rows[-1][name], np.sort(whole.test.accuracy[name])
        shares = accuracy[accuracy > 0] / accuracy.sum()
        expected = {
            "accuracy": accuracy.mean(),
            "accuracy_var": np.mean((accuracy - accuracy.mean()) ** 2),
            "loss": whole.test.loss[name].mean(),
            "loss_var": np.mean((whole.test.loss[name] - whole.test.loss[name].mean()) ** 2),
            "worst10": accuracy[:2].mean(),
            "best10": accuracy[-2:].mean(),
            "jain": accuracy.sum() ** 2 / (15 * (accuracy**2).sum()),
            "entropy": -(shares * np.log(shares)).sum(),
        }
        assert row == pytest.approx(expected, rel=1e-4)
        assert accuracy[0] < accuracy[1]


@pytest.mark.parametrize(("clients", "tail"), [(3, 1), (14, 1), (15, 2), (16, 2), (27, 3)])
def test_worst_and_best_are_as_near_to_a_tenth_as_can_be(clients, tail):
    accuracy = np.arange(clients) / clients
    found = summarize(Split({"pm": accuracy}, {"pm": accuracy}))["pm"]
    assert found["worst10"] == pytest.approx(accuracy[:tail].mean())
    assert found["best10"] == pytest.approx(accuracy[-tail:].mean())


def test_the_oracle_chooses_for_every_client(whole):
    pm, gm = (whole.test.accuracy[name] for name in MODELS)
    said = whole.rows[-1]["oracle"]["accuracy"]
    assert said == pytest.approx(np.maximum(pm, gm).mean())
    assert said > max(pm.mean(), gm.mean())
    assert whole.rows[-1]["gap"] == pytest.approx((pm - gm).mean())
    made_up = {"pm": np.array([1.0, 0.0]), "gm": np.array([0.0, 0.5])}
    assert oracle(Split(made_up, made_up)) == 0.75


def test_the_training_loss_of_a_row_is_that_of_its_round(whole, until_best):
    """Not that of the first round since the row before."""
    said = [row["train_loss"] for row in whole.rows]
    best = until_best.summary["rounds"]
    assert until_best.metrics["train_loss"][-1] == pytest.approx(said[best - 1], rel=1e-5)
    assert len(set(said)) == len(said)


@pytest.mark.parametrize(
    ("samples", "held_out", "validation", "expected"),
    [
        (100, 0.2, 0.3, [80, 6, 14]),
        (100, 0.2, 0.25, [80, 5, 15]),
        (1000, 0.1, 0.75, [900, 75, 25]),
        (100, 0.2, 0.0, [80, 0, 20]),
    ],
)
def test_a_share_of_the_held_out_samples_is_for_validation(samples, held_out, validation, expected):
    assert split(np.array([samples]), held_out, validation).tolist() == [expected]


def test_by_default_a_quarter_of_the_held_out_samples_chooses():
    federation = assemble(configs.make({"partition": {"name": "iid", "clients": 2}}), blobs(400))[1]
    assert federation.counts.tolist() == [[160, 10, 30]] * 2


# --- who is in a mean


def step(params, x, y, rate):
    return jax.tree.map(lambda p, g: p - rate * g, params, gradient(params, x, y))


def mean_of(trees):
    return jax.tree.map(lambda *x: np.mean(x, axis=0), *trees)


@pytest.fixture(scope="module")
def after_a_round():
    """Per-FedAvg with one step on all samples. Client 0 has a number that is not finite, two
    others attack: they send zeros."""
    values = {
        "seed": 3,
        "partition": {"name": "quantity", "clients": 8, "beta": 2.0, "min_samples": 20},
        "attack": {"name": "same_value", "gamma2": 0.0, "fraction": 0.25},
        "method": {"name": "per_fedavg", "lr": 0.3, "inner_lr": 0.5, "local_steps": 1,
                   "batch": 10**6},
        "engine": {"devices": 1, "precision": "float64"},
    }  # fmt: skip
    data = blobs(300)
    federation = assemble(configs.make(values), data)[1]
    data.images[federation.arrays.rows[0]] = np.nan
    settings, federation, engine = set_up(values, data, small_net())
    with precision(settings):
        start = jax.tree.map(lambda x: np.asarray(x, float), engine.models(engine.state, 0)[0])
        state, log = engine.run(engine.state, 1)
        sums = engine.evaluate(state)
        shared, _ = engine.models(state, 1)
    assert federation.malicious.sum() == 2
    assert not federation.malicious[0]
    return data, federation, engine.facts.evaluated, start, shared, log, sums


def test_a_client_that_is_not_finite_has_no_weight(after_a_round):
    data, federation, _, start, shared, log, _ = after_a_round
    sent, seen, samples = [], 0.0, 0
    for client in range(1, 8):
        if federation.malicious[client]:
            sent.append(jax.tree.map(np.zeros_like, start))
            continue
        x, y = held(federation, data, client, TRAIN)
        ahead = step(start, x, y, 0.5)
        sent.append(jax.tree.map(lambda p, g: p - 0.3 * g, start, gradient(ahead, x, y)))
        seen, samples = seen + losses(ahead, x, y).sum(), samples + len(y)
    assert distance(shared, mean_of(sent)) < 1e-10
    assert log.nonfinite.tolist() == [1]
    # and the training loss is over samples of clients that are honest and finite
    assert float(log.samples[0]) == samples
    assert float(log.loss[0]) == pytest.approx(seen, rel=1e-10)


def test_a_model_that_is_fitted_when_it_is_used_is_evaluated_fitted(after_a_round):
    """And the figures are those of honest clients."""
    data, federation, evaluated, _, shared, _, sums = after_a_round
    np.testing.assert_array_equal(evaluated, np.flatnonzero(~federation.malicious))
    for row, client in list(enumerate(evaluated))[1:]:
        fitted = step(shared, *held(federation, data, client, TRAIN), 0.5)
        assert distance(fitted, shared) > 1e-2
        for place, part in enumerate((VALIDATION, TEST)):
            x, y = held(federation, data, client, part)
            for i, params in enumerate((fitted, shared)):
                expected = losses(params, x, y).sum()
                assert float(sums.loss[row, i, place]) == pytest.approx(expected, rel=1e-9)
                assert sums.correct[row, i, place] == (outputs(params, x).argmax(1) == y).sum()


def averaged(rounds, selected, devices, **values):
    """FedAvg with one step on all samples in every round: the global model after each round, and
    what `plain.loop_inputs` says of the run."""
    values = {
        "seed": 2,
        "participation": {"clients_per_round": selected},
        "method": {"name": "fedavg", "lr": 0.3, "batch": 10**6},
        **values,
        "engine": {"devices": devices, "precision": "float64"},
    }
    settings, federation, engine = set_up(values, DATA, small_net())
    inputs = loop_inputs(settings, federation, engine, DATA)
    found, state = [], engine.state
    with precision(settings):
        for _ in range(rounds):
            state, _ = engine.run(state, 1)
            found.append(engine.models(state, 0)[0])
    return found, federation, inputs


def test_one_message_is_heard_wherever_it_comes_from():
    """The median of one message is the message, for every device: those that trained nobody too."""
    partition = {"name": "iid", "clients": 4}
    aggregator = {"name": "median"}
    found, _, inputs = averaged(6, 1, 2, partition=partition, aggregator=aggregator)
    w, clients, select, _ = inputs
    chosen = [int(select(t)[0]) for t in range(6)]
    assert len(set(chosen)) > 2
    for client, shared in zip(chosen, found, strict=True):
        w = step(w, *clients[client], 0.3)
        assert distance(shared, w) < 1e-10


def multi_krum(messages, suspects):
    """The mean of the n - f messages that are nearest to their n - f - 2 nearest others."""
    flat = np.stack([np.concatenate([x.ravel() for x in jax.tree.leaves(m)]) for m in messages])
    n = len(flat)
    away = ((flat[:, None] - flat[None]) ** 2).sum(-1)
    scores = [np.sort(np.delete(row, i))[: n - suspects - 2].sum() for i, row in enumerate(away)]
    return mean_of([messages[i] for i in np.argsort(scores)[: n - suspects]])


def test_a_selection_may_have_more_than_its_share_of_attackers():
    """Two of ten are malicious. Of seven messages that is 1.4, so two of them are suspected."""
    found, federation, (w, clients, select, _) = averaged(
        1,
        7,
        1,
        partition={"name": "quantity", "clients": 10, "beta": 2.0, "min_samples": 12},
        attack={"name": "same_value", "gamma2": 0.0, "fraction": 0.2},
        aggregator={"name": "multi_krum"},
    )
    sent = []
    for client in np.asarray(select(0)):
        zeros = jax.tree.map(np.zeros_like, w)
        sent.append(zeros if federation.malicious[client] else step(w, *clients[client], 0.3))
    assert distance(found[0], multi_krum(sent, suspects=2)) < 1e-10
    assert distance(found[0], multi_krum(sent, suspects=1)) > 1e-4


# --- one client's round


def shard(samples=5, features=3, clients=4):
    rng = np.random.default_rng(11)
    x, y = rng.normal(size=(samples, features)), rng.normal(size=samples)

    def read(rows):
        return jnp.asarray(x)[rows], jnp.asarray(y)[rows]

    zero = jnp.int32(0)
    return Shard(zero, clients, zero + samples, samples, jnp.array(1 / clients), read), x, y


def squares(theta, x, y):
    """f_i of the least squares."""
    return np.mean((x @ theta - y) ** 2) / 2


FORMS = {
    "flame": {},
    "flame published": {"preset": "published"},
    "ditto": {},
    "fedadmm": {},
    "local": {"weight_decay": 0.3},
    "pfedme": {"preset": "published"},
    "lp_proj": {"d_sub": 2, "local_rounds": 2, "inner_steps": 3},
    "flame_lp_proj": {"d_sub": 2},
}
AGREED = ("flame", "lp_proj", "flame_lp_proj")  # the others take their loss from where flame does
FEWER = [
    pytest.param(form, marks=() if form in AGREED else pytest.mark.full, id=form) for form in FORMS
]


def one_client(name, **settings):
    chosen = configs.make({"method": {"name": name, **settings}}).method
    hyper = jax.tree.map(lambda v: jnp.asarray(v, float), chosen.hyper())
    return chosen.build(linear()), hyper


@pytest.mark.parametrize("form", FEWER)
def test_the_training_loss_is_f_alone_whatever_the_batches(form):
    """A model that does not move is met once with each sample in an epoch, in batches of two, two
    and one: it reports its mean loss, and no pull to where the others are."""
    with jax.enable_x64(True):
        mine, x, y = shard()
        method, hyper = one_client(form.split()[0], batch=2, **FORMS[form])
        hyper = hyper._replace(lr=jnp.zeros(()))
        w, theta, key = np.array([1.0, -2, 3]), np.array([0.5, 1, -1]), jax.random.key(3)
        server, client = (method.init(hyper, jnp.asarray(x), key) for x in (w, theta))
        server, client = server[0], client[1]

        @jax.jit
        def train(client):
            return method.client(hyper, server, client, mine, key)

        client, _, _ = train(client)  # from here on w_i is apart from theta
        _, _, info = train(client)
    assert float(info.samples) % 5 == 0
    assert float(info.loss / info.samples) == pytest.approx(squares(theta, x, y), rel=1e-12)


def test_fedprox_reports_f_alone():
    """It starts at w: two full steps, the second one pulled back."""
    with jax.enable_x64(True):
        mine, x, y = shard()
        method, hyper = one_client("fedprox", batch=10, epochs=2, lr=0.1, mu=5.0)
        w = np.array([1.0, -2, 3])
        train = jax.jit(lambda w: method.client(hyper, w, (), mine, jax.random.key(0)))
        _, _, info = train(w)
    moved = w - 0.1 * x.T @ (x @ w - y) / 5
    expected = (squares(w, x, y) + squares(moved, x, y)) / 2
    assert float(info.loss / info.samples) == pytest.approx(expected, rel=1e-12)


def test_the_local_solver_stops_as_soon_as_its_tolerance_is_met():
    """(16): |alpha_i (grad f_i + lam (theta_i - w_i))|^2 <= epsilon_i, and (17): epsilon_i has
    become smaller by a factor before it is used."""
    lam, epsilon, shrinks, rate = 0.7, 1e-4, 0.5, 0.05
    with jax.enable_x64(True):
        mine, x, y = shard(clients=4)
        method, hyper = one_client(
            "flame", local_solver="until_epsilon", lam=lam, epsilon0=epsilon, upsilon=shrinks,
            lr=rate, max_steps=10_000,
        )  # fmt: skip
        w, key = np.array([1.0, -2, 3]), jax.random.key(0)
        server, client = method.init(hyper, jnp.asarray(w), key)
        train = jax.jit(lambda client: method.client(hyper, server, client, mine, key))
        new, _, info = train(client)

    def steps(tolerance):
        theta, taken = w, 0
        while True:
            slope = x.T @ (x @ theta - y) / 5 + lam * (theta - w)
            if np.sum((slope / 4) ** 2) <= tolerance:
                return taken, theta
            theta, taken = theta - rate * slope, taken + 1

    taken, theta = steps(shrinks * epsilon)
    assert taken + 1 == int(info.steps)  # and the gradient once before the first step
    np.testing.assert_allclose(new.theta, theta, rtol=1e-9)
    assert steps(epsilon)[0] < taken < steps(shrinks * epsilon / 4)[0]


# --- the theory of several runs at once


class Theory(NamedTuple):
    summary: dict
    rows: list
    alpha: np.ndarray  # [C]
    smoothness: float  # by NumPy


LAM, RHO, EPSILON, UPSILON = 0.57, 0.2, 1e-2, 0.7


@pytest.fixture(scope="module")
def together(tmp_path_factory):
    """Two runs with other clients, in one program; smoothness is estimated."""
    data = regression(features=3, samples=120)
    runs = [
        configs.make(
            {
                "seed": seed,
                "rounds": 2,
                "eval_every": 2,
                "partition": {"name": "quantity", "clients": 3, "beta": 8.0, "min_samples": 25},
                "method": {
                    "alpha": "samples",
                    "lam": LAM,
                    "rho": RHO,
                    "lr": 0.1,
                    "local_solver": "until_epsilon",
                    "epsilon0": EPSILON,
                    "upsilon": UPSILON,
                },
                "record": {"theory": True},
                "engine": {"devices": 1, "precision": "float64"},
            }
        )
        for seed in (0, 1)
    ]
    outs = [tmp_path_factory.mktemp("together") / str(run.seed) for run in runs]
    assert run_together(runs, outs, quiet=True, data=data, model=linear()) == [None, None]
    found = []
    for run, out in zip(runs, outs, strict=True):
        federation = assemble(run, data)[1]
        samples = [held(federation, data, client, TRAIN)[0] for client in range(3)]
        curvature = max(np.linalg.eigvalsh(x.T @ x / len(x)).max() for x in samples)
        sizes = np.array([len(x) for x in samples])
        lines = (out / "theory.jsonl").read_text().splitlines()
        summary = json.loads((out / "summary.json").read_text())["theory"]
        found.append(Theory(summary, list(map(json.loads, lines)), sizes / sizes.sum(), curvature))
    assert abs(found[0].smoothness / found[1].smoothness - 1) > 0.03
    return found


def test_every_run_of_a_pack_has_its_own_smoothness(together):
    for run in together:
        assert run.summary["smoothness"] == pytest.approx(run.smoothness, rel=1e-3)
        assert run.summary["smoothness_from"] == "estimate"


def test_the_lyapunov_function_of_every_run_goes_by_its_own_smoothness(together):
    """L + sum of iota_i epsilon_i, iota_i = 1 / (4 k_i (1 - upsilon)), k_i the slack of (c)."""
    for run in together:
        x = LAM * run.alpha
        slack = (1 - RHO**2) * x**2 / RHO**2 - (run.smoothness * run.alpha + RHO) / 2
        assert (slack > 0).all()
        weight = (1 / (4 * slack * (1 - UPSILON))).sum()
        for row in run.rows:
            added = weight * EPSILON * UPSILON ** row["round"]
            assert row["lyapunov"] - row["lagrangian"] == pytest.approx(added, rel=5e-3)


def test_conditions_hold_if_they_do_for_all_clients_with_their_weights(together):
    def b_holds(alpha):
        return bool((LAM * alpha <= RHO).all())

    for run in together:
        x = LAM * run.alpha
        a = x**2 * (1 + RHO) / RHO**2 < (x + RHO) / 2
        c = (1 - RHO**2) * x**2 / RHO**2 > (run.smoothness * run.alpha + RHO) / 2
        expected = {"a": bool(a.all()), "b": b_holds(run.alpha), "c": bool(c.all())}
        assert run.summary["conditions"] == expected
    assert any(b_holds(run.alpha) != b_holds(np.full(3, 1 / 3)) for run in together)


# --- what a comparison shows


def test_curves_are_those_of_the_rate_that_was_chosen():
    found = imagine("pfedme", lambda _, rate, seed: {"test": rate, "chosen": 1 - rate},
                    rates=[0.9, 0.2, 0.6])  # fmt: skip
    assert found.rows[0]["rate"] == 0.2
    assert found.curves[0]["pm_accuracy"].tolist() == [[0.2], [0.2]]
