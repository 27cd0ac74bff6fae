"""The devices of all processes, as one."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import jax
import numpy as np
from jax import Array, lax
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

A_DAY = 86400


def connect(address: str, size: int, rank: int, devices: int) -> list[jax.Device]:
    """The devices of all processes, `devices` of each if they are CPUs; ready for collectives.

    Lines between CPU devices are laid at the first collective, for which all have to be there
    within 30 s: so it is one of our own, at once. Afterwards JAX's service is not needed any more,
    and would only end processes in its own way: everyone leaves it.
    """
    jax.config.update("jax_enable_preemption_service", False)  # it would swallow SIGTERM
    if "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
        jax.config.update("jax_num_cpu_devices", devices)
    jax.distributed.initialize(
        address, size, rank, cluster_detection_method="deactivate", initialization_timeout=A_DAY
    )
    found = jax.devices()
    with _without_output():
        anywhere(found, np.zeros(1, bool))
    if found[0].platform == "cpu":
        jax.distributed.shutdown()
    return found


def anywhere(devices: list[jax.Device], mine: np.ndarray) -> np.ndarray:
    """Which of these flags [k] are set in some process."""
    mesh = Mesh(np.array(devices), ("all",))
    rows = np.tile(mine.astype(np.int32), (len(devices), 1))
    split = NamedSharding(mesh, P("all"))
    placed = jax.make_array_from_callback(rows.shape, split, rows.__getitem__)
    return np.asarray(_sum_over(mesh)(placed)) > 0


def _sum_over(mesh: Mesh) -> jax.stages.Wrapped:
    def total(x: Array) -> Array:
        return lax.psum(x.sum(0, dtype=x.dtype), "all")

    return jax.jit(
        jax.shard_map(total, mesh=mesh, in_specs=P("all"), out_specs=P(), check_vma=False)
    )


@contextmanager
def _without_output() -> Iterator[None]:
    """Gloo greets on the standard output, past Python."""
    sys.stdout.flush()
    kept, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    try:
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)
        os.close(nowhere)
