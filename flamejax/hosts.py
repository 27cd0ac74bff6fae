"""Runs of several processes, on one machine or many, by JAX's own distributed runtime."""

from __future__ import annotations

import jax
import numpy as np


def rank() -> int:
    """The number of this process; the first one, 0, keeps the records."""
    return jax.process_index()


def count() -> int:
    return jax.process_count()


def meet(where: str) -> None:
    """Wait until all processes have come here."""
    if count() > 1:
        from jax.experimental.multihost_utils import sync_global_devices

        sync_global_devices(where)


def agree(*mine: bool) -> list[bool]:
    """What is true in some process, in all of them."""
    if count() == 1:
        return list(mine)
    from jax.experimental.multihost_utils import process_allgather

    return process_allgather(np.array(mine)).any(0).tolist()
