"""From a config to compiled functions on devices."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import Array, lax
from jax.sharding import PartitionSpec as P

from flamejax import tree
from flamejax.cache import keep_programs
from flamejax.config import Config
from flamejax.engine.devices import AXIS
from flamejax.engine.execution import Plan
from flamejax.engine.prepare import SETTING, STATE, Ready, prepare
from flamejax.engine.rounds import (
    RoundInfo,
    Setting,
    State,
    make_evaluate,
    make_round,
    make_shard,
    no_round,
)
from flamejax.evaluate import Sums
from flamejax.federation import Federation
from flamejax.types import Method, Model, Tree

log = logging.getLogger("flamejax")


class Engine(NamedTuple):
    """A run, compiled. Functions that take a state to `run` consume it."""

    state: State  # before the first round
    run: Callable[[State, int], tuple[State, RoundInfo]]  # some rounds; a row of info each
    evaluate: Callable[[State], Sums]  # every benign client's sums [C, ...], on the host
    models: Callable[[State, int], tuple[Tree | None, Tree]]  # global, one personalized; NumPy
    plan: Plan
    selected: int  # clients per round
    parameters: int  # of one model
    bytes_up: int  # one message
    bytes_down: int  # one broadcast
    compile_seconds: float
    programs: dict[str, Any]  # "rounds" and "evaluation", as JAX compiled them


def build(
    config: Config, method: Method, model: Model, federation: Federation, rounds_per_call: int = 1
) -> Engine:
    """Place data and state on the devices, choose a strategy, and compile."""
    keep_programs()
    ready = prepare(config, method, model, federation)
    state, setting, layout = ready.state, ready.setting, ready.layout
    started = time.perf_counter()
    with ThreadPoolExecutor() as pool:  # both compile at once
        compiling = pool.submit(lower_rounds(ready, federation, rounds_per_call).compile)
        evaluate_compiled = lower_evaluation(ready, model, federation).compile()
        run_compiled = compiling.result()
    compile_seconds = time.perf_counter() - started
    memory = run_compiled.memory_analysis()
    platform = ready.mesh.devices.flat[0].platform
    log.info("engine: %s, %s", platform, ready.plan)
    log.info(
        "engine: compiled in %.1f s; up to %d round(s) a call; %.1f MB of temporary memory, "
        "%.1f MB of data and state on each device",
        compile_seconds,
        rounds_per_call,
        memory.temp_size_in_bytes / 1e6,
        memory.argument_size_in_bytes / 1e6,
    )

    def run(state: State, rounds: int) -> tuple[State, RoundInfo]:
        state, found = run_compiled(state, setting, np.int32(rounds))
        return state, jax.tree.map(lambda x: np.asarray(x)[:rounds], found)

    def evaluate(state: State) -> Sums:
        sums = evaluate_compiled(state, setting)
        return jax.tree.map(lambda x: np.asarray(x)[layout.slot[:-1]], sums)

    @jax.jit
    def personalize(setting: Setting, server: Tree, client: Tree, number: Array) -> Tree:
        assert method.personalize
        shard = make_shard(federation, setting, number)
        return method.personalize(setting.hyper, server, client, shard)

    def models(state: State, client: int) -> tuple[Tree | None, Tree]:
        one = jax.tree.map(lambda x: _row(x, layout.slot[client]), state.clients.state)
        server = jax.tree.map(np.asarray, state.server)
        shared, personal = method.models(server, one)
        if method.personalize:
            personal = personalize(setting, server, one, np.int32(client))
        return jax.tree.map(np.asarray, (shared, personal))

    sizes = jax.eval_shape(
        lambda server, clients: (
            method.models(server, jax.tree.map(lambda x: x[0], clients))[1],
            method.broadcast(server),
        ),
        state.server,
        state.clients.state,
    )
    return Engine(
        state=state,
        run=run,
        evaluate=evaluate,
        models=models,
        plan=ready.plan,
        selected=ready.rules.selected,
        parameters=tree.size(sizes[0]),
        bytes_up=tree.nbytes(state.mean),
        bytes_down=tree.nbytes(sizes[1]),
        compile_seconds=compile_seconds,
        programs={"rounds": run_compiled, "evaluation": evaluate_compiled},
    )


def lower_rounds(ready: Ready, federation: Federation, rounds_per_call: int) -> Any:
    """(state, setting, rounds) -> (state, a row of info for each of at most `rounds_per_call`)."""
    one_round = make_round(ready.rules, federation, ready.plan.devices, ready.plan.width)

    def many(state: State, setting: Setting, rounds: Array) -> tuple[State, RoundInfo]:
        def body(i: Array, carry: tuple[State, RoundInfo]) -> tuple[State, RoundInfo]:
            state, rows = carry
            state, info = one_round(setting, state)
            return state, jax.tree.map(lambda rows, row: rows.at[i].set(row), rows, info)

        return lax.fori_loop(0, rounds, body, (state, tree.stack(no_round(), rounds_per_call)))

    on_mesh = _over(ready, many, (STATE, SETTING, P()), (STATE, P()))
    return jax.jit(on_mesh, donate_argnums=0).lower(ready.state, ready.setting, np.int32(0))


def lower_evaluation(ready: Ready, model: Model, federation: Federation) -> Any:
    """(state, setting) -> sums of every slot."""
    scores = make_evaluate(ready.rules.method, model, federation, ready.plan.width)
    on_mesh = _over(ready, scores, (STATE, SETTING), P(AXIS))
    return jax.jit(on_mesh).lower(ready.state, ready.setting)


def _over(ready: Ready, f: Callable[..., Any], inputs: tuple, outputs: Any) -> Callable[..., Any]:
    return jax.shard_map(f, mesh=ready.mesh, in_specs=inputs, out_specs=outputs, check_vma=False)


def _row(stacked: Array, slot: int) -> np.ndarray:
    """One client's entry of a stacked leaf, read from the device that holds it."""
    for shard in stacked.addressable_shards:
        first = shard.index[0].start or 0
        if first <= slot < first + len(shard.data):
            return np.asarray(shard.data[slot - first])
    raise IndexError(f"slot {slot} is not on a device of this process")
