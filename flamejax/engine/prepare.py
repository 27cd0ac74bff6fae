"""From a config to what a round starts from: devices, rules, data and state in their places."""

from __future__ import annotations

from collections.abc import Callable
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
from flamejax.engine.devices import AXIS, Layout, Size, lay_out, make_mesh
from flamejax.engine.execution import Plan, Step, choose
from flamejax.engine.memory import DENSE, Need, check_placed, window
from flamejax.engine.rounds import Client, Rules, Setting, State, make_shard
from flamejax.engine.windows import Shelf
from flamejax.errors import InputError
from flamejax.federation import TRAIN, Federation, evaluated_clients
from flamejax.types import Attack, Method, Model, Shard, Tree

QUICKLY = {"xla_backend_optimization_level": 0}  # to compile what runs once

# what is split over the devices (by clients), and what each has whole
SETTING = Setting(*[P()] * len(Setting._fields))._replace(client=P(AXIS))
STATE = State(round=P(), server=P(), clients=P(AXIS), mean=P(), lost=P())


class Ready(NamedTuple):
    """All that a round needs."""

    mesh: Mesh
    plan: Plan
    rules: Rules
    setting: Setting  # placed on the mesh
    state: State  # before the first round, placed on the mesh; without clients on a shelf
    client: Client  # what is kept of one that was never selected; on the host
    layout: Layout | None  # of all clients on the devices; otherwise windows of them are there
    shelf: Shelf  # for the ones or the others
    guests: int  # slots of a device for clients of others
    evaluated: np.ndarray  # clients that evaluations look at, in order
    per_call: int  # rounds
    need: Need  # memory


class Initial(NamedTuple):
    """Before the first round."""

    parameters: Tree  # of a model
    server: Tree
    client: Client
    mean: Tree


class Arranged(NamedTuple):
    """What is decided before anything is placed."""

    mesh: Mesh
    rules: Rules
    plan: Plan
    step: Step
    initial: Callable[[Setting, Array], Initial]
    dense: bool  # the states of all clients are on the devices
    shapes: Client  # of what is kept of a client
    guests: int
    per_call: int


def prepare(
    config: Config,
    method: Method,
    model: Model,
    federation: Federation,
    per_call: int = 1,
    smoothness: float | None = None,
) -> Ready:
    """Choose devices, a strategy and a store; place data and state."""
    plan = arrange(config, method, model, federation, per_call)
    mesh, rules, work = plan.mesh, plan.rules, federation.counts[:, TRAIN]
    layout = None
    if plan.dense:
        layout = lay_out(work, mesh.devices.size, plan.guests)
        shelf = full_shelf(plan, layout, work)
    else:
        there = min(plan.per_call * rules.selected, federation.clients)
        shelf = shelf_for(there, mesh, plan.shapes, federation, plan.guests)
    init_key, setting = settings_of(config, rules, federation, layout, smoothness)
    copies = 1 if mesh.devices.flat[0].platform == "cpu" else len(shelf.here)  # CPUs share one
    need = check_placed(copies * federation.nbytes, shelf.nbytes, shelf.clients)
    setting = place(mesh, setting, SETTING)
    state, client = _start(plan, setting, init_key, layout)
    return Ready(
        mesh,
        plan.plan,
        rules,
        setting,
        state,
        client,
        layout,
        shelf,
        plan.guests,
        evaluated_clients(config, federation),
        plan.per_call,
        need,
    )


def arrange(
    config: Config, method: Method, model: Model, federation: Federation, per_call: int
) -> Arranged:
    wanted = config.participation.clients_per_round
    selected = federation.clients if wanted == "all" else wanted
    if config.record.theory and not method.admm:
        name = config.method.name
        raise InputError(f"record.theory: method.name = '{name}' has no Lagrangian; 'flame' has")
    mesh = make_mesh(config.engine.devices, useful=selected)
    rules = _rules(config, method, federation, selected)
    initial = _initial(rules, model, federation)
    init_key, setting = settings_of(config, rules, federation, None)
    shapes = jax.eval_shape(initial, setting, init_key)
    record = tree.nbytes(shapes.client)
    step = Step(batch_of(config, federation), tree.size(shapes.parameters))
    plan = _plan(config, mesh, federation, selected, step)
    guests = guest_rows(selected, federation.clients, mesh.devices.size)
    dense = _dense(config, rules, record)
    if not dense:
        per_call = max(1, min(per_call, window(config) // max(1, selected * record)))
        if per_call == jax.process_count() == 1:
            guests = 0  # a round's clients are dealt evenly when they take their seats
    return Arranged(mesh, rules, plan, step, initial, dense, shapes.client, guests, per_call)


def settings_of(
    config: Config,
    rules: Rules,
    federation: Federation,
    layout: Layout | None,
    smoothness: float | None = None,
) -> tuple[Array, Setting]:
    """A key for the first state, and what rounds are told; not yet on the devices."""
    init_key, run_key = _keys(config)
    seats = layout._asdict() if layout else dict.fromkeys(Layout._fields)
    return init_key, Setting(
        hyper=_traced(config.method),
        attack=_traced(config.attack),
        aggregator=_traced(config.aggregator),
        key=run_key,
        arrays=federation.arrays,
        counts=np.pad(federation.counts, ((0, 1), (0, 0))).astype(np.int32),
        samples=np.asarray(federation.counts[:, TRAIN].sum(), _floats()),
        **seats,
        malicious=np.append(federation.malicious, False),
        weight=_weights(rules, federation),
        smoothness=np.asarray(smoothness or 0.0, _floats()),
    )


def _keys(config: Config) -> Array:
    """For the first state, and for the rounds."""
    return jax.random.split(jax.random.key(config.seed))


def _floats() -> Any:
    """The precision of the run."""
    return jnp.zeros(()).dtype


def _plan(config: Config, mesh: Mesh, federation: Federation, selected: int, step: Step) -> Plan:
    """How many clients at a time."""
    work, devices = federation.counts[:, TRAIN], mesh.devices.size
    rng = np.random.default_rng(0)
    cohorts = 1 if selected == len(work) else 8  # to look at
    drawn = np.stack([rng.choice(work, selected, replace=False) for _ in range(cohorts)])
    steps = np.sort(-(-drawn // step.batch), axis=1)[:, ::-1]  # dealt from the largest on
    each = most_each(selected, devices)
    steps = np.pad(steps, ((0, 0), (0, devices * each - selected)))
    return choose(
        config.engine,
        mesh.devices.flat[0].platform,
        steps.reshape(cohorts, each, devices).swapaxes(1, 2).reshape(-1, each),
        devices,
        each,
        step,
    )


def batch_of(config: Config, federation: Federation) -> int:
    """Samples in a step."""
    return min(getattr(config.method, "batch", 1), int(federation.counts[:, TRAIN].max()))


def _dense(config: Config, rules: Rules, record: int) -> bool:
    """Whether the states of all clients, of `record` bytes each, are kept on the devices."""
    asked, needed = config.engine.store, rules.clients * record
    given = config.engine.state_budget  # what is free is not asked: all processes must decide alike
    needs_all = rules.needs_all or config.record.theory
    if asked == "touched" and needs_all:
        why = "every round looks at the states of all clients"
        raise InputError(f"engine.store = 'touched': {why}; 'dense' keeps them on the devices")
    if asked == "auto":
        return needs_all or needed <= (DENSE if given == "auto" else min(DENSE, given))
    return asked == "dense"


def shelf_for(
    clients: int, mesh: Mesh, shapes: Client, federation: Federation, guests: int = 0
) -> Shelf:
    """Room on the devices for some clients at a time."""
    size = Size.of(clients, mesh.devices.size, jax.process_count())
    return Shelf(mesh, clients, size, guests, shapes, federation.counts[:, TRAIN])


def full_shelf(plan: Arranged, layout: Layout, work: np.ndarray) -> Shelf:
    """For all clients at once, as they are laid out."""
    devices = plan.mesh.devices.size
    size = Size(devices, jax.process_count(), len(layout.client) // devices - plan.guests)
    return Shelf(plan.mesh, len(work), size, plan.guests, plan.shapes, work)


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
        clients=federation.clients,
        on_nonfinite=config.engine.on_nonfinite,
    )


def _weights(rules: Rules, federation: Federation) -> np.ndarray:
    """[C + 1] weights of the clients, summing to 1."""
    weights = rules.aggregator.weight(federation.counts[:, TRAIN].astype(float))
    return np.append(weights / weights.sum(), 0.0).astype(_floats())


def _traced(settings: Named) -> Any:
    return jax.tree.map(lambda v: np.asarray(v, _floats()), settings.hyper())


def _initial(
    rules: Rules, model: Model, federation: Federation
) -> Callable[[Setting, Array], Initial]:
    def initial(setting: Setting, key: Array) -> Initial:
        first = jnp.zeros((), jnp.int32)
        parameters = _parameters(model, federation, setting.arrays, key)
        server, client = rules.method.init(setting.hyper, parameters, jax.random.fold_in(key, 1))
        shard = make_shard(federation, setting, first)
        mean = _first_mean(rules.method, setting, server, client, shard)
        stored = Client(client, mean if rules.keeps_messages else None)
        return Initial(parameters, server, stored, mean)

    return initial


def _parameters(model: Model, federation: Federation, arrays: Tree, key: Array) -> Tree:
    first = jnp.zeros((), jnp.int32)
    return model.init(key, federation.read(arrays, first, first[None])[0])


def initial_parameters(config: Config, model: Model, federation: Federation) -> Tree:
    """Of a model before the first round."""
    make = jax.jit(lambda arrays, key: _parameters(model, federation, arrays, key))
    return make(federation.arrays, _keys(config)[0])


def _start(
    plan: Arranged, setting: Setting, key: Array, layout: Layout | None
) -> tuple[State, Client]:
    """Every client in the state of one that was never selected, and this one."""

    def start(setting: Setting, key: Array) -> tuple[State, Client]:
        return first_state(plan, setting, key, len(layout.client) if layout else None)

    shardings = jax.tree.map(lambda spec: NamedSharding(plan.mesh, spec), STATE)
    placed = jax.jit(
        start, out_shardings=(shardings, NamedSharding(plan.mesh, P())), compiler_options=QUICKLY
    )
    state, client = placed(setting, key)
    return state, jax.tree.map(np.asarray, client)


def first_state(
    plan: Arranged, setting: Setting, key: Array, slots: int | None
) -> tuple[State, Client]:
    """The state before the first round, with so many clients in it, and one of them."""
    found = plan.initial(setting, key)
    stacked = None if slots is None else tree.stack(found.client, slots)
    lost = tree.zeros_like(found.mean) if plan.rules.running else None
    state = State(jnp.zeros((), jnp.int32), found.server, stacked, found.mean, lost)
    return state, found.client


def take_seats(mesh: Mesh, setting: Setting, layout: Layout) -> Setting:
    """The setting for clients in these slots."""
    present, slot = put(mesh, (layout.present, layout.slot), P())
    return setting._replace(client=put(mesh, layout.client, P(AXIS)), present=present, slot=slot)


def place(mesh: Mesh, values: Tree, specs: Tree) -> Tree:
    """Put every part of a named tuple on the mesh as its spec says."""
    return type(values)(
        *(put(mesh, value, spec) for value, spec in zip(values, specs, strict=True))
    )


def put(mesh: Mesh, value: Tree, spec: P) -> Tree:
    """Host values on the mesh, the same in every process."""
    sharding = NamedSharding(mesh, spec)
    if jax.process_count() == 1:
        return jax.device_put(value, sharding)

    def one(x: Any) -> Array:  # `device_put` would compare the values of all processes
        if isinstance(x, Array) and jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key):
            data = one(jax.random.key_data(x))
            return jax.random.wrap_key_data(data, impl=jax.random.key_impl(x))
        host = np.asarray(x)
        return jax.make_array_from_callback(host.shape, sharding, lambda part: host[part])

    return jax.tree.map(one, value)


def _first_mean(method: Method, setting: Setting, server: Tree, client: Tree, shard: Shard) -> Tree:
    """The mean message before any client was selected; zeros for methods without memory."""
    if method.last_message:
        return method.last_message(setting.hyper, client, shard)
    message = jax.eval_shape(
        lambda key: method.client(setting.hyper, server, client, shard, key)[1], setting.key
    )
    return jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), message)
