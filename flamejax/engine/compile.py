"""From a config to compiled functions on devices."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from flamejax import tree
from flamejax.cache import keep_programs
from flamejax.checkpoints import Checkpoint
from flamejax.config import Config
from flamejax.engine.devices import AXIS
from flamejax.engine.execution import Plan
from flamejax.engine.hold import hold_all, hold_touched, looked_at
from flamejax.engine.measure import Measure, make_measure
from flamejax.engine.memory import Need, budget, check_programs, resident, window
from flamejax.engine.prepare import (
    SETTING,
    STATE,
    Ready,
    place,
    prepare,
    shelf_for,
    take_seats,
)
from flamejax.engine.rounds import (
    Client,
    RoundInfo,
    Rules,
    Setting,
    State,
    make_evaluate,
    make_round,
    make_shard,
)
from flamejax.engine.store import Store
from flamejax.engine.visit import Cohort
from flamejax.engine.windows import BUFFERS, Shelf
from flamejax.errors import InputError
from flamejax.evaluate import Sums
from flamejax.federation import Federation
from flamejax.theory.lagrangian import Measured
from flamejax.types import Method, Model, States, Tree

log = logging.getLogger("flamejax")
COMMON = ("server", "mean", "lost")  # parts of a state that are not of clients


class Facts(NamedTuple):
    """What is known of a run before it starts."""

    plan: Plan
    selected: int  # clients per round
    evaluated: np.ndarray  # [n] clients that evaluations look at, in order
    parameters: int  # of one model
    bytes_up: int  # one message
    bytes_down: int  # one broadcast
    compile_seconds: float
    together: int  # runs in the same program
    need: Need | None = None  # memory of a run alone


class Engine(NamedTuple):
    """A run, compiled. Functions that take a state to `run` consume it."""

    state: State  # before the first round; its clients are None where the host keeps them
    run: Callable[[State, int], tuple[State, RoundInfo]]  # some rounds; a row of info each
    stride: Callable[[int], int]  # rounds done -> how many to run next
    evaluate: Callable[[State], Sums]  # sums [n, ...] of the clients looked at, on the host
    models: Callable[[State, int], tuple[Tree | None, Tree]]  # global, one personalized; NumPy
    states: Callable[[State], States]  # of this process's clients
    resume: Callable[[Checkpoint], State]
    measure: Callable[[State], Measured] | None  # the theory's quantities, where it is recorded
    facts: Facts
    store: Store | None  # the host's, if that keeps the states
    programs: dict[str, Any]  # "rounds" and "evaluation", as JAX compiled them


def build(
    config: Config,
    method: Method,
    model: Model,
    federation: Federation,
    rounds_per_call: int = 1,
    scratch: Path | None = None,
    smoothness: float | None = None,
) -> Engine:
    """Place data and state on the devices, choose a strategy, and compile.

    rounds_per_call: at most; scratch: a folder for states that memory does not hold; smoothness: of
    the clients' losses, where the theory is recorded.
    """
    keep_programs()
    ready = prepare(config, method, model, federation, rounds_per_call, smoothness)
    measure = make_measure(config, ready.rules, model, federation, ready.plan.width)
    shelf = _for_evaluation(config, ready, federation)
    started = time.perf_counter()
    with ThreadPoolExecutor() as pool:  # both compile at once
        compiling = pool.submit(lower_rounds(ready, federation, ready.per_call, measure).compile)
        evaluation = lower_evaluation(ready, model, federation, shelf).compile()
        rounds = compiling.result()
    compile_seconds = time.perf_counter() - started
    need = check_programs(ready.need, [rounds, evaluation])
    store = None if shelf is None else _store(config, ready, shelf, scratch)
    log.info("engine: %s, %s", ready.mesh.devices.flat[0].platform, ready.plan)
    log.info("engine: %s", _where(ready, store))
    log.info(
        "engine: compiled in %.1f s; up to %d round(s) a call; %.1f MB of data and state, %.1f MB "
        "to compute with",
        compile_seconds,
        ready.per_call,
        (need.data + need.states) / 1e6,
        need.temporary / 1e6,
    )

    stride = stride_of(config, ready.per_call)
    if store is None or shelf is None:
        hold = hold_all(ready, rounds, evaluation)
    else:
        hold = hold_touched(ready, rounds, evaluation, shelf, store, stride)

    take_out = models_of(method, federation)

    def models(state: State, client: int) -> tuple[Tree | None, Tree]:
        return take_out(ready.setting, state.server, hold.one(state, client), client)

    def resume(checkpoint: Checkpoint) -> State:
        common = common_part(checkpoint, ready.state)
        placed = place(ready.mesh, common, STATE)
        return placed._replace(clients=hold.restore(checkpoint))

    measured = None
    if measure:
        on_mesh = over(ready.mesh, unmoved(measure), (STATE, SETTING), P())
        program = jax.jit(on_mesh)
        measured = lambda state: jax.tree.map(np.asarray, program(state, ready.setting))  # noqa: E731

    facts = facts_of(ready.rules, ready.plan, ready.state, ready.client, compile_seconds)
    return Engine(
        state=ready.state,
        run=hold.run,
        stride=stride,
        evaluate=hold.evaluate,
        models=models,
        states=hold.states,
        resume=resume,
        measure=measured,
        facts=facts._replace(evaluated=ready.evaluated, need=need),
        store=store,
        programs={"rounds": rounds, "evaluation": evaluation},
    )


def stride_of(config: Config, per_call: int) -> Callable[[int], int]:
    """Rounds done -> how many to run next: at most to the next evaluation, and checkpoint."""
    every = config.checkpoint.every
    stops = [config.eval_every, *([every] if isinstance(every, int) else [])]

    def stride(done: int) -> int:
        ahead = [stop - done % stop for stop in stops]
        return max(0, min(per_call, *ahead, config.rounds - done))

    return stride


def common_trees(state: State) -> dict[str, Tree]:
    """A state for a checkpoint, but for the clients; on the host."""
    return {name: jax.tree.map(np.asarray, getattr(state, name)) for name in COMMON}


def common_part(checkpoint: Checkpoint, like: State) -> State:
    """A state from a checkpoint, but for the clients."""
    found = {name: checkpoint.tree(name, getattr(like, name)) for name in COMMON}
    return State(round=np.int32(checkpoint.round), clients=None, **found)


def models_of(
    method: Method, federation: Federation
) -> Callable[[Setting, Tree, Client, int], tuple[Tree | None, Tree]]:
    """(setting, server, what is kept of a client, its number) -> global and personalized model."""

    @jax.jit
    def personalize(setting: Setting, server: Tree, client: Tree, number: Array) -> Tree:
        assert method.personalize
        shard = make_shard(federation, setting, number)
        return method.personalize(setting.hyper, server, client, shard)

    def models(
        setting: Setting, server: Tree, client: Client, number: int
    ) -> tuple[Tree | None, Tree]:
        server = jax.tree.map(np.asarray, server)
        shared, personal = method.models(server, client.state)
        if method.personalize:
            personal = personalize(setting, server, client.state, np.int32(number))
        return jax.tree.map(np.asarray, (shared, personal))

    return models


def facts_of(
    rules: Rules, plan: Plan, state: State, client: Client, compile_seconds: float
) -> Facts:
    """Of one run, given its state, or shapes of it."""
    method = rules.method
    model, broadcast = jax.eval_shape(
        lambda server, client: (method.models(server, client)[1], method.broadcast(server)),
        state.server,
        client.state,
    )
    return Facts(
        plan=plan,
        selected=rules.selected,
        evaluated=np.arange(rules.clients),
        parameters=tree.size(model),
        bytes_up=tree.nbytes(state.mean),
        bytes_down=tree.nbytes(broadcast),
        compile_seconds=compile_seconds,
        together=1,
    )


def _for_evaluation(config: Config, ready: Ready, federation: Federation) -> Shelf | None:
    """Room on the devices for some of the clients that are looked at, unless all are there."""
    if ready.layout is not None:
        return None
    fit = max(ready.mesh.devices.size, window(config) // max(1, tree.nbytes(ready.client)))
    return shelf_for(min(fit, len(ready.evaluated)), ready.mesh, ready.client, federation)


def _store(config: Config, ready: Ready, shelf: Shelf, scratch: Path | None) -> Store:
    """The host's store, in the memory that windows leave of the budget."""
    windows = BUFFERS * ready.shelf.nbytes + 2 * shelf.nbytes
    given = budget(config)
    if given < windows:
        need = f"'{-(-windows // 1000)}kB'" if windows < 10**6 else f"'{-(-windows // 10**6)}MB'"
        raise InputError(
            f"engine.state_budget = {config.engine.state_budget!r}: the states of a round alone "
            f"take {need}; give as much, or lower participation.clients_per_round"
        )
    own = min(resident(), given // 2)  # what the process takes anyway is part of it
    return Store(ready.client, max(0, given - windows - own), scratch)


def _where(ready: Ready, store: Store | None) -> str:
    if store is None:
        return f"the states of all {ready.rules.clients:,} clients are on the devices"
    fit = min(store.in_memory, ready.rules.clients)
    return (
        "the host keeps the states of clients that were ever selected, up to "
        f"{fit:,} of {ready.rules.clients:,} in memory and the rest on disk"
    )


def lower_rounds(
    ready: Ready, federation: Federation, rounds_per_call: int, measure: Measure | None = None
) -> Any:
    """(state, setting, rounds) -> (state, a row of info for each of at most `rounds_per_call`)."""
    one_round = make_round(
        ready.rules, federation, ready.plan.devices, ready.plan.width, ready.guests
    )
    many = many_rounds(one_round, rounds_per_call, measure)
    state, setting = ready.state, ready.setting
    if ready.layout is None:
        state = state._replace(clients=ready.shelf.stacked())
        setting = take_seats(ready.mesh, setting, ready.shelf.seat(np.zeros(0, np.int32)))
    on_mesh = over(ready.mesh, many, (STATE, SETTING, P()), (STATE, P()))
    return jax.jit(on_mesh, donate_argnums=0).lower(state, setting, np.int32(0))


def many_rounds(
    one_round: Callable[[Setting, State], tuple[State, RoundInfo]],
    most: int,
    measure: Measure | None,
) -> Callable[[State, Setting, Array], tuple[State, RoundInfo]]:
    """measure: what is recorded of the theory after every round, if it is."""

    @partial(jax.jit, inline=True)  # traced once, although it is looked at twice
    def step(setting: Setting, state: State) -> tuple[State, RoundInfo]:
        new, info = one_round(setting, state)
        if measure:
            info = info._replace(theory=measure(setting, state, new))
        return new, info

    def many(state: State, setting: Setting, rounds: Array) -> tuple[State, RoundInfo]:
        def body(i: Array, carry: tuple[State, RoundInfo]) -> tuple[State, RoundInfo]:
            state, rows = carry
            state, info = step(setting, state)
            return state, jax.tree.map(lambda rows, row: rows.at[i].set(row), rows, info)

        one = jax.eval_shape(step, setting, state)[1]
        rows = jax.tree.map(lambda x: jnp.zeros((most, *x.shape), x.dtype), one)
        return lax.fori_loop(0, rounds, body, (state, rows))

    return many


def unmoved(measure: Measure) -> Callable[[State, Setting], Measured]:
    """The theory's quantities of a state before any round."""
    return lambda state, setting: measure(setting, state, state)


def lower_evaluation(
    ready: Ready, model: Model, federation: Federation, shelf: Shelf | None = None
) -> Any:
    """(state, setting, cohort [D * k]) -> sums of the cohort [D * k, ...]."""
    evaluate = gathered(make_evaluate(ready.rules.method, model, federation, ready.plan.width))
    state, devices = ready.state, ready.mesh.devices.size
    if shelf is not None:
        state, rows = state._replace(clients=shelf.stacked()), shelf.slots * devices
    else:
        rows = len(looked_at(ready).ids)
    seats = jax.ShapeDtypeStruct((rows,), np.int32, sharding=NamedSharding(ready.mesh, P(AXIS)))
    on_mesh = over(ready.mesh, evaluate, (STATE, SETTING, P(AXIS)), P())
    return jax.jit(on_mesh).lower(state, ready.setting, Cohort(seats, seats))


def gathered(scores: Callable[[State, Setting, Cohort], Sums]) -> Callable[..., Sums]:
    """The sums of the cohorts of all devices."""
    return lambda *of: lax.all_gather(scores(*of), AXIS, tiled=True)


def over(mesh: Mesh, f: Callable[..., Any], inputs: tuple, outputs: Any) -> Callable[..., Any]:
    return jax.shard_map(f, mesh=mesh, in_specs=inputs, out_specs=outputs, check_vma=False)
