"""A run from its config to its results."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from flamejax import models, registry
from flamejax.config import Config, lay_over, load, make
from flamejax.engine import Engine, RoundInfo, State, build
from flamejax.errors import InputError, RunError
from flamejax.evaluate import figures
from flamejax.federation import TRAIN, Federation, assemble
from flamejax.history import History
from flamejax.profiling import traced_round, write_costs
from flamejax.records import Folder, check_free, environment
from flamejax.report.terminal import Watcher, progress_bar
from flamejax.types import Dataset, Model, Tree

LONGEST_CALL = 8192  # passes through a model


class Result(NamedTuple):
    """What a run found out.

    `metrics` maps "round", "bytes_up", "pm_accuracy", "gm_loss", ... to arrays with an entry per
    evaluated round; `clients` holds per-client figures of the last and the best round; `summary`
    is the content of summary.json. `models(i)` are the global and client i's personalized
    parameters after the last round.
    """

    config: Config
    metrics: dict[str, np.ndarray]
    clients: dict[str, np.ndarray]
    summary: dict[str, Any]
    models: Callable[[int], tuple[Tree | None, Tree]]

    def plot(self, against: str = "rounds") -> Any:
        """Accuracy and loss against "rounds", or "bytes" sent, as a Matplotlib figure."""
        import matplotlib.pyplot as plt

        from flamejax.report.curves import draw

        return draw(plt.figure(figsize=(9, 3.6), layout="constrained"), self, against)


def run(
    config: Config | Mapping[str, Any] | str | Path | None = None,
    *,
    data: Dataset | Mapping[str, Any] | None = None,
    model: Model | Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    quiet: bool = False,
    profile: bool = False,
    **settings: Any,
) -> Result:
    """Train, evaluate and record.

    config: a Config, nested values, or the path of a TOML file; `settings` are laid over it, as in
    ``run(rounds=20, partition={"name": "qlabel", "q": 2})``. data, model: settings like the others,
    or your own `Dataset` and `Model`. out: a folder for the records; nothing is written without it.
    quiet: no progress bar. profile: also a trace of one round, and what it costs, in `out`/profile.
    """
    own = {}
    for name, value, kind in (("data", data, Dataset), ("model", model, Model)):
        if isinstance(value, kind):
            own[name] = value
        elif isinstance(value, Mapping):
            settings[name] = value
        elif value is not None:
            raise InputError(f"{name} should be a {kind.__name__} or settings, not {type(value)}")
    if not isinstance(config, Config) or settings:
        config = make(_values(config, settings))
    folder = None if out is None else Path(out)
    if folder is not None:
        check_free(folder)
    elif profile:
        raise InputError("profile = True needs out, a folder for the trace")
    x64 = jax.enable_x64(True) if config.engine.precision == "float64" else nullcontext()
    started = time.perf_counter()
    with _stop_requests() as stop, x64:
        federation = assemble(config, data if isinstance(data, Dataset) else None, quiet)[1]
        with progress_bar(config.rounds, quiet) as watch:
            return _run(config, own, federation, folder, watch, stop, started, profile)


def _values(config: Any, settings: Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(config, Config):
        config = config.model_dump()
    elif isinstance(config, str | Path):
        config = load(config)
    elif not isinstance(config, Mapping | None):
        raise InputError(f"config should be a path, a mapping or a Config, not {type(config)}")
    return lay_over(config or {}, settings)


def rounds_per_call(config: Config, model: Model, federation: Federation) -> int:
    """How many rounds go by without a look at them; `auto` is up to the next evaluation.

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
    most = max(1, int(LONGEST_CALL / (passes * taken)))
    return min(most, config.eval_every, config.rounds)


def _run(
    config: Config,
    own: Mapping[str, Any],
    federation: Federation,
    out: Path | None,
    watch: Watcher,
    stop: list[int],
    started: float,
    profile: bool,
) -> Result:
    name = "own" if "model" in own else models.choose(config.model.name, config.data.name)
    model = own.get("model") or registry.get("models", name)(
        federation.classes, **config.model.model_dump(exclude={"name"})
    )
    if not federation.classes and model.loss is models.cross_entropy:
        raise InputError(f"model.name = '{name}' needs classes, and the labels are targets")
    per_call = rounds_per_call(config, model, federation)
    engine = build(config, config.method.build(model), model, federation, per_call, out)
    if stop:
        raise KeyboardInterrupt
    folder = None
    if out is not None:
        passed = "".join(f"# {name}: passed from Python, not as named below\n" for name in own)
        folder = Folder(out, passed + config.to_toml())
        folder.write_json("environment.json", environment())

    traces = folder.path / "profile" if folder and profile else None
    history, state, status = History(config, engine.facts), engine.state, "finished"
    failure: BaseException | None = None
    try:
        state = _loop(config, engine, federation, history, folder, watch, stop, traces)
    except (KeyboardInterrupt, RunError) as error:
        failure = error
        status = "interrupted" if isinstance(error, KeyboardInterrupt) else "diverged"
    result = Result(
        config=config,
        metrics=history.columns(),
        clients=history.client_arrays(federation, engine.facts.evaluated),
        summary={
            "status": status,
            "data": "own" if "data" in own else config.data.name,
            "model": name,
            **history.summary(engine.facts, federation, time.perf_counter() - started),
        },
        models=lambda client: engine.models(state, client),
    )
    if folder is not None:
        _finish(folder, result)
        if traces:
            write_costs(engine, folder.path / "timings.jsonl", traces)
    if failure is not None:
        raise failure
    return result


@contextmanager
def _stop_requests() -> Iterator[list[int]]:
    """Ctrl-C and termination requests, gathered so that a run ends between two calls.

    An exception from a signal handler can get lost in JAX's callbacks; a note cannot. The second
    request interrupts at once.
    """
    asked: list[int] = []

    def note(number: int, _: Any) -> None:
        if asked:
            raise KeyboardInterrupt
        asked.append(number)

    signals = [signal.SIGINT, signal.SIGTERM]
    if threading.current_thread() is not threading.main_thread():
        signals = []  # only the main thread may handle signals
    heard = [s for s in signals if signal.getsignal(s) not in (signal.SIG_IGN, None)]
    before = [(s, signal.signal(s, note)) for s in heard]
    try:
        yield asked
    finally:
        for number, handler in before:
            signal.signal(number, handler)
    if asked:  # too late to stop this run: it is for whatever comes next
        signal.raise_signal(asked[0])


def _loop(
    config: Config,
    engine: Engine,
    federation: Federation,
    history: History,
    folder: Folder | None,
    watch: Watcher,
    stop: list[int],
    traces: Path | None,
) -> State:
    state, counts = engine.state, federation.counts[engine.facts.evaluated]
    while history.rounds < config.rounds:
        if stop:
            raise KeyboardInterrupt
        rounds = engine.stride(history.rounds)
        if traces and history.rounds < 2:  # a round to warm up, and one to look at
            rounds = 1
        traced = traces if history.rounds == min(1, config.rounds - 1) else None
        if traced:
            state, log, seconds = traced_round(engine, state, traced)
        else:
            clock = time.perf_counter()
            state, log = engine.run(state, rounds)
            seconds = time.perf_counter() - clock
        history.trained(log, rounds, seconds)
        if config.engine.on_nonfinite == "stop" and log.nonfinite.any():
            raise _not_finite(log, history.rounds - rounds + 1, federation.clients)
        with np.errstate(invalid="ignore"):  # a round may have selected no benign client
            loss = log.loss / log.samples
        row, timing = None, {"round": history.rounds, "rounds": rounds, "seconds": seconds}
        if traced:
            timing["traced"] = True
        lost = ~np.isfinite(log.loss) | (
            log.nonfinite == engine.facts.selected
        )  # nothing finite came
        if lost.any():
            bad = history.rounds - rounds + 1 + int(np.argmax(lost))
            raise _diverged(config, f"the training loss is not finite in round {bad}")
        if history.rounds % config.eval_every == 0 or history.rounds == config.rounds:
            clock = time.perf_counter()
            sums = engine.evaluate(state)
            timing["evaluate_seconds"] = time.perf_counter() - clock
            found = figures(sums, counts, config.selection.on)
            if not np.isfinite(found.test.loss["pm"]).any():
                raise _diverged(config, f"test losses are not finite after round {history.rounds}")
            row = history.evaluated(float(loss[-1]), found)
            if folder is not None:
                folder.append("metrics.jsonl", row)
        if folder is not None:
            folder.append("timings.jsonl", timing)
        watch(history.rounds, row)
    return state


def _not_finite(log: RoundInfo, first: int, clients: int) -> RunError:
    """The first round with numbers that are not finite, and whose they are."""
    row = int(np.argmax(log.nonfinite > 0))
    who = ", ".join(str(client) for client in log.culprits[row] if client < clients)
    more = ", ..." if log.nonfinite[row] > len(log.culprits[row]) else ""
    return RunError(
        f"round {first + row}: numbers that are not finite from client(s) {who}{more}; "
        "engine.on_nonfinite = 'drop' would go on without them"
    )


def _diverged(config: Config, what: str) -> RunError:
    rate = getattr(config.method, "lr", None)
    return RunError(f"diverged: {what}; try a smaller method.lr (now {rate})")


def _finish(folder: Folder, result: Result) -> None:
    from flamejax.report.curves import png

    folder.write_arrays("clients.npz", result.clients)
    if len(result.metrics["round"]):
        folder.write("curves.png", png(result))
    folder.write_json("summary.json", result.summary)
