"""Where the states of clients are kept, behind one interface: on the devices, or on the host.

Rounds and evaluations are compiled for clients in slots; only what is here knows how the states
get there. Methods know neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array
from jax.sharding import PartitionSpec as P

from flamejax import tree
from flamejax.checkpoints import Checkpoint
from flamejax.engine.cohort import select
from flamejax.engine.devices import AXIS, Layout
from flamejax.engine.prepare import Ready, put, take_seats
from flamejax.engine.rounds import Client, RoundInfo, State
from flamejax.engine.store import Store
from flamejax.engine.visit import Cohort
from flamejax.engine.windows import Shelf, Windows, shards
from flamejax.errors import InputError
from flamejax.evaluate import Sums
from flamejax.types import States, Tree

AT_A_TIME = 2**24  # bytes of states to or from a checkpoint


class Hold(NamedTuple):
    """What a run does with the states of its clients."""

    run: Callable[[State, int], tuple[State, RoundInfo]]  # some rounds, at most those of a call
    evaluate: Callable[[State], Sums]  # sums [n, ...] of the clients that are looked at
    one: Callable[[State, int], Client]  # what is kept of a client, on the host
    states: Callable[[State], States]  # the same of all clients of this process
    restore: Callable[[Checkpoint], Client | None]  # clients as they are in a state


def cohort_in(layout: Layout, clients: np.ndarray, nobody: int, devices: int) -> Cohort:
    """Those of `clients` that are in slots, for each device as many as for any other, [D * k]."""
    slots = layout.client.reshape(devices, -1)
    wanted = np.isin(slots, clients)
    most = int(wanted.sum(1).max())
    rows = np.argsort(~wanted, axis=1, kind="stable")[:, :most]
    ids = np.where(np.take_along_axis(wanted, rows, 1), np.take_along_axis(slots, rows, 1), nobody)
    return Cohort(rows.reshape(-1).astype(np.int32), ids.reshape(-1).astype(np.int32))


def looked_at(ready: Ready) -> Cohort:
    """The clients that evaluations look at, where all are in slots."""
    assert ready.layout
    return cohort_in(ready.layout, ready.evaluated, ready.rules.clients, ready.mesh.devices.size)


def in_order(sums: Sums, ids: np.ndarray, nobody: int) -> Sums:
    """Sums of a cohort [k, ...] as those of its clients, by their numbers."""
    rows = np.argsort(ids, kind="stable")[: int((ids < nobody).sum())]
    return jax.tree.map(lambda x: np.asarray(x)[rows], sums)


def hold_all(ready: Ready, rounds: Any, evaluation: Any) -> Hold:
    """All states on the devices."""
    layout, setting = ready.layout, ready.setting
    assert layout
    seats = looked_at(ready)
    cohort = put(ready.mesh, seats, P(AXIS))

    def run(state: State, number: int) -> tuple[State, RoundInfo]:
        state, found = rounds(state, setting, np.int32(number))
        return state, jax.tree.map(lambda x: np.asarray(x)[:number], found)

    def evaluate(state: State) -> Sums:
        return in_order(evaluation(state, setting, cohort), seats.ids, ready.rules.clients)

    def one(state: State, client: int) -> Client:
        return jax.tree.map(lambda x: _row(x, layout.slot[client]), state.clients)

    def states(state: State) -> States:
        return states_in(ready.shelf, layout, shards(state.clients))

    def restore(checkpoint: Checkpoint) -> Client:
        room = ready.shelf.room()
        fill(room, checkpoint, ready.shelf, layout)
        return ready.shelf.place(room)

    return Hold(run, evaluate, one, states, restore)


def states_in(shelf: Shelf, layout: Layout, parts: list[Tree]) -> States:
    """The states of this process's clients; parts: of each of its devices."""
    empty = [shelf.shapes] * len(shelf.here)  # of a method without state

    def pieces() -> Iterator[tuple[np.ndarray, Tree]]:
        for clients, rows, part in shelf.by_device(layout, parts or empty):
            for some in in_pieces(np.arange(len(rows)), shelf.shapes):
                yield clients[some], jax.tree.map(lambda x: x[rows[some]], part)  # noqa: B023

    return States(len(shelf.local(layout)[0]), shelf.shapes, pieces())


def in_pieces(rows: np.ndarray, shapes: Tree) -> Iterator[np.ndarray]:
    """Rows of states of these shapes, as many as are taken at a time."""
    many = max(1, AT_A_TIME // max(1, tree.nbytes(shapes)))
    return (rows[first : first + many] for first in range(0, len(rows), many))


def fill(room: Tree, checkpoint: Checkpoint, shelf: Shelf, layout: Layout) -> None:
    """Write states from a checkpoint to the host arrays of this process's slots."""
    clients, rows = shelf.local(layout)
    order = np.argsort(clients)
    clients, rows, found = clients[order], rows[order], 0
    mine = partial(np.isin, test_elements=clients)
    for ids, states in checkpoint.states(shelf.shapes, mine, in_pieces):
        there, found = rows[np.searchsorted(clients, ids)], found + len(ids)
        for x, new in zip(jax.tree.leaves(room), jax.tree.leaves(states), strict=True):
            x[there] = new
    if found != len(clients):
        raise InputError(f"{checkpoint.path}: {found} of {len(clients)} states; start the run anew")


def hold_touched(
    ready: Ready,
    rounds: Any,
    evaluation: Any,
    shelf: Shelf,
    store: Store,
    stride: Callable[[int], int],
) -> Hold:
    """States on the host, of clients that were ever selected, and a window of them on the devices.

    shelf: for evaluations. A state that `run` returns has no clients: there is one store, and it
    is where the run is.
    """
    mesh, nobody = ready.mesh, ready.rules.clients
    windows = Windows(store, ready.shelf, _chooser(ready))

    def run(state: State, number: int) -> tuple[State, RoundInfo]:
        first = int(state.round)
        window = windows.enter(first, number)
        inside = state._replace(clients=ready.shelf.place(window.states))
        setting = take_seats(mesh, ready.setting, window.layout)
        if following := stride(first + number):
            windows.expect(first + number, following, window)
        state, found = rounds(inside, setting, np.int32(number))
        found = jax.tree.map(lambda x: np.asarray(x)[:number], found)
        windows.leave(window, state.clients)
        return state._replace(clients=None), found

    def evaluate(state: State) -> Sums:
        windows.settle()
        found, room = [], shelf.room()
        parts = -(-len(ready.evaluated) // shelf.clients)
        for clients in np.array_split(ready.evaluated, parts):
            layout = shelf.seat(clients)
            store.read(*shelf.local(layout), room)
            inside = state._replace(clients=shelf.place(room))
            rows = np.tile(np.arange(shelf.slots, dtype=np.int32), shelf.size.devices)
            cohort = put(mesh, Cohort(rows, layout.client), P(AXIS))
            found.append(in_order(evaluation(inside, ready.setting, cohort), layout.client, nobody))
        return jax.tree.map(lambda *sums: np.concatenate(sums), *found)

    def one(state: State, client: int) -> Client:
        windows.settle()
        room = jax.tree.map(lambda x: np.empty((1, *x.shape), x.dtype), ready.client)
        store.read(np.array([client]), np.array([0]), room)
        return jax.tree.map(lambda x: x[0], room)

    def states(state: State) -> States:
        windows.settle()
        clients = store.clients

        def pieces() -> Iterator[tuple[np.ndarray, Tree]]:
            for ids in in_pieces(clients, ready.client):
                room = jax.tree.map(lambda x: np.empty((len(ids), *x.shape), x.dtype), ready.client)  # noqa: B023
                store.read(ids, np.arange(len(ids)), room)
                yield ids, room

        return States(len(clients), ready.client, pieces())

    def restore(checkpoint: Checkpoint) -> None:
        def mine(ids: np.ndarray) -> np.ndarray:
            return ids % jax.process_count() == jax.process_index()

        for ids, kept in checkpoint.states(ready.client, mine, in_pieces):
            store.write(ids, np.arange(len(ids)), kept)

    return Hold(run, evaluate, one, states, restore)


def _chooser(ready: Ready) -> Callable[[int, int], np.ndarray]:
    """(first round, rounds) -> the clients that they select, in order."""
    selected, clients = ready.rules.selected, ready.rules.clients
    key = np.asarray(jax.random.key_data(ready.setting.key))  # on no device in particular

    @jax.jit
    def chosen(first: Array) -> Array:
        here = jax.random.wrap_key_data(jnp.asarray(key))
        numbers = first + jnp.arange(ready.per_call, dtype=jnp.int32)
        return jax.vmap(lambda number: select(here, number, selected, clients))(numbers)

    return lambda first, rounds: np.unique(np.asarray(chosen(np.int32(first)))[:rounds])


def _row(stacked: Array, slot: int) -> np.ndarray:
    """One client's entry of a stacked leaf, read from the device that holds it."""
    for shard in stacked.addressable_shards:
        first = shard.index[0].start or 0
        if first <= slot < first + len(shard.data):
            return np.asarray(shard.data[slot - first])
    raise InputError("the model of this client is in another process of the run")
