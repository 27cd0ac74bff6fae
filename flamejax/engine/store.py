"""States of clients in the host's memory and on its disk: only of those that were ever selected.

All others are in the initial state, which is stored once. States are taken in as they come; what
goes beyond a budget of memory is written to a file that has no name, and so is gone with the
process however that ends. Clients are selected with equal chances, so there is nothing to gain from
moving states between the two.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO

import jax
import numpy as np

from flamejax.errors import RunError
from flamejax.types import Tree

SLAB = 2**24  # bytes of memory taken at a time


class Store:
    """What is kept of every client that was ever selected.

    Not made for several threads at once.
    """

    def __init__(self, initial: Tree, budget: int, folder: Path | None = None) -> None:
        """initial: a client's state [...]; budget: bytes of memory; folder: for the file."""
        self._initial = _as_bytes(jax.tree.map(lambda x: np.asarray(x)[None], initial))
        self._sizes = [part.shape[1] for part in self._initial]
        self.record = sum(self._sizes)  # bytes of a client's state
        self.in_memory = budget // max(self.record, 1)  # states that fit
        self._per_slab = max(1, min(SLAB // max(self.record, 1), self.in_memory))
        self._slabs: list[list[np.ndarray]] = []
        self._rows: dict[int, int] = {}
        self._folder = folder
        self._file: IO[bytes] | None = None

    @property
    def clients(self) -> np.ndarray:
        """Whose states are kept, in the order in which they came."""
        return np.fromiter(self._rows, np.int32, len(self._rows))

    @property
    def spilled(self) -> int:
        """Bytes on disk."""
        return max(0, len(self._rows) - self.in_memory) * self.record

    def read(self, clients: np.ndarray, rows: np.ndarray, into: Tree) -> None:
        """The states of clients [n], written to rows [n] of a stacked tree of host arrays."""
        parts = _as_bytes(into)
        new = np.array([int(client) not in self._rows for client in clients], bool)
        for part, initial in zip(parts, self._initial, strict=True):
            part[rows[new]] = initial
        for client, row in zip(clients[~new].tolist(), rows[~new].tolist(), strict=True):
            kept = self._rows[client]
            if kept < self.in_memory:
                slab, place = divmod(kept, self._per_slab)
                for part, held in zip(parts, self._slabs[slab], strict=True):
                    part[row] = held[place]
            else:
                self._transfer(os.preadv, kept, _row(parts, row))

    def write(self, clients: np.ndarray, rows: np.ndarray, states: Tree) -> None:
        """Keep rows [n] of a stacked tree as the states of clients [n]."""
        parts = _as_bytes(states)
        for client, row in zip(clients.tolist(), rows.tolist(), strict=True):
            kept = self._rows.setdefault(client, len(self._rows))
            if kept < self.in_memory:
                slab, place = divmod(kept, self._per_slab)
                if slab == len(self._slabs):
                    self._slabs.append(
                        [np.empty((self._per_slab, n), np.uint8) for n in self._sizes]
                    )
                for part, held in zip(parts, self._slabs[slab], strict=True):
                    held[place] = part[row]
            else:
                self._transfer(os.pwritev, kept, _row(parts, row))

    def _transfer(self, move: Callable[..., int], kept: int, buffers: list[np.ndarray]) -> None:
        """One state from or to the file."""
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(dir=self._folder, prefix="states")  # noqa: SIM115
            moved = move(self._file.fileno(), buffers, (kept - self.in_memory) * self.record)
        except OSError as error:
            where = self._folder or tempfile.gettempdir()
            raise RunError(
                f"clients' states beyond engine.state_budget cannot be kept in {where}: "
                f"{error.strerror or error}"
            ) from None
        if moved != self.record:
            raise RunError(f"a state of {self.record} bytes moved {moved}: the disk is full")


def _as_bytes(stacked: Tree) -> list[np.ndarray]:
    """The leaves [n, ...] as bytes [n, size of one]; the same memory."""
    leaves = jax.tree.leaves(stacked)
    return [x.reshape(len(x), -1).view(np.uint8) for x in leaves if x.size]


def _row(parts: list[np.ndarray], row: int) -> list[np.ndarray]:
    return [part[row] for part in parts]
