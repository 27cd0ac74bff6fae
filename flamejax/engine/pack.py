"""Several runs in one program: other seeds, other values of traced settings.

Their states and settings are stacked along an axis of runs. Every run is computed as if it were
alone: small ones side by side, others one after another, which on a CPU is faster.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from flamejax.cache import keep_programs
from flamejax.checkpoints import Checkpoint
from flamejax.config import Config
from flamejax.engine.cohort import most_each
from flamejax.engine.compile import (
    Facts,
    common_part,
    common_trees,
    facts_of,
    gathered,
    many_rounds,
    models_of,
    over,
    stride_of,
    unmoved,
)
from flamejax.engine.devices import AXIS, Layout, lay_out
from flamejax.engine.execution import beside
from flamejax.engine.hold import cohort_in, fill, in_order, states_in
from flamejax.engine.measure import Measure, make_measure
from flamejax.engine.prepare import (
    QUICKLY,
    SETTING,
    STATE,
    Arranged,
    arrange,
    batch_of,
    first_state,
    full_shelf,
    place,
    put,
    settings_of,
)
from flamejax.engine.rounds import RoundInfo, Setting, State, make_evaluate, make_round
from flamejax.engine.runs import flat, grouped, of_all_runs, stack
from flamejax.engine.visit import Cohort
from flamejax.engine.windows import shards
from flamejax.errors import InputError
from flamejax.evaluate import Sums
from flamejax.federation import TRAIN, Federation, evaluated_clients
from flamejax.theory.lagrangian import Measured
from flamejax.types import Method, Model, States, Tree

log = logging.getLogger("flamejax")

# as for one run, behind an axis of runs
STATES = STATE._replace(clients=P(None, AXIS))
SETTINGS = SETTING._replace(client=P(None, AXIS))


class Pack(NamedTuple):
    """Runs, compiled together. Lists have an entry for each of them."""

    state: State  # stacked [R, ...]
    run: Callable[[State, int], tuple[State, list[RoundInfo]]]
    stride: Callable[[int], int]
    evaluate: Callable[[State], list[Sums]]
    models: Callable[[State, int, int], tuple[Tree | None, Tree]]  # of a run and a client
    snapshot: Callable[[State, int], tuple[dict[str, Tree], States]]  # of a run
    resume: Callable[[Sequence[Checkpoint]], State]
    measure: Callable[[State], list[Measured]] | None  # where the theory is recorded
    facts: list[Facts]


def build_pack(
    configs: Sequence[Config],
    method: Method,
    model: Model,
    federations: Sequence[Federation],
    rounds_per_call: int,
    smoothness: Sequence[float | None],
) -> Pack:
    """Compile runs that differ only in seeds and in traced settings.

    smoothness: of the clients' losses in each, where the theory is recorded.
    """
    keep_programs()
    # sizes that bound those of all runs; what each has is traced
    bound = federations[0]._replace(counts=np.maximum.reduce([f.counts for f in federations]))
    plan = arrange(configs[0], method, model, bound, rounds_per_call)
    if not plan.dense:
        raise InputError("clients' states are too large for several runs at once; use --pack 1")
    devices = plan.plan.devices
    layouts = [lay_out(f.counts[:, TRAIN], devices, plan.guests) for f in federations]
    told = [
        settings_of(config, plan.rules, federation, layout, curvature)
        for config, federation, layout, curvature in zip(
            configs, federations, layouts, smoothness, strict=True
        )
    ]
    settings, axes = stack([setting for _, setting in told])
    settings = place(plan.mesh, settings, SETTINGS)
    slots = len(layouts[0].client)
    state, client = _start(plan, settings, axes, jnp.stack([key for key, _ in told]), slots)
    evaluated = [evaluated_clients(*pair) for pair in zip(configs, federations, strict=True)]
    seats = _cohorts(layouts, evaluated, plan)
    cohorts = put(plan.mesh, seats, P(None, AXIS))

    runs, clients, batch = len(configs), plan.rules.clients, batch_of(configs[0], bound)
    steps = np.stack([np.sort(-(-f.counts[:, TRAIN] // batch))[::-1] for f in federations])
    platform, each = plan.mesh.devices.flat[0].platform, most_each(plan.rules.selected, devices)
    group = beside(plan.plan, platform, plan.step, each, steps)
    measure = make_measure(configs[0], plan.rules, model, bound, plan.plan.width)
    started = time.perf_counter()
    with ThreadPoolExecutor() as pool:  # both compile at once
        lowered = _lower_rounds(plan, bound, state, settings, axes, group, measure)
        compiling = pool.submit(lowered.compile)
        scores = make_evaluate(method, model, bound, plan.plan.width)
        evaluation = _lower_evaluation(
            plan, scores, state, settings, axes, cohorts, group
        ).compile()
        rounds = compiling.result()
    compile_seconds = time.perf_counter() - started
    log.info("engine: %s, %s", platform, plan.plan)
    log.info(
        "engine: %d runs in one program, %s, compiled in %.1f s",
        runs,
        "one after another" if group == 1 else f"{group} side by side",
        compile_seconds,
    )

    def apart(found: Tree) -> list[Tree]:
        """What was found of each run, on the host."""
        found = jax.tree.map(np.asarray, found)
        return [jax.tree.map(lambda x: x[r], found) for r in range(runs)]  # noqa: B023

    def run(state: State, number: int) -> tuple[State, list[RoundInfo]]:
        state, found = rounds(state, settings, np.int32(number))
        return state, [jax.tree.map(lambda x: x[:number], info) for info in apart(found)]

    def evaluate(state: State) -> list[Sums]:
        sums = apart(evaluation(state, settings, cohorts))
        return [in_order(s, ids, clients) for s, ids in zip(sums, seats.ids, strict=True)]

    take_measure = None
    if measure:
        of_all = of_all_runs(unmoved(measure), (0, axes), state, group)
        program = jax.jit(over(plan.mesh, of_all, (STATES, SETTINGS), P()))
        take_measure = lambda state: apart(program(state, settings))  # noqa: E731

    take_out = models_of(method, bound)

    def models(state: State, run: int, client: int) -> tuple[Tree | None, Tree]:
        slot = layouts[run].slot[client]
        kept = jax.tree.map(lambda x: _row(x, run, slot), state.clients)
        server = jax.tree.map(lambda x: np.asarray(x)[run], state.server)
        return take_out(told[run][1], server, kept, client)

    shelves = [
        full_shelf(plan, layout, federation.counts[:, TRAIN])
        for layout, federation in zip(layouts, federations, strict=True)
    ]

    def snapshot(state: State, run: int) -> tuple[dict[str, Tree], States]:
        common = jax.tree.map(lambda x: np.asarray(x)[run], state._replace(clients=None))
        parts = [jax.tree.map(lambda x: x[run], part) for part in shards(state.clients, axis=1)]
        return common_trees(common), states_in(shelves[run], layouts[run], parts)

    def resume(found: Sequence[Checkpoint]) -> State:
        like = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), state)
        common = [common_part(checkpoint, like) for checkpoint in found]
        rooms = [shelf.room() for shelf in shelves]
        for of in zip(rooms, found, shelves, layouts, strict=True):
            fill(*of)
        together = jax.tree.map(lambda *x: np.stack(x), *common)
        clients = shelves[0].place(jax.tree.map(lambda *x: np.stack(x), *rooms), axis=1)
        return place(plan.mesh, together, STATES)._replace(clients=clients)

    first = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), (state, client))
    facts = facts_of(plan.rules, plan.plan, first[0], first[1], compile_seconds)
    facts = facts._replace(together=runs)
    return Pack(
        state,
        run,
        stride_of(configs[0], plan.per_call),
        evaluate,
        models,
        snapshot,
        resume,
        take_measure,
        [facts._replace(evaluated=looked_at) for looked_at in evaluated],
    )


def _start(
    plan: Arranged, settings: Setting, axes: Setting, keys: Array, slots: int
) -> tuple[State, Tree]:
    """The states of all runs before the first round, and of a client in each."""
    shardings = jax.tree.map(lambda spec: NamedSharding(plan.mesh, spec), STATES)
    start = jax.vmap(partial(first_state, plan, slots=slots), in_axes=(axes, 0))
    whole = NamedSharding(plan.mesh, P())
    return jax.jit(start, out_shardings=(shardings, whole), compiler_options=QUICKLY)(
        settings, keys
    )


def _cohorts(layouts: Sequence[Layout], evaluated: Sequence[np.ndarray], plan: Arranged) -> Cohort:
    """The clients that evaluations look at, [R, D * k]: equally many in every run."""
    clients, devices = plan.rules.clients, plan.plan.devices
    found = [cohort_in(*of, clients, devices) for of in zip(layouts, evaluated, strict=True)]
    most = max(len(cohort.ids) for cohort in found) // devices

    def level(x: np.ndarray, fill: int) -> np.ndarray:
        rows = x.reshape(devices, -1)
        pad = ((0, 0), (0, most - rows.shape[1]))
        return np.pad(rows, pad, constant_values=fill).reshape(-1)

    return Cohort(
        rows=np.stack([level(cohort.rows, 0) for cohort in found]),
        ids=np.stack([level(cohort.ids, clients) for cohort in found]),
    )


def _lower_rounds(
    plan: Arranged,
    bound: Federation,
    state: State,
    settings: Setting,
    axes: Setting,
    group: int,
    measure: Measure | None,
) -> Any:
    """(states, settings, rounds) -> (states, info [R, rounds])."""
    one_round = make_round(plan.rules, bound, plan.plan.devices, plan.plan.width, plan.guests)
    many = many_rounds(one_round, plan.per_call, measure)
    groups, of_some = grouped(many, (0, axes, None), state, group)

    def all_runs(states: State, settings: Setting, rounds: Array) -> tuple[State, RoundInfo]:
        def some(states: State, number: Array) -> tuple[State, RoundInfo]:
            new, info = of_some(number, states, settings, rounds)
            return jax.tree.map(
                lambda x, y: lax.dynamic_update_slice_in_dim(x, y, number * group, 0), states, new
            ), info

        states, info = lax.scan(some, states, groups)
        return states, flat(info)

    on_mesh = over(plan.mesh, all_runs, (STATES, SETTINGS, P()), (STATES, P()))
    return jax.jit(on_mesh, donate_argnums=0).lower(state, settings, np.int32(0))


def _lower_evaluation(
    plan: Arranged,
    scores: Callable[[State, Setting, Cohort], Sums],
    state: State,
    settings: Setting,
    axes: Setting,
    cohorts: Cohort,
    group: int,
) -> Any:
    """(states, settings, cohorts [R, D * k]) -> sums [R, D * k, ...]."""
    of_all = of_all_runs(gathered(scores), (0, axes, 0), state, group)
    on_mesh = over(plan.mesh, of_all, (STATES, SETTINGS, P(None, AXIS)), P())
    return jax.jit(on_mesh).lower(state, settings, cohorts)


def _row(stacked: Array, run: int, slot: int) -> np.ndarray:
    """A client's entry of a leaf [R, slots, ...], read from the device that holds it."""
    for shard in stacked.addressable_shards:
        first = shard.index[1].start or 0
        if first <= slot < first + shard.data.shape[1]:
            return np.asarray(shard.data)[run, slot - first]
    raise IndexError(f"slot {slot} is not on a device of this process")
