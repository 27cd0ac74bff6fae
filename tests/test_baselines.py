"""Every baseline against a plain NumPy float64 loop of its authors' algorithm, and its limits."""

import itertools

import jax
import numpy as np
import pytest

from flamejax.errors import InputError

from .plain import gradient, loop_inputs
from .problems import blobs, distance, set_up, small_net, train

ROUNDS = 10


def each(f, *trees):
    return jax.tree.map(f, *trees)


def mean(trees):
    return each(lambda *x: sum(x) / len(x), *trees)


def descend(x, samples, batches, lr, momentum=0.0, decay=0.0, strength=0.0, center=None):
    """SGD with momentum on f + strength/2 |x - center|^2 + decay/2 |x|^2, batch by batch."""
    center, velocity = (x if center is None else center), each(np.zeros_like, x)
    for rows in batches:
        grads = gradient(x, samples[0][rows], samples[1][rows])
        velocity = each(
            lambda v, g, x, c: momentum * v + g + strength * (x - c) + decay * x,
            velocity, grads, x, center,
        )  # fmt: skip
        x = each(lambda x, v: x - lr * v, x, velocity)
    return x


def sgd_of(method):
    return {"lr": method.lr, "momentum": method.momentum, "decay": method.weight_decay}


def fedavg(method, start, clients, select, batches):
    w = start
    for t in range(ROUNDS):
        pull = {"strength": getattr(method, "mu", 0.0), "center": w}
        w = mean(
            [descend(w, clients[i], batches(t, i), **sgd_of(method), **pull) for i in select(t)]
        )
    return w, [w] * len(clients)


def local(method, start, clients, select, batches):
    theta = [start] * len(clients)
    for t in range(ROUNDS):
        for i in select(t):
            theta[i] = descend(theta[i], clients[i], batches(t, i), **sgd_of(method))
    return None, theta


def fedadmm(method, start, clients, select, batches):
    rho, m = method.rho, len(clients)
    theta, pi, u = [start] * m, [each(np.zeros_like, start)] * m, [start] * m
    for t in range(ROUNDS):
        w = mean(u)
        for i in select(t):
            for_this = {"strength": rho, "center": each(lambda w, p: w - p / rho, w, pi[i])}
            theta[i] = descend(theta[i], clients[i], batches(t, i), **sgd_of(method), **for_this)
            pi[i] = each(lambda p, x, w: p + rho * (x - w), pi[i], theta[i], w)
            u[i] = each(lambda x, p: x + p / rho, theta[i], pi[i])
    return mean(u), theta


def ditto(method, start, clients, select, batches):
    w, v = start, [start] * len(clients)
    for t in range(ROUNDS):
        deltas = []
        for i in select(t):
            same = list(batches(t, i))
            v[i] = descend(v[i], clients[i], same, **sgd_of(method), strength=method.lam, center=w)
            x = descend(w, clients[i], same, lr=method.global_lr, decay=method.weight_decay)
            deltas.append(each(np.subtract, x, w))
        w = each(np.add, w, mean(deltas))
    return w, v


def pfedme(method, start, clients, select, batches):
    w, theta = start, [start] * len(clients)
    rate = method.global_lr * method.lam
    for t in range(ROUNDS):
        local_models = []
        for i in select(t):
            theta[i] = w_i = w
            stream = itertools.islice(batches(t, i, epochs=99), method.local_rounds)
            for rows in stream:
                theta[i] = descend(
                    theta[i], clients[i], [rows] * method.inner_steps, **sgd_of(method),
                    strength=method.lam, center=w_i,
                )  # fmt: skip
                w_i = each(lambda w, x: w - rate * (w - x), w_i, theta[i])
            local_models.append(w_i)
        w = each(lambda w, x: (1 - method.beta) * w + method.beta * x, w, mean(local_models))
    return w, theta


SGD = {"lr": 0.05, "batch": 16, "epochs": 2, "momentum": 0.3, "weight_decay": 0.01}
METHODS = {
    "fedavg": (fedavg, SGD),
    "fedprox": (fedavg, {**SGD, "mu": 0.7}),
    "local": (local, SGD),
    "fedadmm": (fedadmm, {**SGD, "rho": 0.3}),
    "ditto": (ditto, {**SGD, "lam": 0.8, "global_lr": 0.1}),
    "pfedme": (
        pfedme,
        {"lr": 0.05, "batch": 16, "lam": 3.0, "global_lr": 0.02, "beta": 0.9, "local_rounds": 7,
         "inner_steps": 3, "momentum": 0.3},
    ),
}  # fmt: skip


def ready(name, settings, selected="all", **engine):
    values = {
        "seed": 3,
        "partition": {"name": "quantity", "clients": 7, "beta": 0.7, "min_samples": 9},
        "participation": {"clients_per_round": selected},
        "method": {"name": name, **settings},
        "engine": {"devices": 2, **engine},
    }
    return set_up(values, blobs(), small_net())


@pytest.mark.parametrize("selected", ["all", 3])
@pytest.mark.parametrize("name", METHODS)
def test_engine_equals_a_plain_loop(name, selected):
    loop, settings = METHODS[name]
    run = ready(name, settings, selected, precision="float64")
    w, theta = loop(run[0].method, *loop_inputs(*run, blobs()))
    shared, personal, _ = train(*run, ROUNDS)
    assert distance(personal, each(lambda *x: np.stack(x), *theta)) < 1e-10
    assert (shared is None) == (w is None)
    assert w is None or distance(shared, w) < 1e-10


def test_ditto_without_pull_is_local_training():
    _, alone, _ = train(*ready("local", SGD), ROUNDS)
    _, personal, _ = train(*ready("ditto", {**SGD, "lam": 0.0}), ROUNDS)
    assert distance(personal, alone) < 1e-5


def test_fedprox_without_pull_is_fedavg():
    plain, _, _ = train(*ready("fedavg", SGD), ROUNDS)
    prox, _, _ = train(*ready("fedprox", {**SGD, "mu": 0.0}), ROUNDS)
    assert distance(prox, plain) < 1e-5


def test_settings_that_would_do_nothing_are_refused():
    with pytest.raises(InputError, match=r"method\.epochs is not a known key"):
        ready("pfedme", {"epochs": 3})
