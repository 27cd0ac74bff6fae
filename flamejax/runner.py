"""A run from its config to its results."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from flamejax import hosts, loggers
from flamejax.callbacks import Callback
from flamejax.config import Config, lay_over, make
from flamejax.engine import RoundInfo, State
from flamejax.engine.compile import common_trees
from flamejax.engine.pack import build_pack
from flamejax.errors import InputError, RunError, WriteError
from flamejax.evaluate import Sums
from flamejax.federation import Federation, assemble
from flamejax.given import take_own, values_of
from flamejax.lane import Lane, Result
from flamejax.locks import held
from flamejax.profiling import traced, write_costs
from flamejax.readying import compiled, model_of, precision, rounds_per_call, smoothness_of
from flamejax.records import check_free
from flamejax.report.terminal import Watcher, progress_bar
from flamejax.resuming import all_earlier, resumed
from flamejax.stopping import stop_requests
from flamejax.theory.lagrangian import Measured
from flamejax.types import Dataset, Model, States, Tree


def run(
    config: Config | Mapping[str, Any] | str | Path | None = None,
    *,
    data: Dataset | Mapping[str, Any] | None = None,
    model: Model | Mapping[str, Any] | None = None,
    out: str | Path | None = None,
    quiet: bool = False,
    profile: bool = False,
    resume: bool = False,
    callbacks: Sequence[Callback] = (),
    **settings: Any,
) -> Result:
    """Train, evaluate and record.

    config: a Config, nested values, or the path of a TOML file; `settings` are laid over it, as in
    ``run(rounds=20, partition={"name": "qlabel", "q": 2})``. data, model: settings like the others,
    or your own `Dataset` and `Model`. out: a folder for the records; nothing is written without it.
    quiet: no progress bar. profile: also a trace of one round, and what it costs, in `out`/profile.
    resume: go on with the run in `out`, from its newest checkpoint, and with its config.
    callbacks: your own code while the run goes on, see `flamejax.Callback`.
    """
    own = take_own(data, model, settings)
    if not resume and (settings or not isinstance(config, Config)):
        config, settings = make(lay_over(values_of(config), settings)), {}
    if out is None and profile:
        raise InputError("profile = True needs out, a folder for the trace")
    folder = None if out is None else Path(out)
    mine = folder if hosts.rank() == 0 else None  # of several processes, one keeps the records
    if mine and not resume:
        check_free(mine)
    with held(mine):
        return _run(config, settings, own, folder, quiet, profile, resume, callbacks)


def _run(
    config: Any,
    settings: Mapping[str, Any],
    own: Mapping[str, Any],
    folder: Path | None,
    quiet: bool,
    profile: bool,
    resume: bool,
    callbacks: Sequence[Callback],
) -> Result:
    before = None
    if resume:
        config, before = resumed(config, settings, folder, own)
    loggers.check(config, folder)
    quiet = quiet or hosts.rank() > 0
    with precision(config), stop_requests() as stop:
        started = time.perf_counter()
        federation = assemble(config, own.get("data"), quiet)[1]
        with progress_bar(config.rounds, quiet) as watch:
            name, smoothness, engine = compiled(config, own.get("model"), federation, folder)
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
            (result,) = _carry_out(drive, [lane], watch, stop, started, traces, callbacks)
    if traces and folder:
        write_costs(engine, folder / "timings.jsonl", traces)
    if lane.failure:
        raise lane.failure
    return result


def run_together(
    configs: Sequence[Config],
    outs: Sequence[Path],
    quiet: bool = False,
    data: Dataset | None = None,
    model: Model | None = None,
    callbacks: Sequence[Callback] = (),
) -> list[RunError | None]:
    """Runs of the same structure in one program; each leaves what `run` would have left in its
    folder. Where all folders have checkpoints of the same round, they go on from there; otherwise
    they should be empty. Returns why a run failed, or None."""
    own = {name: x for name, x in (("data", data), ("model", model)) if x is not None}
    loggers.check(configs[0], outs[0])
    with ExitStack() as stack, precision(configs[0]), stop_requests() as stop:
        for out in outs:
            stack.enter_context(held(out))
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
            before = all_earlier(outs)
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
            _carry_out(drive, lanes, watch, stop, started, callbacks=callbacks)
    return [lane.failure for lane in lanes]


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


def _assemble_all(
    configs: Sequence[Config], data: Dataset | None, quiet: bool
) -> Iterator[Federation]:
    """The clients of all runs; data that are the same for all are read once."""
    for config in configs:
        found, federation = assemble(config, data, quiet)
        if isinstance(found, Dataset) and config.data.limit == "all":
            data = found
        yield federation


def _carry_out(
    drive: Drive,
    lanes: list[Lane],
    watch: Watcher,
    stop: list[int],
    started: float,
    traces: Path | None = None,
    callbacks: Sequence[Callback] = (),
) -> list[Result]:
    """All rounds of all runs; their results are recorded however it ends."""
    state, status = [drive.state], "finished"
    stopped: KeyboardInterrupt | None = None

    def save() -> None:
        for run, lane in enumerate(lanes):
            lane.save(*drive.snapshot(state[0], run))

    try:
        try:
            _loop(drive, state, lanes, watch, stop, traces, save, callbacks)
        except KeyboardInterrupt as error:
            status, stopped = "interrupted", error
        seconds = (time.perf_counter() - started) / len(lanes)
        results = [
            lane.close(status, seconds, partial(drive.models, state[0], number))
            for number, lane in enumerate(lanes)
        ]
    except WriteError as error:
        raise WriteError(f"{error}; {_what_is_kept(lanes)}") from None
    finally:  # nothing is written once the folder is free for others
        for lane in lanes:
            lane.settle()
    if stopped:
        raise stopped
    return results


def _loop(
    drive: Drive,
    state: list[State],  # one; here it stays up to date
    lanes: list[Lane],
    watch: Watcher,
    stop: list[int],
    traces: Path | None,
    save: Callable[[], None],
    callbacks: Sequence[Callback],
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
            if done > begun:
                save()
            raise KeyboardInterrupt(*_place_in(lanes, done))
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
        _tell(callbacks, [lane for lane in lanes if not lane.failure], done)
        row = None
        if done % config.eval_every == 0 or done == config.rounds:
            clock = time.perf_counter()
            found = drive.evaluate(state[0])
            timing["evaluate_seconds"] = (time.perf_counter() - clock) / len(lanes)
            for lane, sums in zip(lanes, found, strict=True):
                row = lane.evaluated(sums)
                if row is not None:
                    for callback in callbacks:
                        callback.on_evaluation(lane.config, row)
        for lane in lanes:
            lane.timed(timing)
        every = config.checkpoint.every
        if isinstance(every, int) and done % every == 0:
            save()
        watch(done, row if len(lanes) == 1 else None)


def _tell(callbacks: Sequence[Callback], lanes: Sequence[Lane], done: int) -> None:
    for callback in callbacks:
        for lane in lanes:
            callback.on_rounds(lane.config, done)


def _saved(lanes: Sequence[Lane]) -> int | None:
    """The round from which all of these runs can go on."""
    there = [lane.saved() for lane in lanes]
    found = [number for number in there if number is not None]
    return min(found) if found and len(found) == len(there) else None


def _place_in(lanes: Sequence[Lane], done: int) -> list[str]:
    """Where runs stop that can go on, in words; otherwise nothing."""
    saved = _saved(lanes)
    behind = "" if saved == done else f", with a checkpoint of round {saved}"
    return [] if saved is None else [f"round {done}{behind}"]


def _what_is_kept(lanes: Sequence[Lane]) -> str:
    """Of runs that cannot be recorded any more."""
    saved = _saved(lanes)
    if saved is None:
        return "there is no checkpoint, so start anew when it can be written"
    how = "the same command" if len(lanes) > 1 else "flamejax run --resume"
    return f"the checkpoint of round {saved} is kept; {how} goes on when it can be written"
