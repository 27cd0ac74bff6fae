"""From a config to a run that is ready to start."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import jax
import numpy as np

from flamejax import models, registry
from flamejax.config import Config
from flamejax.engine import Engine, Facts, build
from flamejax.errors import InputError
from flamejax.federation import TRAIN, Federation, assemble
from flamejax.theory.smoothness import estimate
from flamejax.types import Model

LONGEST_CALL = 8192  # passes through a model


def compiled(
    config: Config, own: Model | None, federation: Federation, folder: Path | None
) -> tuple[str, float | None, Engine]:
    """The name of the model, L where the theory is recorded, and the run ready to start."""
    name, model = model_of(config, own, federation)
    per_call, method = rounds_per_call(config, model, federation), config.method.build(model)
    smoothness = smoothness_of(config, model, federation)
    engine = build(config, method, model, federation, per_call, folder, smoothness)
    return name, smoothness, engine


def outlook(config: Config, quiet: bool = False) -> tuple[Facts, Federation]:
    """What is known of a run before it starts."""
    with precision(config):
        federation = assemble(config, None, quiet)[1]
        return compiled(config, None, federation, None)[2].facts, federation


def precision(config: Config) -> Any:
    return jax.enable_x64(True) if config.engine.precision == "float64" else nullcontext()


def model_of(config: Config, own: Model | None, federation: Federation) -> tuple[str, Model]:
    """The model of a run, and its name."""
    name = "own" if own else models.choose(config.model.name, config.data.name)
    model = own or registry.get("models", name)(
        federation.classes, **config.model.model_dump(exclude={"name"})
    )
    if not federation.classes and model.loss is models.cross_entropy:
        raise InputError(f"model.name = '{name}' needs classes, and the labels are targets")
    return name, model


def smoothness_of(config: Config, model: Model, federation: Federation) -> float | None:
    """L of the clients' losses, where the theory is recorded."""
    if not config.record.theory:
        return None
    given = config.record.smoothness
    return estimate(config, "", model, federation).smoothness if given == "estimate" else given


def rounds_per_call(config: Config, model: Model, federation: Federation, runs: int = 1) -> int:
    """How many rounds of some runs go by without a look at them; `auto` is up to the next
    evaluation.

    On CPU, XLA holds some kilobytes for every pass through a model until a call ends.
    """
    asked = config.engine.rounds_per_call
    if asked != "auto":
        return min(asked, config.rounds)
    batch, epochs = (getattr(config.method, name, 1) for name in ("batch", "epochs"))
    pieces = -(-batch // model.cpu_piece) if model.cpu_piece else 1
    passes = int(np.ceil(federation.counts[:, TRAIN] / batch).sum()) * epochs * pieces
    wanted = config.participation.clients_per_round
    taken = 1 if wanted == "all" else wanted / federation.clients
    taken += config.record.theory * (1 + config.record.prox_steps)
    most = max(1, int(LONGEST_CALL / (passes * taken * runs)))
    return min(most, config.eval_every, config.rounds)
