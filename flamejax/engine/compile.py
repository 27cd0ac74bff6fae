"""From a config to compiled functions on devices."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from flamejax import tree
from flamejax.config import Config, Named
from flamejax.engine.devices import AXIS, Layout, lay_out, make_mesh
from flamejax.engine.execution import Plan, choose
from flamejax.engine.rounds import (
    Client,
    RoundInfo,
    Rules,
    Setting,
    State,
    make_evaluate,
    make_round,
    make_shard,
    no_round,
)
from flamejax.evaluate import Sums
from flamejax.federation import TRAIN, Federation
from flamejax.types import Attack, Method, Model, Shard, Tree

# what is split over the devices (by clients), and what each has whole
SETTING = Setting(*[P()] * len(Setting._fields))._replace(client=P(AXIS))
STATE = State(round=P(), server=P(), clients=P(AXIS), mean=P())


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


def build(
    config: Config, method: Method, model: Model, federation: Federation, rounds_per_call: int = 1
) -> Engine:
    """Place data and state on the devices, choose a strategy, and compile."""
    mesh, layout, plan, selected = _arrange(config, federation)
    rules = _rules(config, method, federation, selected)
    init_key, run_key = jax.random.split(jax.random.key(config.seed))
    setting = Setting(
        hyper=_traced(config.method),
        attack=_traced(config.attack),
        aggregator=_traced(config.aggregator),
        key=run_key,
        arrays=federation.arrays,
        counts=np.pad(federation.counts, ((0, 1), (0, 0))).astype(np.int32),
        client=layout.client,
        slot=layout.slot,
        malicious=np.append(federation.malicious, False),
        weight=_weights(rules, federation),
    )
    setting = _place(mesh, setting, SETTING)
    state = _initial_state(rules, model, federation, setting, init_key, mesh)

    one_round = make_round(rules, federation, plan.devices, plan.width)

    def many(state: State, setting: Setting, rounds: Array) -> tuple[State, RoundInfo]:
        def body(i: Array, carry: tuple[State, RoundInfo]) -> tuple[State, RoundInfo]:
            state, log = carry
            state, info = one_round(setting, state)
            return state, jax.tree.map(lambda rows, row: rows.at[i].set(row), log, info)

        return lax.fori_loop(0, rounds, body, (state, tree.stack(no_round(), rounds_per_call)))

    def over_mesh(f: Callable[..., Any], inputs: tuple, outputs: Any) -> Callable[..., Any]:
        return jax.shard_map(f, mesh=mesh, in_specs=inputs, out_specs=outputs, check_vma=False)

    started = time.perf_counter()
    rounds_on_mesh = over_mesh(many, (STATE, SETTING, P()), (STATE, P()))
    scores_on_mesh = over_mesh(
        make_evaluate(method, model, federation, plan.width), (STATE, SETTING), P(AXIS)
    )
    with ThreadPoolExecutor() as pool:  # both compile at once
        lowered = jax.jit(rounds_on_mesh, donate_argnums=0).lower(state, setting, np.int32(0))
        compiling = pool.submit(lowered.compile)
        evaluate_compiled = jax.jit(scores_on_mesh).lower(state, setting).compile()
        run_compiled = compiling.result()
    compile_seconds = time.perf_counter() - started

    def run(state: State, rounds: int) -> tuple[State, RoundInfo]:
        state, log = run_compiled(state, setting, np.int32(rounds))
        return state, jax.tree.map(lambda x: np.asarray(x)[:rounds], log)

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

    return Engine(
        state=state,
        run=run,
        evaluate=evaluate,
        models=models,
        plan=plan,
        selected=selected,
        parameters=tree.size(models(state, 0)[1]),
        bytes_up=tree.nbytes(state.mean),
        bytes_down=tree.nbytes(jax.eval_shape(method.broadcast, state.server)),
        compile_seconds=compile_seconds,
    )


def _arrange(config: Config, federation: Federation) -> tuple[Mesh, Layout, Plan, int]:
    """Which devices, which client where, how many at a time, how many in a round."""
    wanted = config.participation.clients_per_round
    selected = federation.clients if wanted == "all" else wanted
    mesh = make_mesh(config.engine.devices, useful=selected)
    devices = mesh.devices.size
    work = federation.counts[:, TRAIN]
    layout = lay_out(work, devices)
    batch = min(getattr(config.method, "batch", 1), int(work.max()))
    steps = -(-np.append(work, 0)[layout.client] // batch)
    plan = choose(
        config.engine,
        mesh.devices.flat[0].platform,
        steps.reshape(devices, -1),
        cohort=-(-selected // devices),
    )
    return mesh, layout, plan, selected


def _rules(config: Config, method: Method, federation: Federation, selected: int) -> Rules:
    meeting = federation.clients if method.last_message else selected
    malicious = int(federation.malicious.sum())
    return Rules(
        method=method,
        attack=config.attack.build() if malicious else Attack(),
        aggregator=config.aggregator.build(
            messages=meeting, malicious=-(-malicious * meeting // federation.clients)
        ),
        selected=selected,
        on_nonfinite=config.engine.on_nonfinite,
        resum_every=config.engine.resum_every,
    )


def _weights(rules: Rules, federation: Federation) -> np.ndarray:
    """[C + 1] weights of the clients, summing to 1."""
    weights = rules.aggregator.weight(federation.counts[:, TRAIN].astype(float))
    return np.append(weights / weights.sum(), 0.0).astype(jnp.zeros(()).dtype)


def _traced(settings: Named) -> Any:
    return jax.tree.map(lambda v: jnp.asarray(v, float), settings.hyper())


def _initial_state(
    rules: Rules,
    model: Model,
    federation: Federation,
    setting: Setting,
    key: Array,
    mesh: Mesh,
) -> State:
    """Every client in the state of one that was never selected."""

    def initial(setting: Setting, key: Array) -> State:
        first = jnp.zeros((), jnp.int32)
        x, _ = federation.read(setting.arrays, first, first[None])
        server, client = rules.method.init(
            setting.hyper, model.init(key, x), jax.random.fold_in(key, 1)
        )
        shard = make_shard(federation, setting, first)
        mean = _first_mean(rules.method, setting, server, client, shard)
        stored = Client(client, mean if rules.keeps_messages else None)
        return State(first, server, tree.stack(stored, len(setting.client)), mean)

    shardings = State(*(NamedSharding(mesh, spec) for spec in STATE))
    # it runs once, so the time is in compiling it
    quick = {"xla_backend_optimization_level": 0}
    return jax.jit(initial, out_shardings=shardings, compiler_options=quick)(setting, key)


def _row(stacked: Array, slot: int) -> np.ndarray:
    """One client's entry of a stacked leaf, read from the device that holds it."""
    for shard in stacked.addressable_shards:
        first = shard.index[0].start or 0
        if first <= slot < first + len(shard.data):
            return np.asarray(shard.data[slot - first])
    raise IndexError(f"slot {slot} is not on a device of this process")


def _place(mesh: Mesh, values: Tree, specs: Tree) -> Tree:
    """Put every part of a named tuple on the mesh as its spec says."""
    return type(values)(
        *(
            jax.device_put(value, NamedSharding(mesh, spec))
            for value, spec in zip(values, specs, strict=True)
        )
    )


def _first_mean(method: Method, setting: Setting, server: Tree, client: Tree, shard: Shard) -> Tree:
    """The mean message before any client was selected; zeros for methods without memory."""
    if method.last_message:
        return method.last_message(setting.hyper, client, shard)
    message = jax.eval_shape(
        lambda key: method.client(setting.hyper, server, client, shard, key)[1], setting.key
    )
    return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), message)
