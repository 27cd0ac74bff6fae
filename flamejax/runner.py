"""A run from its config to its results."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from flamejax import datasets, registry
from flamejax.config import Config, load, make, merge
from flamejax.engine import Engine, State, build
from flamejax.errors import InputError, RunError
from flamejax.evaluate import Evaluation, figures, finite, summarize
from flamejax.federation import Federation, federate
from flamejax.records import Folder, check_free, environment
from flamejax.types import Dataset, Model, Tree

Watcher = Callable[[int, Mapping[str, Any] | None], None]  # rounds done, figures if evaluated


class Result(NamedTuple):
    """What a run found out.

    `metrics` maps "round", "train_loss", "pm_accuracy", "gm_loss", ... to arrays with an entry per
    evaluated round; `clients` holds per-client figures of the last and the best round; `summary`
    is the content of summary.json. `models(i)` are the global and client i's personalized
    parameters after the last round.
    """

    config: Config
    metrics: dict[str, np.ndarray]
    clients: dict[str, np.ndarray]
    summary: dict[str, Any]
    models: Callable[[int], tuple[Tree | None, Tree]]

    def plot(self) -> Any:
        """Accuracy and loss against rounds, as a Matplotlib figure."""
        import matplotlib.pyplot as plt

        from flamejax.report.curves import draw

        return draw(plt.figure(figsize=(9, 3.6), layout="constrained"), self)


def run(
    config: Config | Mapping[str, Any] | str | Path | None = None,
    *,
    data: Dataset | None = None,
    model: Model | None = None,
    out: str | Path | None = None,
    watch: Watcher | None = None,
    **settings: Any,
) -> Result:
    """Train, evaluate and record.

    config: a Config, nested values, or the path of a TOML file; `settings` are laid over it, as in
    ``run(rounds=20, partition={"name": "qlabel", "q": 2})``. data, model: your own instead of named
    ones. out: a folder for the records; nothing is written without it.
    """
    if not isinstance(config, Config) or settings:
        config = make(_values(config, settings))
    folder = None if out is None else Path(out)
    if folder is not None:
        check_free(folder)
    with jax.enable_x64(True) if config.engine.precision == "float64" else nullcontext():
        return _run(config, data, model, folder, watch or (lambda rounds, row: None))


def _values(config: Any, settings: Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(config, Config):
        config = config.model_dump()
    elif isinstance(config, str | Path):
        config = load(config)
    elif not isinstance(config, Mapping | None):
        raise InputError(f"config should be a path, a mapping or a Config, not {type(config)}")
    return merge(dict(config or {}), settings)


class _Progress:
    """What has been measured so far."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.rows: list[dict[str, Any]] = []
        self.last: Evaluation | None = None
        self.best: tuple[int, Evaluation] | None = None
        self.rounds = 0
        self.steps = self.executed = 0
        self.round_seconds: list[float] = []

    def add(self, train_loss: float, evaluation: Evaluation) -> dict[str, Any]:
        chosen = {k: finite(v.mean()) for k, v in evaluation.selection.accuracy.items()}
        row = {
            "round": self.rounds,
            "train_loss": finite(train_loss),
            **summarize(evaluation.test),
            "selection": {"on": self.config.selection.on, "accuracy": chosen},
        }
        self.rows.append(row)
        self.last = evaluation
        if self.best is None or _merit(evaluation) > _merit(self.best[1]):
            self.best = (self.rounds, evaluation)
        return row


def _merit(evaluation: Evaluation) -> float:
    """What the best round is best at: mean hybrid accuracy on the selection split."""
    models = evaluation.selection.accuracy
    value = models.get("hm", models["pm"]).mean()
    if np.isnan(value):  # regression: no accuracy, so the lower loss
        losses = evaluation.selection.loss
        value = -losses.get("hm", losses["pm"]).mean()
    return float(value)


def _run(
    config: Config, data: Dataset | None, model: Model | None, out: Path | None, watch: Watcher
) -> Result:
    started = time.perf_counter()
    rng = np.random.default_rng(config.seed)
    data = datasets.load(config.data, rng) if data is None else datasets.check(data)
    federation = federate(config, data, rng)
    model = registry.get("models", config.model.name)(data.classes) if model is None else model
    asked = config.engine.rounds_per_call
    per_call = min(config.eval_every if asked == "auto" else asked, config.rounds)
    engine = build(config, config.method.build(model), model, federation, per_call)
    folder = None
    if out is not None:
        folder = Folder(out, config.to_toml())
        folder.write_json("environment.json", environment())

    progress, state, status = _Progress(config), engine.state, "finished"
    failure: BaseException | None = None
    try:
        state = _loop(config, engine, federation, progress, folder, watch, per_call)
    except (KeyboardInterrupt, RunError) as error:
        failure = error
        status = "interrupted" if isinstance(error, KeyboardInterrupt) else "diverged"
    result = Result(
        config=config,
        metrics=_columns(progress.rows),
        clients=_client_arrays(progress, federation),
        summary={
            "status": status,
            **_summary(engine, federation, progress, time.perf_counter() - started),
        },
        models=lambda client: engine.models(state, client),
    )
    if folder is not None:
        _finish(folder, result)
    if failure is not None:
        raise failure
    return result


def _loop(
    config: Config,
    engine: Engine,
    federation: Federation,
    progress: _Progress,
    folder: Folder | None,
    watch: Watcher,
    per_call: int,
) -> State:
    state = engine.state
    while progress.rounds < config.rounds:
        to_evaluation = config.eval_every - progress.rounds % config.eval_every
        rounds = min(per_call, to_evaluation, config.rounds - progress.rounds)
        clock = time.perf_counter()
        state, log = engine.run(state, rounds)
        seconds = time.perf_counter() - clock
        progress.rounds += rounds
        progress.round_seconds.append(seconds / rounds)
        progress.steps += int(log.steps.sum(dtype=np.int64))
        progress.executed += int(log.executed.sum(dtype=np.int64))
        loss = log.loss / log.samples
        row, timing = None, {"round": progress.rounds, "rounds": rounds, "seconds": seconds}
        if not np.isfinite(loss).all():
            bad = progress.rounds - rounds + 1 + int(np.argmin(np.isfinite(loss)))
            raise RunError(
                f"diverged: the training loss is not finite in round {bad}; try a smaller "
                f"method.lr (now {getattr(config.method, 'lr', '?')})"
            )
        if progress.rounds % config.eval_every == 0 or progress.rounds == config.rounds:
            clock = time.perf_counter()
            sums = engine.evaluate(state)
            timing["evaluate_seconds"] = time.perf_counter() - clock
            row = progress.add(
                float(loss[-1]), figures(sums, federation.counts, config.selection.on)
            )
            if folder is not None:
                folder.append("metrics.jsonl", row)
        if folder is not None:
            folder.append("timings.jsonl", timing)
        watch(progress.rounds, row)
    return state


def _summary(
    engine: Engine, federation: Federation, progress: _Progress, seconds: float
) -> dict[str, Any]:
    rows = {row["round"]: row for row in progress.rows}
    best = progress.best[0] if progress.best else None
    models = ("pm", "gm", "hm")
    return {
        "rounds": progress.rounds,
        "seconds": seconds,
        "compile_seconds": engine.compile_seconds,
        "round_seconds": float(np.median(progress.round_seconds)) if progress.rounds else None,
        "clients": federation.clients,
        "clients_per_round": engine.selected,
        "parameters": engine.parameters,
        "padding_overhead": progress.executed / progress.steps if progress.steps else None,
        "bytes_up": progress.rounds * engine.selected * engine.bytes_up,
        "bytes_down": progress.rounds * engine.selected * engine.bytes_down,
        "execution": engine.plan._asdict(),
        "selection": progress.config.selection.on,
        "last": {k: progress.rows[-1][k] for k in ("round", *models, "train_loss")}
        if progress.rows
        else None,
        "best": {k: rows[best][k] for k in ("round", *models, "train_loss")}
        | {"chosen_on": progress.config.selection.on}
        if best is not None
        else None,
        "benign_clients": federation.clients,
    }


def _columns(rows: list[dict[str, Any]]) -> dict[str, np.ndarray]:
    """Rows of metrics as arrays; figures that do not exist are NaN."""
    columns = {
        "round": np.array([row["round"] for row in rows], int),
        "train_loss": np.array([row["train_loss"] for row in rows], float),
    }
    for name in ("pm", "gm", "hm"):
        for key in ("accuracy", "accuracy_var", "loss", "loss_var", "worst10", "best10"):
            values = [(row[name] or {}).get(key) for row in rows]
            columns[f"{name}_{key}"] = np.array(values, float)
    return columns


def _client_arrays(progress: _Progress, federation: Federation) -> dict[str, np.ndarray]:
    names = ("train_samples", "validation_samples", "test_samples")
    arrays = dict(zip(names, federation.counts.T, strict=True))
    found = {"last": progress.last, "best": progress.best and progress.best[1]}
    for when, evaluation in found.items():
        if evaluation is None:
            continue
        for model in evaluation.test.accuracy:
            arrays[f"{when}_{model}_accuracy"] = evaluation.test.accuracy[model]
            arrays[f"{when}_{model}_loss"] = evaluation.test.loss[model]
        arrays[f"{when}_hm_is_global"] = evaluation.picks_global
    return arrays


def _finish(folder: Folder, result: Result) -> None:
    from flamejax.report.curves import png

    folder.write_arrays("clients.npz", result.clients)
    if len(result.metrics["round"]):
        folder.write("curves.png", png(result))
    folder.write_json("summary.json", result.summary)
