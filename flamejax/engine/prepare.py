"""From a config to what a round starts from: devices, rules, data and state in their places."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from flamejax import tree
from flamejax.config import Config, Named
from flamejax.engine.cohort import guest_rows, most_each
from flamejax.engine.devices import AXIS, Layout, lay_out, make_mesh
from flamejax.engine.execution import Plan, choose
from flamejax.engine.rounds import Client, Rules, Setting, State, make_shard
from flamejax.federation import TRAIN, Federation
from flamejax.types import Attack, Method, Model, Shard, Tree

# what is split over the devices (by clients), and what each has whole
SETTING = Setting(*[P()] * len(Setting._fields))._replace(client=P(AXIS))
STATE = State(round=P(), server=P(), clients=P(AXIS), mean=P())


class Ready(NamedTuple):
    """All that a round needs."""

    mesh: Mesh
    layout: Layout
    plan: Plan
    rules: Rules
    setting: Setting  # placed on the mesh
    state: State  # before the first round, placed on the mesh


def prepare(config: Config, method: Method, model: Model, federation: Federation) -> Ready:
    """Choose devices and a strategy; place data and state."""
    mesh, layout, plan, selected = _arrange(config, model, federation)
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
    return Ready(mesh, layout, plan, rules, setting, state)


def _arrange(
    config: Config, model: Model, federation: Federation
) -> tuple[Mesh, Layout, Plan, int]:
    """Which devices, which client where, how many at a time, how many in a round."""
    wanted = config.participation.clients_per_round
    selected = federation.clients if wanted == "all" else wanted
    mesh = make_mesh(config.engine.devices, useful=selected)
    devices = mesh.devices.size
    work = federation.counts[:, TRAIN]
    layout = lay_out(work, devices, guest_rows(selected, federation.clients, devices))
    batch = min(getattr(config.method, "batch", 1), int(work.max()))
    steps = -(-np.append(work, 0)[layout.client] // batch)
    plan = choose(
        config.engine,
        mesh.devices.flat[0].platform,
        steps.reshape(devices, -1),
        cohort=most_each(selected, devices),
        step=batch * _parameters(model, federation),
    )
    return mesh, layout, plan, selected


def _parameters(model: Model, federation: Federation) -> int:
    def initial(arrays: Tree) -> Tree:
        first = jnp.zeros((), jnp.int32)
        return model.init(jax.random.key(0), federation.read(arrays, first, first[None])[0])

    return tree.size(jax.eval_shape(initial, federation.arrays))


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
