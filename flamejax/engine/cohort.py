"""Who takes part in a round, on which device, and how states get there.

A selected client is trained where its state is stored, unless that device has its share of the
work already; then its state travels to another device, into a row kept for guests, and back.
"""

from __future__ import annotations

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from flamejax import tree
from flamejax.engine.devices import AXIS, total
from flamejax.engine.visit import Cohort
from flamejax.shuffle import permute
from flamejax.types import Tree


class Trips(NamedTuple):
    """Journeys of states from their own row to one for guests; the first `number` are made."""

    number: Array
    home: Array  # [s] device,
    row: Array  # [s] and row there
    host: Array  # [s] device,
    guest: Array  # [s] and row there


def most_each(selected: int, devices: int) -> int:
    """How many clients a device trains at most."""
    return -(-selected // devices)


def guest_rows(selected: int, clients: int, devices: int) -> int:
    """Rows of a device's store beside those of its own clients; the last is never read."""
    return most_each(selected, devices) + 1 if selected < clients and devices > 1 else 0


def select(key: Array, number: Array, selected: int, clients: int) -> Array:
    """Who takes part in round `number` of the run with this key, [s]: no array of all clients."""
    key = jax.random.fold_in(jax.random.fold_in(key, number), clients)
    return permute(key, jnp.arange(selected, dtype=jnp.int32), clients)


def deal_out(
    ids: Array, slot: Array, work: Array, clients: int, rows: int, guests: int, devices: int
) -> tuple[Cohort, Trips]:
    """For every device its cohort [D, k] of the selected, and who has to travel.

    ids, slot, work: [s] of the selected; clients: how many there are; rows: of a device's store,
    so many of them for guests. Without any, a device has its share of the selected already.
    """
    selected = len(ids)
    order = jnp.argsort(-work, stable=True)
    ids, slot, work = ids[order], slot[order], work[order]
    home, row = slot // rows, slot % rows
    host, place = share_out(work, home, devices) if guests else (home, _rank(home, devices))
    away = host != home
    guest = rows - guests + _rank(jnp.where(away, host, devices), devices)
    each = most_each(selected, devices)
    nobody = Cohort(rows=jnp.int32(rows - 1), ids=jnp.int32(clients))
    table = jax.tree.map(lambda x: jnp.full((devices, each), x), nobody)
    table = Cohort(
        rows=table.rows.at[host, place].set(jnp.where(away, guest.astype(row.dtype), row)),
        ids=table.ids.at[host, place].set(ids),
    )
    order = jnp.argsort(~away, stable=True)
    trips = (x[order].astype(jnp.int32) for x in (home, row, host, guest))
    return table, Trips(jnp.sum(away, dtype=jnp.int32), *trips)


def _rank(group: Array, groups: int) -> Array:
    """[s] how many of the same group come before each; those of no group have any number."""
    member = jax.nn.one_hot(group, groups, dtype=jnp.int32)
    before = jnp.cumsum(member, axis=0) - member
    return jnp.sum(before * member, axis=1)


def share_out(work: Array, home: Array, devices: int) -> tuple[Array, Array]:
    """A device for each of s clients, and a place on it. work: [s], falling; home: [s].

    Clients stay at home while that keeps the devices' work even; otherwise they go to the device
    with the least. No device has more than its share of clients.
    """
    each = most_each(len(work), devices)
    work = work.astype(float)
    mean = jnp.sum(work) / devices

    def settle(taken: tuple[Array, Array], client: tuple[Array, Array]) -> tuple[Tree, Tree]:
        load, count = taken
        work, home = client
        open_to_all = jnp.where(count < each, load, jnp.inf)
        stays = open_to_all[home] + work <= mean + work * (1 - 1 / devices)
        least = jnp.argmin(open_to_all).astype(home.dtype)
        host = jnp.where(stays, home, least)
        place = count[host]
        return (load.at[host].add(work), count.at[host].add(1)), (host, place)

    start = (jnp.zeros(devices), jnp.zeros(devices, jnp.int32))
    return lax.scan(settle, start, (work, home))[1]


def send(store: Tree, trips: Trips) -> Tree:
    """Guests' states written to the rows where they are trained."""
    return _move(store, trips.number, trips.home, trips.row, trips.host, trips.guest)


def send_back(store: Tree, trips: Trips) -> Tree:
    return _move(store, trips.number, trips.host, trips.guest, trips.home, trips.row)


def _move(store: Tree, count: Array, start: Array, row: Array, goal: Array, place: Array) -> Tree:
    if not jax.tree.leaves(store):  # a method without state
        return store
    me = lax.axis_index(AXIS)

    def trip(i: Array, store: Tree) -> Tree:
        leaving = tree.take(store, row[i][None])
        arriving = total(tree.where(me == start[i], leaving, tree.zeros_like(leaving)))
        # on all devices but one it goes where nothing is read
        nowhere = len(jax.tree.leaves(store)[0]) - 1
        return tree.put(store, jnp.where(me == goal[i], place[i], nowhere)[None], arriving)

    return lax.fori_loop(0, count, trip, store)
