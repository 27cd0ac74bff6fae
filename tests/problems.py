"""Small federated problems, and the engine set up on them."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

from flamejax import config, engine
from flamejax.engine.compile import over
from flamejax.engine.devices import AXIS, lay_out
from flamejax.engine.prepare import arrange, first_state, settings_of
from flamejax.engine.rounds import Setting, make_round
from flamejax.federation import TRAIN, federate
from flamejax.models import from_flax
from flamejax.models.dense import Dense
from flamejax.readying import smoothness_of
from flamejax.types import Dataset, Model

PER_CALL = 100  # rounds the engine is built to run in one call


def blobs(samples=400, features=6, classes=3, seed=0) -> Dataset:
    """Gaussian classes: quick to learn, float inputs."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=samples)
    centers = rng.normal(size=(classes, features))
    return Dataset(centers[labels] + rng.normal(size=(samples, features)), labels, classes)


def small_net(classes=3) -> Model:
    return from_flax(Dense((5, classes)))


def linear() -> Model:
    """Least squares, 1/2 (x theta - y)^2, as a plain pair of functions."""
    return Model(
        init=lambda key, x: jax.random.normal(key, (x.shape[1],), x.dtype),
        apply=lambda theta, x: x @ theta,
        loss=lambda outputs, y: 0.5 * (outputs - y.astype(outputs.dtype)) ** 2,
    )


def set_up(values, data, model):
    """(config, federation, engine) for nested config values."""
    settings = config.make(values)
    with precision(settings):
        federation = federate(settings, data, np.random.default_rng(settings.seed))
        method = settings.method.build(model)
        smoothness = smoothness_of(settings, model, federation)
        built = engine.build(settings, method, model, federation, PER_CALL, smoothness=smoothness)
        return settings, federation, built


def precision(settings):
    return jax.enable_x64(True) if settings.engine.precision == "float64" else nullcontext()


def train(settings, federation, eng, rounds):
    """Global and stacked personalized models after some rounds, as NumPy arrays, and the log."""
    with precision(settings):
        state = eng.state
        for _ in range(rounds // PER_CALL):
            state, log = eng.run(state, PER_CALL)
        if rounds % PER_CALL:
            state, log = eng.run(state, rounds % PER_CALL)
        models = [eng.models(state, i) for i in range(federation.clients)]
        personal = jax.tree.map(lambda *x: np.stack(x), *[p for _, p in models])
        shared = None if models[0][0] is None else jax.tree.map(np.asarray, models[0][0])
        return shared, personal, log


def distance(a, b) -> float:
    """Largest relative difference of corresponding leaves."""
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return max(float(np.linalg.norm(x - y) / np.linalg.norm(y)) for x, y in pairs)


class Rounds(NamedTuple):
    """Rounds of several runs. Leaves begin with [R, rounds + 1], the first before all rounds."""

    server: Any
    clients: Any  # the method's states, [R, rounds + 1, C, ...]
    mean: Any  # what the server heard last
    nonfinite: np.ndarray  # [R, rounds] clients left out
    repeats: bool  # the same program has come to the same bits once more
    alike: bool  # all devices have the same server


def rounds_of_many(configs, method, model, federations, rounds) -> Rounds:
    """Runs that differ in traced settings and in what their data hold, one after another in one
    program; who is malicious may differ too, if somebody is in the first of them.

    All that these tests know of the engine's inside is here.
    """
    bound = federations[0]._replace(counts=np.maximum.reduce([f.counts for f in federations]))
    plan = arrange(configs[0], method, model, bound, 1)
    devices = plan.plan.devices
    one_round = make_round(plan.rules, bound, devices, plan.plan.width, plan.guests)
    layouts = [lay_out(f.counts[:, TRAIN], devices, plan.guests) for f in federations]
    init_key, of_first = settings_of(configs[0], plan.rules, bound, layouts[0])
    slots = len(layouts[0].client) // devices

    made = {}  # for data and weights of clients

    def told(own, federation, layout):
        rules = plan.rules._replace(aggregator=own.aggregator.build(federation.clients, 0))
        weights = rules.aggregator.weight(federation.counts[:, TRAIN].astype(float))
        kind = id(federation), weights.tobytes()
        if kind not in made:
            made[kind] = settings_of(own, rules, federation, layout)[1]._replace(key=None)
        chosen = own.attack.hyper(), own.aggregator.hyper()
        attack, rule = jax.tree.map(lambda x: np.asarray(x, made[kind].samples.dtype), chosen)
        return made[kind]._replace(attack=attack, aggregator=rule)

    def one(setting):
        setting = setting._replace(key=of_first.key)
        start = first_state(plan, setting, init_key, slots)[0]

        def step(state, _):
            new, info = one_round(setting, state)
            return new, (new, info.nonfinite)

        after, nonfinite = jax.lax.scan(step, start, length=rounds)[1]
        return jax.tree.map(lambda x, y: jnp.concatenate([x[None], y]), start, after), nonfinite

    def all_runs(settings):
        """What every device has a copy of is given back as each of them has it."""
        state, nonfinite = jax.lax.map(one, settings)
        copies = jax.tree.map(lambda x: x[:, None], (state.server, state.mean, nonfinite))
        return state.clients, copies

    settings = [told(*of) for of in zip(configs, federations, layouts, strict=True)]
    leaves = zip(*map(jax.tree.leaves, settings), strict=True)  # every config has its own classes
    settings = jax.tree.unflatten(jax.tree.structure(settings[0]), [np.stack(x) for x in leaves])
    inputs = Setting(*[P()] * len(Setting._fields))._replace(client=P(None, AXIS))
    outputs = P(None, None, AXIS), P(None, AXIS)
    program = jax.jit(over(plan.mesh, all_runs, (inputs,), outputs))
    first, second = (jax.tree.map(np.asarray, program(settings)) for _ in range(2))
    clients, copies = first
    server, mean, nonfinite = jax.tree.map(lambda x: x[:, 0], copies)
    slot = np.stack([layout.slot for layout in layouts])  # [R, C]
    at = np.arange(len(slot))[:, None, None], np.arange(rounds + 1)[:, None], slot[:, None]
    return Rounds(
        server,
        jax.tree.map(lambda x: x[at], clients.state),
        mean,
        nonfinite,
        repeats=_same(first, second),
        alike=_same(copies, jax.tree.map(lambda x: x[:, :1].repeat(devices, 1), copies)),
    )


def _same(some, others):
    pairs = zip(jax.tree.leaves(some), jax.tree.leaves(others), strict=True)
    return all(np.array_equal(x, y, equal_nan=True) for x, y in pairs)
