"""One communication round, as each device of the mesh sees it.

A device owns some slots of the stacked client state and has a full copy of the samples and of the
server. Functions here run inside `shard_map`; sums over clients end in one `psum`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from flamejax import tree
from flamejax.engine.devices import AXIS, turns
from flamejax.evaluate import Sums, score
from flamejax.federation import TRAIN, Federation
from flamejax.shuffle import permute
from flamejax.types import Method, Model, Shard, Tree


class State(NamedTuple):
    """Everything the next round needs."""

    round: Any  # scalar: rounds done
    server: Tree
    clients: Tree  # stacked [slots, ...]
    mean: Tree  # mean of all clients' last messages; None for methods that forget them


class RoundInfo(NamedTuple):
    """Sums over the selected clients of one round."""

    loss: Array
    samples: Array
    steps: Array  # optimiser steps the clients needed
    executed: Array  # steps computed for them, padding included


class Setting(NamedTuple):
    """Traced inputs that stay the same from round to round."""

    hyper: Any
    key: Any
    arrays: Tree  # the federation's
    counts: Any  # [C + 1, 3], the last row is zero
    client: Any  # [slots] the client in each slot, C where it is empty
    slot: Any  # [C + 1] the slot of each client


class Cohort(NamedTuple):
    """Clients to visit: where their states are, and who they are."""

    rows: Array  # [n]
    ids: Array  # [n], C for nobody


def everyone(setting: Setting) -> Cohort:
    """All clients of this device."""
    return Cohort(jnp.arange(len(setting.client), dtype=jnp.int32), setting.client)


def make_shard(federation: Federation, setting: Setting, client: Array) -> Shard:
    counts, total = federation.counts[:, TRAIN], federation.counts[:, TRAIN].sum()
    samples = setting.counts[client, TRAIN]
    return Shard(
        client=client,
        clients=len(counts),
        samples=samples,
        largest=int(counts.max()),
        share=samples.astype(float) / float(total),
        read=lambda positions: federation.read(setting.arrays, client, positions),
    )


def visit(
    f: Callable[[Tree, Array], tuple[Tree, Tree, Tree]],
    store: Tree,
    cohort: Cohort,
    width: int,
    nobody: int,
) -> tuple[Tree, Tree, Tree]:
    """Go through a cohort, `width` clients at a time, updating the store in place.

    f: (state, number) of one client -> (new state, or None to leave it; what to sum over clients;
    what to keep of each). Returns the store, the sums, and what was kept as [groups, width, ...].
    """
    pad = -len(cohort.ids) % width
    beyond = jnp.iinfo(jnp.int32).max  # a row that is never written
    rows = jnp.pad(cohort.rows, (0, pad), constant_values=beyond).reshape(-1, width)
    ids = jnp.pad(cohort.ids, (0, pad), constant_values=nobody).reshape(-1, width)

    def one(state: Tree, number: Array) -> tuple[Tree, Tree, Tree]:
        new, summed, kept = f(state, number)
        return new, tree.where(number < nobody, summed, tree.zeros_like(summed)), kept

    def side_by_side(states: Tree, ids: Array) -> tuple[Tree, Tree, Tree]:
        if width > 1:
            return jax.vmap(one)(states, ids)
        # a batch axis of one would only slow the loops down
        result = one(jax.tree.map(lambda x: x[0], states), ids[0])
        return jax.tree.map(lambda x: x[None], result)

    # A group's states are written when the next group begins: were they written right away, XLA
    # would see reads of old states after the write, and copy the whole store for every group.
    def group(carry: Tree, who: Cohort) -> tuple[Tree, Tree]:
        store, pending, sums = carry
        store = write(store, pending)
        new, summed, kept = side_by_side(tree.take(store, who.rows), who.ids)
        sums = jax.tree.map(lambda s, x: s + jnp.sum(x, axis=0, dtype=x.dtype), sums, summed)
        return (store, (who.rows, new), sums), kept

    def write(store: Tree, pending: tuple[Array, Tree]) -> Tree:
        rows, states = pending
        return store if states is None else tree.put(store, rows, states)

    first = tree.take(store, rows[0])
    shapes = jax.eval_shape(side_by_side, first, ids[0])
    sums = jax.tree.map(lambda x: jnp.zeros(x.shape[1:], x.dtype), shapes[1])
    pending = (rows[0], None if shapes[0] is None else first)
    (store, pending, sums), kept = lax.scan(group, (store, pending, sums), Cohort(rows, ids))
    return write(store, pending), sums, kept


def make_evaluate(
    method: Method, model: Model, federation: Federation, width: int
) -> Callable[[State, Setting], Sums]:
    """Figures of every client of this device, [slots, ...]."""
    scores = score(model, federation)

    def evaluate(state: State, setting: Setting) -> Sums:
        def one(client: Tree, number: Array) -> tuple[None, None, Sums]:
            shared, personal = method.models(state.server, client)
            if method.personalize:
                shard = make_shard(federation, setting, number)
                personal = method.personalize(setting.hyper, state.server, client, shard)
            models = (personal,) if shared is None else (personal, shared)
            return None, None, scores(setting.arrays, setting.counts[number], number, models)

        _, _, sums = visit(one, state.clients, everyone(setting), width, federation.clients)
        return jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[: len(setting.client)], sums)

    return evaluate


def make_round(
    method: Method,
    federation: Federation,
    selected: int,
    devices: int,
    width: int,
    resum_every: int,
) -> Callable[[Setting, State], tuple[State, RoundInfo]]:
    clients = federation.clients

    def train(
        setting: Setting, state: State, store: Tree, cohort: Cohort
    ) -> tuple[Tree, Tree, RoundInfo]:
        """Local training of a cohort: the updated store, and this device's sums."""
        key = jax.random.fold_in(setting.key, state.round)

        def one(client: Tree, number: Array) -> tuple[Tree, Tree, Array]:
            shard = make_shard(federation, setting, number)
            new, message, info = method.client(
                setting.hyper, state.server, client, shard, jax.random.fold_in(key, number)
            )
            if method.last_message:  # only the change of a message moves the mean over all
                message = tree.subtract(message, method.last_message(setting.hyper, client, shard))
            return new, (message, info), info.steps

        store, (total, info), steps = visit(one, store, cohort, width, clients)
        executed = width * jnp.sum(jnp.max(steps, axis=1), dtype=jnp.int32)
        return store, total, RoundInfo(info.loss, info.samples, info.steps, executed)

    def exact_mean(setting: Setting, store: Tree, recall: Callable[..., Tree]) -> Tree:
        """The mean of all last messages, summed afresh."""

        def one(client: Tree, number: Array) -> tuple[None, Tree, None]:
            shard = make_shard(federation, setting, number)
            return None, recall(setting.hyper, client, shard), None

        _, total, _ = visit(one, store, everyone(setting), width, clients)
        return tree.scale(1 / clients, lax.psum(total, AXIS))

    def select(setting: Setting, round: Array) -> Array:
        """[devices, k] the clients of this round, large ones first, shared out evenly."""
        key = jax.random.fold_in(jax.random.fold_in(setting.key, round), clients)
        ids = permute(key, jnp.arange(selected, dtype=jnp.int32), clients)
        ids = ids[jnp.argsort(-setting.counts[ids, TRAIN], stable=True)]
        each = -(-selected // devices)
        ids = jnp.pad(ids, (0, each * devices - selected), constant_values=clients)
        return ids[turns(devices, each)]

    def train_selected(setting: Setting, state: State) -> tuple[Tree, Tree, RoundInfo]:
        store, ids = state.clients, select(setting, state.round)
        slots = len(setting.client)
        if devices == 1:
            return train(setting, state, store, Cohort(setting.slot[ids[0]], ids[0]))
        # states travel to the device that trains them, and back: O(selected), evenly loaded
        me = lax.axis_index(AXIS)
        rows = setting.slot[ids] - me * slots
        mine = (ids < clients) & (rows >= 0) & (rows < slots)
        sent = jax.tree.map(
            lambda x: jnp.where(
                mine.reshape(mine.shape + (1,) * (x.ndim - 1)), x.at[rows].get(mode="clip"), 0
            ),
            store,
        )
        cohort = jax.tree.map(lambda x: lax.psum_scatter(x, AXIS), sent)
        numbers = ids[me]
        cohort, total, log = train(
            setting, state, cohort, Cohort(jnp.arange(len(numbers), dtype=jnp.int32), numbers)
        )
        back = jax.tree.map(lambda x: lax.all_gather(x, AXIS), cohort)
        home = jnp.where(mine, rows, slots)  # rows of other devices fall off the end
        store = jax.tree.map(lambda x, new: x.at[home].set(new, mode="drop"), store, back)
        return store, total, log

    def round(setting: Setting, state: State) -> tuple[State, RoundInfo]:
        if selected < clients:
            store, total, log = train_selected(setting, state)
        else:
            store, total, log = train(setting, state, state.clients, everyone(setting))
        total, log = lax.psum((total, log), AXIS)
        if recall := method.last_message:
            mean = tree.add(state.mean, tree.scale(1 / clients, total))
            mean = lax.cond(
                (state.round + 1) % resum_every == 0,
                lambda: exact_mean(setting, store, recall),
                lambda: mean,
            )
        else:
            mean = tree.scale(1 / selected, total)
        server = method.server(setting.hyper, state.server, mean)
        return State(state.round + 1, server, store, mean), log

    return round


def no_round() -> RoundInfo:
    zero, none = jnp.zeros(()), jnp.zeros((), jnp.int32)
    return RoundInfo(loss=zero, samples=zero, steps=none, executed=none)
