"""What a plain NumPy loop needs: gradients by hand, and the engine's clients and batches."""

import jax
import jax.numpy as jnp
import numpy as np

from flamejax.federation import TRAIN
from flamejax.shuffle import permute

from .problems import precision


def gradient(params, x, y):
    """Mean cross-entropy gradient of a one-hidden-layer ReLU network, by hand."""
    (k1, b1), (k2, b2) = ((params[d]["kernel"], params[d]["bias"]) for d in ("Dense_0", "Dense_1"))
    hidden = np.maximum(x @ k1 + b1, 0)
    logits = hidden @ k2 + b2
    odds = np.exp(logits - logits.max(1, keepdims=True))
    error = odds / odds.sum(1, keepdims=True)
    error[np.arange(len(y)), y] -= 1
    error /= len(y)
    back = (error @ k2.T) * (hidden > 0)
    return {
        "Dense_0": {"kernel": x.T @ back, "bias": back.sum(0)},
        "Dense_1": {"kernel": hidden.T @ error, "bias": error.sum(0)},
    }


def mean(trees):
    return jax.tree.map(lambda *x: sum(x) / len(x), *trees)


def algorithm_1(
    params, clients, rounds, select, batches, *, lam, rho, lr, mu, decay, center,
    send=lambda t, chosen, u: None, hear=lambda u, w: mean(u),
):  # fmt: skip
    """The paper's Algorithm 1 with its pi stored, in float64, clients and batches one by one.

    send: may change the messages u of the chosen clients in place; hear: what the server makes of
    all messages, w being the last it made.
    """
    m, add = len(clients), lambda f, *trees: jax.tree.map(f, *trees)
    alpha = 1 / m
    theta, w_i = [params] * m, [params] * m
    pi, u = [add(np.zeros_like, params)] * m, [params] * m
    w = params
    for t in range(rounds):
        w = hear(u, w)  # line 5
        for i in select(t):  # line 7
            velocity = add(np.zeros_like, params)
            pull_to = w_i[i] if center == "local" else w
            for rows in batches(t, i):  # lines 9-12
                x, y = clients[i][0][rows], clients[i][1][rows]
                velocity = add(
                    lambda v, g, th, c: mu * v + g + lam * (th - c) + decay * th,
                    velocity, gradient(theta[i], x, y), theta[i], pull_to,
                )  # fmt: skip
                theta[i] = add(lambda th, v: th - lr * v, theta[i], velocity)
            w_i[i] = add(
                lambda th, w, p: (lam * alpha * th + rho * w - p) / (lam * alpha + rho),
                theta[i], w, pi[i],
            )  # fmt: skip
            pi[i] = add(lambda p, wi, w: p + rho * (wi - w), pi[i], w_i[i], w)
            u[i] = add(lambda wi, p: wi + p / rho, w_i[i], pi[i])
        send(t, select(t), u)
    return hear(u, w), theta


shuffled = jax.jit(lambda key, n, size: permute(key, jnp.arange(size), n), static_argnums=2)


def loop_inputs(settings, fed, eng, data):
    """(initial global model, clients' samples, round -> selected, (round, client) -> batches).

    Randomness as documented: fold_in(fold_in(run key, round), client), and the number of clients
    in the place of a client for the selection.
    """
    largest = int(fed.counts[:, TRAIN].max())
    with precision(settings):
        start = jax.tree.map(lambda x: np.asarray(x, np.float64), eng.models(eng.state, 0)[1])
        _, key = jax.random.split(jax.random.key(settings.seed))
    clients = []
    for i in range(fed.clients):
        count, first = fed.counts[i, TRAIN], fed.arrays.starts[i]
        rows = fed.arrays.rows[first : first + count]
        clients.append((data.images[rows], data.labels[rows]))

    def select(t):
        wanted = settings.participation.clients_per_round
        if wanted == "all":
            return range(fed.clients)
        chooser = jax.random.fold_in(jax.random.fold_in(key, t), fed.clients)
        return np.asarray(shuffled(chooser, fed.clients, wanted))

    def batches(t, i, epochs=None):
        """Row numbers of every batch; of `epochs` epochs, by default the method's own number."""
        mine, n = jax.random.fold_in(jax.random.fold_in(key, t), i), len(clients[i][1])
        size = settings.method.batch
        for epoch in range(settings.method.epochs if epochs is None else epochs):
            order = np.asarray(shuffled(jax.random.fold_in(mine, epoch), n, largest))[:n]
            yield from (order[j : j + size] for j in range(0, n, size))

    return start, clients, select, batches
