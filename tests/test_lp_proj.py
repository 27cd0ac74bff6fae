"""The random projection, kept or made anew; and the two methods that live in its subspace."""

import functools
from contextlib import contextmanager

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from flamejax import config, registry, tree
from flamejax.methods import projection
from flamejax.methods.flame_lp_proj import FlameLpProj, flame_lp_proj
from flamejax.types import Shard

from .problems import blobs, distance, linear, set_up, small_net, train

D_SUB = 10


def parameters(seed=0):
    return small_net().init(jax.random.key(seed), jnp.zeros((1, 6)))


def flat(params):
    return np.concatenate([np.ravel(x) for x in jax.tree.leaves(params)])


@functools.cache
def projections():
    """The same P twice: kept, and made anew."""
    entries = D_SUB * tree.size(parameters())
    kept, anew = (
        projection.draw(jax.random.key(3), parameters(), D_SUB, largest)
        for largest in (entries, entries - 1)
    )
    assert anew.rows is None
    rows = [np.reshape(x, (D_SUB, -1)) for x in jax.tree.leaves(kept.rows)]
    return kept, anew, np.concatenate(rows, axis=1)


def test_products_kept_or_made_anew_are_those_of_one_matrix(rng):
    kept, anew, P = projections()
    x, w = parameters(1), rng.normal(size=D_SUB).astype(np.float32)
    project, pull = jax.jit(projection.project), jax.jit(projection.pull)
    for form in (kept, anew):
        np.testing.assert_allclose(project(form, x), P @ flat(x), atol=1e-5)
        np.testing.assert_allclose(flat(pull(form, x, w)), P.T @ (P @ flat(x) - w), atol=1e-5)
        transposed = flat(pull(form, tree.zeros_like(x), -w))
        np.testing.assert_allclose(transposed, P.T @ w, atol=1e-5)


def test_rows_are_gaussian_directions():
    _, _, P = projections()
    np.testing.assert_allclose(np.linalg.norm(P, axis=1), 1, atol=1e-6)
    angles = (P @ P.T)[np.triu_indices(D_SUB, 1)] * np.sqrt(P.shape[1])
    assert abs(angles.mean()) < 0.5
    assert 0.7 < angles.std() < 1.3
    assert 2.4 < np.mean((P * np.sqrt(P.shape[1])) ** 4) < 3.4  # 3 for a normal distribution


def sizes(jaxpr):
    """The size of everything a jaxpr computes, inner jaxprs included."""
    for equation in jaxpr.eqns:
        yield from (x.aval.size for x in equation.outvars)
        for inner in jax.tree.leaves(list(equation.params.values())):
            if hasattr(inner, "eqns") or hasattr(inner, "jaxpr"):
                yield from sizes(getattr(inner, "jaxpr", inner))


def largest(f, *arguments):
    return max(sizes(jax.make_jaxpr(f)(*arguments).jaxpr))


def largest_leaf(projection):
    return max(x.size for x in jax.tree.leaves(projection.rows))


def test_rows_made_anew_are_never_all_there():
    kept, anew, _ = projections()
    draw = lambda key: projection.draw(key, parameters(), D_SUB, 0)  # noqa: E731
    project = lambda x: projection.project(anew, x)  # noqa: E731
    pull = lambda x: projection.pull(anew, x, jnp.zeros(D_SUB))  # noqa: E731
    computed = [largest(draw, jax.random.key(0)), largest(project, parameters())]
    assert max(*computed, largest(pull, parameters())) < largest_leaf(kept) / 4


@pytest.mark.parametrize("name", ["lp_proj", "flame_lp_proj"])
def test_clients_side_by_side_share_one_projection(name):
    settings = config.make({"method": {"name": name, "batch": 2}}).method
    method, hyper = settings.build(small_net()), jax.tree.map(jnp.asarray, settings.hyper())
    server, client = method.init(hyper, parameters(), jax.random.key(3))
    clients, x, y = 200, jnp.zeros((300, 6)), jnp.zeros(300, jnp.int32)

    def one(client, samples, key):
        share = samples.astype(float) / 300
        shard = Shard(samples, clients, samples, 300, share, lambda at: (x[at], y[at]))
        return method.client(hyper, server, client, shard, key)

    stacked, samples = tree.stack(client, clients), jnp.arange(clients)
    keys = jax.random.split(jax.random.key(0), clients)
    computed = largest(jax.vmap(one), stacked, samples, keys)
    assert computed < clients * largest_leaf(server.projection) / 4


def values(name, **method):
    return {
        "partition": {"name": "quantity", "clients": 5, "beta": 1.0, "min_samples": 8},
        "participation": {"clients_per_round": 3},
        "method": {"name": name, "lr": 0.1, "batch": 16, **method},
        "engine": {"devices": 2, "execution": "vmap"},
    }


@contextmanager
def drawn_by(draw):
    """FLAME-LP-Proj with a projection of one's own, as a method."""

    class Own(FlameLpProj):
        name: str = "own"

        def build(self, model):
            return flame_lp_proj(self, model, draw)

    registry.register("methods", "own", Own)
    try:
        yield "own"
    finally:
        registry.unregister("methods", "own")


@pytest.mark.full
def test_a_run_is_the_same_with_rows_made_anew_and_keeps_the_dual_identity():
    ready = set_up(values("flame_lp_proj"), blobs(), small_net())
    with drawn_by(functools.partial(projection.draw, largest=0)) as own:
        other = set_up(values(own), blobs(), small_net())
    assert other[2].state.server.projection.rows is None
    for _, _, eng in (ready, other):  # only w is sent
        assert eng.facts.bytes_up == eng.facts.bytes_down == 4 * D_SUB
        assert eng.evaluate(eng.state).loss.shape[1] == 1  # one model, the personalized

    P = jax.tree.map(np.array, ready[2].state.server.projection)
    settings, fed, eng = ready
    state, _ = eng.run(eng.state, 10)
    client = jax.tree.map(np.asarray, state.clients.state)
    shared, personal, _ = train(*other, 10)
    assert shared is None
    lam_alpha = settings.method.lam / fed.clients
    for i in range(fed.clients):
        assert distance(eng.models(state, i)[1], jax.tree.map(lambda x, i=i: x[i], personal)) < 1e-5
        theta = jax.tree.map(lambda x, i=i: x[i], client.theta)
        pi = lam_alpha * (np.asarray(projection.project(P, theta)) - client.w[i])
        np.testing.assert_allclose(client.pi[i], pi, atol=1e-6)


def test_with_the_identity_for_a_projection_it_is_flame():
    data = blobs(features=4)
    data = data._replace(labels=data.labels.astype(float))

    def identity(key, params, d_sub):
        return projection.Projection(jnp.zeros((d_sub, 2), jnp.uint32), jnp.eye(d_sub))

    same = {"lam": 1.3, "rho": 0.2, "lr": 0.05}
    with drawn_by(identity) as own:
        _, personal, _ = train(*set_up(values(own, d_sub=4, **same), data, linear()), 20)
    _, expected, _ = train(*set_up(values("flame", **same), data, linear()), 20)
    assert distance(personal, expected) < 1e-5
