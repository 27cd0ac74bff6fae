"""How long runs will take, before they are run: a guess from the arithmetic of their models.

Runs of the same kind that are done already are a better guess, and taken where they are.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import cache
from math import prod
from typing import Any

import numpy as np

from flamejax import models, registry
from flamejax.catalog import KNOWN
from flamejax.config import Config
from flamejax.many import Job
from flamejax.records import Record

STARTING = 6.0  # seconds to read data, compile and draw
SHARE = 0.6  # of the speed of a large matrix product that training reaches; 0.4 to 0.8 on CPU


def seconds(jobs: Sequence[Job], done: Sequence[Record | None]) -> list[float]:
    """Of each run from its beginning to its end."""
    known: dict[str, list[float]] = {}
    for job, record in zip(jobs, done, strict=True):
        if record is not None and record.summary["status"] == "finished":
            known.setdefault(_kind(job.config), []).append(record.summary["seconds"])
    return [
        float(np.mean(known[kind])) if (kind := _kind(job.config)) in known else _guess(job.config)
        for job in jobs
    ]


def _kind(config: Config) -> str:
    """Equal for runs that take about as long."""
    method = config.method.model_dump(include={"name", "preset", "epochs", "batch"})
    return repr((config.rounds, config.data.name, config.partition.clients, method,
                 config.participation.clients_per_round, config.aggregator.name))  # fmt: skip


def _guess(config: Config) -> float:
    known = KNOWN.get(config.data.name)
    if known is None:
        return STARTING
    samples = known.samples if config.data.limit == "all" else config.data.limit
    trained = (1 - config.partition.held_out) * samples
    taken = config.participation.clients_per_round
    clients = config.partition.clients if taken == "all" else taken
    passes = _passes(config.method.model_dump(), trained * clients / config.partition.clients,
                     clients)  # fmt: skip
    scored = 2 * config.partition.held_out * samples / config.eval_every / 3  # forward only
    arithmetic = 3 * forward_operations(
        config.model.name, config.data.name, known.shape, known.classes
    )
    return STARTING + config.rounds * (passes + scored) * arithmetic / (SHARE * _speed())


def _passes(method: Mapping[str, Any], samples: float, clients: int) -> float:
    """Samples whose gradients are taken in a round."""
    if method["name"] == "pfedme" and isinstance(method["inner_steps"], int):
        return clients * method["local_rounds"] * method["inner_steps"] * method["batch"]
    return samples * method.get("epochs", 1) * (2 if method["name"] == "ditto" else 1)


@cache
def forward_operations(model: str, data: str, shape: tuple[int, ...], classes: int) -> float:
    """Operations of the matrix products and convolutions for one sample."""
    import jax
    import jax.numpy as jnp

    network = registry.get("models", models.choose(model, data))(classes, convolution="native")
    sample = jnp.zeros((1, *shape))
    if shape[-1] == 1 and data == "medical_mnist":
        sample = jnp.repeat(sample, 3, -1)  # as it is read
    params = jax.eval_shape(lambda: network.init(jax.random.key(0), sample))
    jaxpr = jax.make_jaxpr(network.apply)(params, sample)
    return float(sum(_operations(equation) for equation in _equations(jaxpr.jaxpr)))


def _equations(jaxpr: Any) -> Any:
    for equation in jaxpr.eqns:
        yield equation
        for value in equation.params.values():
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from _equations(inner)


def _operations(equation: Any) -> int:
    result = prod(equation.outvars[0].aval.shape)
    if equation.primitive.name == "dot_general":
        (contracted, _), _ = equation.params["dimension_numbers"]
        return 2 * result * prod(equation.invars[0].aval.shape[axis] for axis in contracted)
    if equation.primitive.name == "conv_general_dilated":
        kernel = equation.invars[1].aval.shape
        features = equation.params["dimension_numbers"].rhs_spec[0]
        return 2 * result * prod(kernel) // kernel[features]
    return 0


@cache
def _speed() -> float:
    """Operations a second of a large matrix product on this machine."""
    x = np.ones((1024, 1024), np.float32)
    times = []
    for _ in range(4):
        clock = time.perf_counter()
        x @ x
        times.append(time.perf_counter() - clock)
    return 2 * 1024**3 / min(times)


def text(value: float) -> str:
    """A time as people say it.

    >>> [text(x) for x in (4.2, 75, 4000, 90000)]
    ['4 s', '1.2 min', '1.1 h', '25 h']
    """
    for unit, size in (("h", 3600), ("min", 60)):
        if value >= size:
            return f"{value / size:.2g} {unit}" if value < 100 * size else f"{value / size:.0f} h"
    return f"{value:.0f} s"
