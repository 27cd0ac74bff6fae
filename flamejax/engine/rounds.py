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
from flamejax.federation import TRAIN, Federation
from flamejax.shuffle import permute
from flamejax.types import Info, Method, Shard, Tree


class State(NamedTuple):
    """Everything the next round needs."""

    round: Array  # scalar: rounds done
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
    key: Array
    arrays: Tree  # the federation's
    counts: Array  # [C + 1, 3], the last row is zero
    client: Array  # [slots] the client in each slot, C where it is empty
    slot: Array  # [C + 1] the slot of each client


class Cohort(NamedTuple):
    """Clients to visit: where their states are, and who they are."""

    rows: Array  # [n]
    ids: Array  # [n], C for nobody


def make_shard(federation: Federation, setting: Setting, client: Array) -> Shard:
    counts, total = federation.counts[:, TRAIN], federation.counts[:, TRAIN].sum()
    count = setting.counts[client, TRAIN]
    return Shard(
        client=client,
        clients=len(counts),
        count=count,
        largest=int(counts.max()),
        share=count.astype(float) / float(total),
        read=lambda positions: federation.read(setting.arrays, client, positions),
    )


def visit(
    f: Callable[[Tree, Array], Tree],
    fold: Callable[[Tree, Tree, Cohort], tuple[Tree, Tree]],
    carry: Tree,
    read: Callable[[Tree], Tree],
    cohort: Cohort,
    width: int,
    nobody: int,
) -> tuple[Tree, Tree]:
    """Go through a cohort, `width` clients at a time.

    f: (state, id) of one client -> its result. fold: (carry, results [width, ...], who) ->
    (carry, output). read: carry -> the stacked states. Outputs come back as [n, ...].
    """
    n = len(cohort.ids)
    pad = -n % width
    last = jnp.iinfo(jnp.int32).max  # a row that reads as the last one and is never written
    rows = jnp.pad(cohort.rows, (0, pad), constant_values=last).reshape(-1, width)
    ids = jnp.pad(cohort.ids, (0, pad), constant_values=nobody).reshape(-1, width)

    def group(carry: Tree, who: Cohort) -> tuple[Tree, Tree]:
        states = tree.take(read(carry), who.rows)
        if width == 1:  # a batch axis of one would only slow the loops down
            result = f(jax.tree.map(lambda x: x[0], states), who.ids[0])
            result = jax.tree.map(lambda x: x[None], result)
        else:
            result = jax.vmap(f)(states, who.ids)
        return fold(carry, result, who)

    carry, outputs = lax.scan(group, carry, Cohort(rows, ids))
    return carry, jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:])[:n], outputs)


def make_round(
    method: Method,
    federation: Federation,
    *,
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

        def one(client: Tree, number: Array) -> tuple[Tree, Tree, Info]:
            shard = make_shard(federation, setting, number)
            new, message, info = method.client(
                setting.hyper, state.server, client, shard, jax.random.fold_in(key, number)
            )
            if method.last_message:  # only the change of a message moves the mean over all
                message = tree.subtract(message, method.last_message(setting.hyper, client, shard))
            message = tree.where(number < clients, message, tree.zeros_like(message))
            return new, message, info

        def fold(carry: Tree, result: Tree, who: Cohort) -> tuple[Tree, None]:
            store, total, log = carry
            new, messages, info = result
            store = tree.put(store, who.rows, new)
            total = jax.tree.map(lambda t, x: t + jnp.sum(x, axis=0), total, messages)
            sums = RoundInfo(*(jnp.sum(x) for x in info), executed=width * jnp.max(info.steps))
            return (store, total, tree.add(log, sums)), None

        total = jax.tree.map(jnp.zeros_like, state.mean)
        carry = (store, total, no_round())
        carry, _ = visit(one, fold, carry, lambda c: c[0], cohort, width, clients)
        return carry

    def exact_mean(setting: Setting, store: Tree, mean: Tree) -> Tree:
        """The mean of all last messages, summed afresh."""

        def one(client: Tree, number: Array) -> Tree:
            message = method.last_message(
                setting.hyper, client, make_shard(federation, setting, number)
            )
            return tree.where(number < clients, message, tree.zeros_like(message))

        def fold(total: Tree, messages: Tree, who: Cohort) -> tuple[Tree, None]:
            return jax.tree.map(lambda t, x: t + jnp.sum(x, axis=0), total, messages), None

        cohort = Cohort(jnp.arange(len(setting.client)), setting.client)
        total, _ = visit(one, fold, tree.zeros_like(mean), lambda c: store, cohort, width, clients)
        return tree.scale(1 / clients, lax.psum(total, AXIS))

    def select(setting: Setting, round: Array) -> Array:
        """[devices, k] the clients of this round, large ones first, shared out evenly."""
        key = jax.random.fold_in(jax.random.fold_in(setting.key, round), clients)
        ids = permute(key, jnp.arange(selected), clients)
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
            setting, state, cohort, Cohort(jnp.arange(len(numbers)), numbers)
        )
        back = jax.tree.map(lambda x: lax.all_gather(x, AXIS), cohort)
        home = jnp.where(mine, rows, slots)  # rows of other devices fall off the end
        store = jax.tree.map(lambda x, new: x.at[home].set(new, mode="drop"), store, back)
        return store, total, log

    def round(setting: Setting, state: State) -> tuple[State, RoundInfo]:
        if selected < clients:
            store, total, log = train_selected(setting, state)
        else:
            everyone = Cohort(jnp.arange(len(setting.client)), setting.client)
            store, total, log = train(setting, state, state.clients, everyone)
        total, log = lax.psum((total, log), AXIS)
        if method.last_message:
            mean = tree.add(state.mean, tree.scale(1 / clients, total))
            mean = lax.cond(
                (state.round + 1) % resum_every == 0,
                lambda: exact_mean(setting, store, mean),
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
