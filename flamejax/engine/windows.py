"""Rounds over clients whose states the host keeps, brought to the devices a window at a time.

A window holds the clients that some rounds select; who they are is known beforehand. While it is
worked on, the states of the one before are put away, and those for the next are fetched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from flamejax.datasets import empty
from flamejax.engine.devices import AXIS, Layout, Size, seat
from flamejax.engine.store import Store
from flamejax.types import Tree

BUFFERS = 5  # windows in memory: two to fetch into, one in use, its results, those put away


class Window(NamedTuple):
    """Some clients in slots, and their states where this process has them."""

    first: int  # round
    rounds: int
    layout: Layout
    states: Tree  # host arrays [slots of this process, ...]


class Shelf(NamedTuple):
    """Where a window goes: what all windows of a size have in common."""

    mesh: Mesh
    clients: int  # in a window, at most
    size: Size
    guests: int  # slots of a device beside those for clients
    shapes: Tree  # of one client's state
    work: np.ndarray  # [C]

    @property
    def slots(self) -> int:
        """Of one device."""
        return self.size.slots + self.guests

    @property
    def here(self) -> list[int]:
        """Which devices of the mesh are this process's."""
        mine = jax.process_index()
        return [i for i, d in enumerate(self.mesh.devices.flat) if d.process_index == mine]

    @property
    def nbytes(self) -> int:
        """Of the states of a window in this process."""
        record = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(self.shapes))
        return record * self.slots * len(self.here)

    def room(self) -> Tree:
        """Host arrays for the states of a window."""
        rows = self.slots * len(self.here)
        return jax.tree.map(lambda x: empty((rows, *x.shape), np.dtype(x.dtype)), self.shapes)

    def stacked(self) -> Tree:
        """Shapes of the states of a window on the mesh."""
        sharding, slots = NamedSharding(self.mesh, P(AXIS)), self.slots * self.size.devices
        return jax.tree.map(
            lambda x: jax.ShapeDtypeStruct((slots, *x.shape), x.dtype, sharding=sharding),
            self.shapes,
        )

    def seat(self, clients: np.ndarray) -> Layout:
        return seat(clients, self.work[clients], len(self.work), self.size, self.guests)

    def local(self, layout: Layout) -> tuple[np.ndarray, np.ndarray]:
        """This process's clients in a layout, and their rows in its host arrays."""
        first = self.here[0] * self.slots
        mine = layout.client[first : first + self.slots * len(self.here)]
        rows = np.flatnonzero(mine < len(self.work))
        return mine[rows], rows

    def place(self, states: Tree, axis: int = 0) -> Tree:
        """Host arrays, stacked along an axis, as one tree on the mesh."""
        sharding = NamedSharding(self.mesh, P(*[None] * axis, AXIS))
        devices = [self.mesh.devices.flat[i] for i in self.here]

        def put(x: np.ndarray) -> jax.Array:
            pieces = np.split(x, len(devices), axis)
            placed = [jax.device_put(p, d) for p, d in zip(pieces, devices, strict=True)]
            whole = (*x.shape[:axis], self.slots * self.size.devices, *x.shape[axis + 1 :])
            return jax.make_array_from_single_device_arrays(whole, sharding, placed)

        return jax.tree.map(put, states)

    def by_device(
        self, layout: Layout, states: list[Tree]
    ) -> Iterator[tuple[np.ndarray, np.ndarray, Tree]]:
        """For each device of this process: clients, their rows, and host arrays with these."""
        clients, rows = self.local(layout)
        device, row = np.divmod(rows, self.slots)
        for number, part in enumerate(states):
            yield clients[device == number], row[device == number], part


def shards(stacked: Tree, axis: int = 0) -> list[Tree]:
    """A tree stacked along an axis, on the mesh: the host arrays of this process's devices."""
    leaves, structure = jax.tree.flatten(stacked)
    if not leaves:  # a method without state
        return []
    parts = [
        [
            np.asarray(shard.data)
            for shard in sorted(x.addressable_shards, key=lambda s: s.index[axis].start or 0)
        ]
        for x in leaves
    ]
    return [jax.tree.unflatten(structure, part) for part in zip(*parts, strict=True)]


class Windows:
    """The states of all clients, as a run goes through them."""

    def __init__(
        self, store: Store, shelf: Shelf, chosen: Callable[[int, int], np.ndarray]
    ) -> None:
        """chosen: first round, rounds -> the clients they select, in order [n]."""
        self.store, self._shelf, self._chosen = store, shelf, chosen
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="states")
        self._rooms = [shelf.room(), shelf.room()]
        self._next: Future[Window] | None = None
        self._last: tuple[Layout, list[Tree]] | None = None  # the last window, worked on,
        self._kept = True  # and whether it is in the store

    def enter(self, first: int, rounds: int) -> Window:
        """The clients of these rounds, with their states."""
        window = self._next.result() if self._next else None
        self._next = None
        if window is None or (window.first, window.rounds) != (first, rounds):
            self.settle()
            return self._fetch(first, rounds, self._chosen(first, rounds), np.zeros(0, np.int32))
        if self._last:  # who was in the last window as well comes from there
            self._hand_over(*self._last, window)
        return window

    def leave(self, window: Window, states: Tree) -> None:
        """The window's states after its rounds, on the mesh."""
        self.settle()  # the window before, if nobody has asked for another
        self._last, self._kept = (window.layout, shards(states)), False

    def expect(self, first: int, rounds: int, now: Window) -> None:
        """Begin to fetch the window of these rounds; `now` is the one that is worked on."""
        clients = self._chosen(first, rounds)  # asks a device, before it is busy

        def job() -> Window:
            self._put_away()
            return self._fetch(first, rounds, clients, now.layout.present)

        self._next = self._worker.submit(job)

    def settle(self) -> None:
        """Return when the store holds the states of all clients."""
        self._worker.submit(self._put_away).result()

    def _put_away(self) -> None:
        if self._kept or self._last is None:
            return
        for clients, rows, states in self._shelf.by_device(*self._last):
            self.store.write(clients, rows, states)
        self._kept = True

    def _fetch(self, first: int, rounds: int, clients: np.ndarray, without: np.ndarray) -> Window:
        self._rooms.reverse()  # the other one may still be read
        window = Window(first, rounds, self._shelf.seat(clients), self._rooms[0])
        mine, rows = self._shelf.local(window.layout)
        needed = ~np.isin(mine, without)
        self.store.read(mine[needed], rows[needed], window.states)
        return window

    def _hand_over(self, layout: Layout, states: list[Tree], window: Window) -> None:
        mine, rows = self._shelf.local(window.layout)
        order = np.argsort(mine)
        mine, rows = mine[order], rows[order]
        for clients, old, part in self._shelf.by_device(layout, states):
            stays = np.isin(clients, mine)
            new = rows[np.searchsorted(mine, clients[stays])]
            for room, x in zip(jax.tree.leaves(window.states), jax.tree.leaves(part), strict=True):
                room[new] = x[old[stays]]
