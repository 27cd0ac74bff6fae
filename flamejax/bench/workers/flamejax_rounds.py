"""flamejax itself, through the engine that `flamejax run` uses.

flamejax_rounds.py JOB [key=value ...]
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import protocol

import flamejax
from flamejax import registry
from flamejax.config import make, override
from flamejax.costs import memory
from flamejax.engine import build
from flamejax.evaluate import figures
from flamejax.federation import assemble
from flamejax.types import Dataset


def first_weights(job: protocol.Job, init: Callable[..., Any], key: Any, x: Any) -> Any:
    """The job's weights, told apart by their shapes, in the model's own tree."""
    shapes = {tuple(sorted(w.shape)): w for w in job.weights}

    def pick(leaf: Any) -> Any:
        weight = shapes[tuple(sorted(leaf.shape))]
        return jnp.asarray(weight if weight.shape == leaf.shape else weight.T)

    return jax.tree.map(pick, jax.eval_shape(init, key, x))


def main(folder: str, *changes: str) -> None:
    job = protocol.load(folder)
    values = {
        "partition": {"name": "writer", "clients": job.clients, "min_samples": 3},
        "model": {"name": job.model},
        "method": {"name": job.method, "lr": job.lr, "batch": job.batch},
    }
    if job.method == "flame":
        values["method"] |= {"lam": job.lam, "rho": job.rho}
    if job.selected < job.clients:
        values["participation"] = {"clients_per_round": job.selected}
    for change in changes:
        override(values, change)
    config = make(values)
    writers = np.repeat(np.arange(job.clients), job.samples)
    data = Dataset(job.images, job.labels, job.classes, writers, job.mean, job.std)
    federation = assemble(config, data)[1]
    assert sorted(federation.counts[:, 0]) == sorted(job.training), "another split"
    model = registry.get("models", job.model)(job.classes, convolution=config.model.convolution)
    model = model._replace(init=partial(first_weights, job, model.init))
    engine = build(config, config.method.build(model), model, federation)
    state = engine.state

    def train(rounds: int) -> dict[str, float]:
        nonlocal state
        for _ in range(rounds):
            state, log = engine.run(state, 1)
        return {"loss": float(log.loss[-1] / log.samples[-1])}

    def evaluate(times: int) -> dict[str, float]:
        for _ in range(times):
            sums = engine.evaluate(state)
        found = figures(sums, federation.counts, "test").test.accuracy
        return {name: float(found[name].mean()) for name in ("gm", "pm") if name in found}

    protocol.serve(
        {"train": train, "evaluate": evaluate},
        version=f"flamejax {flamejax.__version__}",
        compile_seconds=engine.facts.compile_seconds,
        plan=str(engine.facts.plan),
        memory=memory(engine),
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
