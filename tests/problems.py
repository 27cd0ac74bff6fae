"""Small federated problems, and the engine set up on them."""

from __future__ import annotations

from contextlib import nullcontext

import jax
import numpy as np

from flamejax import config, engine
from flamejax.federation import federate
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
