"""Checkpoints that are written while rounds go on."""

from __future__ import annotations

import warnings
from pathlib import Path
from threading import Thread

import jax
import numpy as np

from flamejax import checkpoints, hosts, tree
from flamejax.checkpoints import Snapshot
from flamejax.engine.memory import free_memory
from flamejax.errors import WriteError


class Writer:
    """Writes the checkpoints of a run, one at a time.

    Rounds wait for a copy of the state; for all of the writing only if memory has no room for a
    copy, or if several processes have to meet. What cannot be written is a warning: the checkpoint
    before is kept, and the run goes on.
    """

    def __init__(self, folder: Path, config: str, keep: int) -> None:
        """folder: of all its checkpoints; config: the text of config.toml."""
        self.folder = folder
        self._config, self._keep = config, keep
        self._thread: Thread | None = None
        self._failure: WriteError | None = None

    def save(self, snapshot: Snapshot) -> None:
        self.finish()
        if hosts.count() > 1:
            checkpoints.save(self.folder, snapshot, self._config, self._keep)
            return
        states = snapshot.states
        if states.number * tree.nbytes(states.shapes) > free_memory() // 4:
            self._write(snapshot)
            self.finish()
            return
        trees = jax.tree.map(np.array, snapshot.trees)
        copied = snapshot._replace(trees=trees, states=states._replace(parts=list(states.parts)))
        self._thread = Thread(target=self._write, args=[copied], name="checkpoint")
        self._thread.start()

    def finish(self) -> None:
        """Wait until the last one is written, or could not be."""
        if self._thread:
            self._thread.join()
        failure, self._thread, self._failure = self._failure, None, None
        if failure:
            warnings.warn(str(failure), stacklevel=2)

    def newest(self) -> int | None:
        """The round of the newest checkpoint, when all are written."""
        self.finish()
        there = checkpoints.rounds(self.folder)
        return there[0] if there else None

    def _write(self, snapshot: Snapshot) -> None:
        try:
            checkpoints.save(self.folder, snapshot, self._config, self._keep)
        except WriteError as error:
            self._failure = error
