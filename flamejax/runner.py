"""A run from its config to its results."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from flamejax import hosts, loggers, models, registry
from flamejax.config import Config, lay_over, load, make
from flamejax.engine import RoundInfo, State, build
from flamejax.engine.compile import common_trees
from flamejax.engine.pack import build_pack
from flamejax.errors import InputError, RunError
from flamejax.evaluate import Sums
from flamejax.federation import TRAIN, Federation, assemble
from flamejax.given import take_own, values_of
from flamejax.lane import Earlier, Lane, Result, earlier
from flamejax.profiling import traced, write_costs
from flamejax.records import CHECKPOINTS, check_free
from flamejax.report.terminal import Watcher, progress_bar
from flamejax.theory.lagrangian import Measured
from flamejax.theory.smoothness import estimate
from flamejax.types import Dataset, Model, States, Tree

LONGEST_CALL = 8192  # passes through a model


def run(
    config: Config | Mapping[str, Any] | str | Path | None = None,
    *,
    data: Dataset | Mapping[str, Any] | None = None,
    model: Model | Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    quiet: bool = False,
    profile: bool = False,
    resume: bool = False,
    **settings: Any,
) -> Result:
    """Train, evaluate and record.

    config: a Config, nested values, or the path of a TOML file; `settings` are laid over it, as in
    ``run(rounds=20, partition={"name": "qlabel", "q": 2})``. data, model: settings like the others,
    or your own `Dataset` and `Model`. out: a folder for the records; nothing is written without it.
    quiet: no progress bar. profile: also a trace of one round, and what it costs, in `out`/profile.
    resume: go on with the run in `out`, from its newest checkpoint, and with its config.
    """
    own = take_own(data, model, settings)
    folder, before = None if out is None else Path(out), None
    if resume:
        config, before = _resumed(config, settings, folder, own)
    elif not isinstance(config, Config) or settings:
        config = make(lay_over(values_of(config), settings))
    if folder is None and profile:
        raise InputError("profile = True needs out, a folder for the trace")
    if folder is not None and not resume and hosts.rank() == 0:
        check_free(folder)
    loggers.check(config, folder)
    quiet = quiet or hosts.rank() > 0
    with precision(config), _stop_requests() as stop:
        started = time.perf_counter()
        federation = assemble(config, own.get("data"), quiet)[1]
        with progress_bar(config.rounds, quiet) as watch:
            name, model = model_of(config, own.get("model"), federation)
            per_call = rounds_per_call(config, model, federation)
            method = config.method.build(model)
            smoothness = smoothness_of(config, model, federation)
            engine = build(config, method, model, federation, per_call, folder, smoothness)
            measure = engine.measure
            drive = Drive(
                engine.state,
                lambda state, rounds: _listed(engine.run(state, rounds)),
                engine.stride,
                lambda state: [engine.evaluate(state)],
                lambda state, _, client: engine.models(state, client),
                lambda state, _: (common_trees(state), engine.states(state)),
                None if measure is None else lambda state: [measure(state)],
            )
            if before and before.checkpoint:
                drive = drive._replace(state=engine.resume(before.checkpoint))
            if stop:
                raise KeyboardInterrupt
            lane = Lane(config, federation, engine.facts, folder, own, name, before, smoothness)
            traces = lane.folder.path / "profile" if lane.folder and profile else None
            (result,) = _carry_out(drive, [lane], watch, stop, started, traces)
    if traces and folder:
        write_costs(engine, folder / "timings.jsonl", traces)
    if lane.failure:
        raise lane.failure
    return result


def _resumed(
    config: Any, settings: Mapping[str, Any], folder: Path | None, own: Mapping[str, Any]
) -> tuple[Config, Earlier]:
    """The config of the run in a folder, and what is there of it."""
    if folder is None:
        raise InputError("--resume needs --out, the folder of the run that goes on")
    if config is not None or settings:
        raise InputError("--resume takes the config of the run in --out; leave out other settings")
    found = earlier(folder)
    for name in ("data", "model"):
        if (f"# {name}: passed from Python" in found.text) != (name in own):
            needs = "was" if name not in own else "was not"
            raise InputError(f"--resume: the {name} of the run in {folder} {needs} passed to it")
    return make(load(folder / "config.toml")), found


def run_together(
    configs: Sequence[Config],
    outs: Sequence[Path],
    quiet: bool = False,
    data: Dataset | None = None,
    model: Model | None = None,
) -> list[RunError | None]:
    """Runs of the same structure in one program; each leaves what `run` would have left in its
    folder. Where all folders have checkpoints of the same round, they go on from there; otherwise
    they should be empty. Returns why a run failed, or None."""
    own = {name: x for name, x in (("data", data), ("model", model)) if x is not None}
    loggers.check(configs[0], outs[0])
    with precision(configs[0]), _stop_requests() as stop:
        started = time.perf_counter()
        found = list(_assemble_all(configs, data, quiet))
        with progress_bar(configs[0].rounds, quiet) as watch:
            name, network = model_of(configs[0], model, found[0])
            per_call = min(rounds_per_call(configs[0], network, f, len(found)) for f in found)
            method = configs[0].method.build(network)
            smoothness = [
                smoothness_of(config, network, federation)
                for config, federation in zip(configs, found, strict=True)
            ]
            pack = build_pack(configs, method, network, found, per_call, smoothness)
            drive = Drive(
                pack.state,
                pack.run,
                pack.stride,
                pack.evaluate,
                pack.models,
                pack.snapshot,
                pack.measure,
            )
            before = _all_earlier(outs)
            if there := [part.checkpoint for part in before if part and part.checkpoint]:
                drive = drive._replace(state=pack.resume(there))
            if stop:
                raise KeyboardInterrupt
            lanes = [
                Lane(config, federation, facts, out, own, name, there, curvature)
                for config, federation, facts, out, there, curvature in zip(
                    configs, found, pack.facts, outs, before, smoothness, strict=True
                )
            ]
            _carry_out(drive, lanes, watch, stop, started)
    return [lane.failure for lane in lanes]


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


class Drive(NamedTuple):
    """One run or several, compiled: lists have an entry for each."""

    state: State
    run: Callable[[State, int], tuple[State, list[RoundInfo]]]
    stride: Callable[[int], int]
    evaluate: Callable[[State], list[Sums]]
    models: Callable[[State, int, int], tuple[Tree | None, Tree]]  # of a run and a client
    snapshot: Callable[[State, int], tuple[dict[str, Tree], States]]  # of a run
    measure: Callable[[State], list[Measured]] | None  # where the theory is recorded


def _listed(ran: tuple[State, RoundInfo]) -> tuple[State, list[RoundInfo]]:
    return ran[0], [ran[1]]


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


def _assemble_all(
    configs: Sequence[Config], data: Dataset | None, quiet: bool
) -> Iterator[Federation]:
    """The clients of all runs; data that are the same for all are read once."""
    for config in configs:
        found, federation = assemble(config, data, quiet)
        if isinstance(found, Dataset) and config.data.limit == "all":
            data = found
        yield federation


def precision(config: Config) -> Any:
    return jax.enable_x64(True) if config.engine.precision == "float64" else nullcontext()


def _carry_out(
    drive: Drive,
    lanes: list[Lane],
    watch: Watcher,
    stop: list[int],
    started: float,
    traces: Path | None = None,
) -> list[Result]:
    """All rounds of all runs; their results are recorded however it ends."""
    state, status = [drive.state], "finished"
    stopped: KeyboardInterrupt | None = None

    def save() -> bool:
        saved = [lane.save(*drive.snapshot(state[0], run)) for run, lane in enumerate(lanes)]
        return all(saved)

    try:
        _loop(drive, state, lanes, watch, stop, traces, save)
    except KeyboardInterrupt as error:
        status, stopped = "interrupted", error
    seconds = (time.perf_counter() - started) / len(lanes)
    results = [
        lane.close(status, seconds, partial(drive.models, state[0], number))
        for number, lane in enumerate(lanes)
    ]
    if stopped:
        raise stopped
    return results


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
    drive: Drive,
    state: list[State],  # one; here it stays up to date
    lanes: list[Lane],
    watch: Watcher,
    stop: list[int],
    traces: Path | None,
    save: Callable[[], bool],
) -> None:
    config, done = lanes[0].config, lanes[0].history.rounds
    begun, saved = done, time.monotonic()
    if drive.measure and not done:
        for lane, measured in zip(lanes, drive.measure(state[0]), strict=True):
            lane.measured(measured)
    while done < config.rounds and not all(lane.failure for lane in lanes):
        waited = time.monotonic() - saved > (config.checkpoint.seconds or np.inf)
        asked, due = hosts.agree(bool(stop), waited)
        if asked:
            raise KeyboardInterrupt(*[f"round {done}"] * (done > begun and save()))
        if due:
            save()
            saved = time.monotonic()
        rounds = 1 if traces and done < 2 else drive.stride(done)  # a round to warm up, one to see
        watched = traces if done == min(1, config.rounds - 1) else None
        with traced(watched) if watched else nullcontext():
            clock = time.perf_counter()
            state[0], logs = drive.run(state[0], rounds)
            seconds = (time.perf_counter() - clock) / len(lanes)
            if watched:
                drive.evaluate(state[0])
        done += rounds
        timing: dict[str, Any] = {"round": done, "rounds": rounds, "seconds": seconds}
        timing |= {"traced": True} if watched else {}
        for lane, log in zip(lanes, logs, strict=True):
            lane.trained(log, rounds, seconds)
        row = None
        if done % config.eval_every == 0 or done == config.rounds:
            clock = time.perf_counter()
            found = drive.evaluate(state[0])
            timing["evaluate_seconds"] = (time.perf_counter() - clock) / len(lanes)
            for lane, sums in zip(lanes, found, strict=True):
                row = lane.evaluated(sums)
        for lane in lanes:
            lane.timed(timing)
        every = config.checkpoint.every
        if isinstance(every, int) and done // every > (done - rounds) // every:
            save()
        watch(done, row if len(lanes) == 1 else None)


def _all_earlier(outs: Sequence[Path]) -> Sequence[Earlier | None]:
    """What is there of runs, if all of them can go on from the same round; otherwise nothing."""
    if not all((out / CHECKPOINTS).is_dir() for out in outs):
        return [None] * len(outs)
    found = [earlier(out) for out in outs]
    there = {part.checkpoint.round if part.checkpoint else 0 for part in found}
    return found if len(there) == 1 and there != {0} else [None] * len(outs)
