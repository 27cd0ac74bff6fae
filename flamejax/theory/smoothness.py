"""The smoothness L that the convergence conditions ask for, estimated on the clients' losses."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from flamejax import local, tree
from flamejax.config import Config
from flamejax.engine.devices import make_mesh
from flamejax.engine.prepare import initial_parameters
from flamejax.errors import InputError
from flamejax.evaluate import BATCH
from flamejax.federation import TRAIN, Federation
from flamejax.types import Model, Shard, Tree

LOOKED_AT = 100  # clients, at most, to estimate a smoothness


class Estimate(NamedTuple):
    """Where a smoothness comes from that was not given."""

    curvatures: np.ndarray  # [n]
    clients: np.ndarray  # [n] whose they are,
    everyone: int  # of so many
    model: str
    seconds: float

    @property
    def smoothness(self) -> float:
        return float(f"{self.curvatures.max():.6g}")  # as it is shown, so that it can be typed


def estimate(config: Config, name: str, model: Model, federation: Federation) -> Estimate:
    """Of a config's losses with a model, at the point where a run of it starts."""
    started = time.perf_counter()
    make_mesh(config.engine.devices, useful=federation.clients)  # before JAX has its devices
    at = initial_parameters(config, model, federation)
    decay = getattr(config.method, "weight_decay", 0.0)
    drawn = np.random.default_rng([config.seed, 4]).permutation(federation.clients)
    clients = np.sort(drawn[:LOOKED_AT])
    found = curvatures(model, federation, at, decay, clients=clients)
    if not np.isfinite(found).all():
        raise InputError("the losses' curvature is not finite: look at the data, or give L")
    return Estimate(found, clients, federation.clients, name, time.perf_counter() - started)


def curvatures(
    model: Model,
    federation: Federation,
    params: Tree,
    weight_decay: float = 0.0,
    iterations: int = 100,
    tolerance: float = 1e-4,
    clients: np.ndarray | None = None,
) -> np.ndarray:
    """The largest |eigenvalue| of the Hessian of each client's training loss at `params`: [C], or
    of some clients only, by number.

    The loss is the mean over all training samples, without dropout, plus weight_decay/2 |params|².
    Power iteration comes from below, and ends when a step changes it by less than `tolerance`, as a
    share. Where losses are quadratic the largest of these is L itself (for least squares with
    X'X = N b I it is b). Elsewhere it is the curvature at one point, a lower bound of L. Softmax
    regression has an upper one, too: half the largest eigenvalue of X'X/N, X with a column of ones.
    """
    gradient = local.loss_and_gradient(model._replace(train=None))
    counts = federation.counts[:, TRAIN].astype(np.int32)

    def of_client(arrays: Tree, params: Tree, client: Array, samples: Array) -> Array:
        shard = Shard(
            client=client,
            clients=federation.clients,
            samples=samples,
            largest=int(counts.max()),
            share=samples.astype(float) / float(counts.sum()),
            read=lambda positions: federation.read(arrays, client, positions),
        )

        def slope(at: Tree) -> Tree:
            grads, _ = local.full_gradient(gradient, at, shard, BATCH)
            return jax.tree.map(lambda g, x: g + weight_decay * x, grads, at)

        def product(v: Tree) -> Tree:  # the Hessian times v, forward over reverse
            return jax.jvp(slope, (params,), (v,))[1]

        return _largest(product, _direction(params), iterations, tolerance)

    @jax.jit
    def of_all(arrays: Tree, params: Tree, ids: Array, counts: Array) -> Array:
        return lax.map(lambda one: of_client(arrays, params, *one), (ids, counts))

    ids = np.arange(len(counts), dtype=np.int32) if clients is None else clients.astype(np.int32)
    return np.asarray(of_all(federation.arrays, params, ids, counts[ids]))


def _direction(params: Tree) -> Tree:
    """A vector of length 1 that should not be orthogonal to anything."""
    leaves, shape = jax.tree.flatten(params)
    keys = jax.random.split(jax.random.key(0), len(leaves))
    drawn = [jax.random.normal(k, x.shape, x.dtype) for k, x in zip(keys, leaves, strict=True)]
    return _unit(jax.tree.unflatten(shape, drawn))[0]


def _unit(v: Tree) -> tuple[Tree, Array]:
    """v at length 1, and its length; zero stays zero."""
    length = jnp.sqrt(tree.squared_norm(v))
    return tree.scale(1 / jnp.where(length > 0, length, 1), v), length


def _largest(product: Callable[[Tree], Tree], v: Tree, iterations: int, tolerance: float) -> Array:
    """The largest |eigenvalue| of a symmetric matrix. |Hv| never falls, whatever the signs."""

    def unfinished(carry: tuple[Array, Tree, Array, Array]) -> Array:
        taken, _, last, found = carry
        grows = (taken < 2) | (found - last > tolerance * found)
        return (taken < iterations) & grows & jnp.isfinite(found)

    def step(carry: tuple[Array, Tree, Array, Array]) -> tuple[Array, Tree, Array, Array]:
        taken, v, _, found = carry
        v, length = _unit(product(v))
        return taken + 1, v, found, length

    zero = jnp.zeros(())
    return lax.while_loop(unfinished, step, (jnp.zeros((), jnp.int32), v, zero, zero))[3]
