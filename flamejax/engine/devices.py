"""Which devices a run uses, and how its clients are laid out on them."""

from __future__ import annotations

import os
import warnings
from typing import Literal, NamedTuple

import jax
import numpy as np
from jax.sharding import AxisType, Mesh

from flamejax.errors import InputError

AXIS = "clients"
MOST_CPU_DEVICES = 64  # each is a pool of threads
CAREFUL_DEALS = 4096  # of clients to devices; the smaller ones after them even out by number
# XLA ends the process when one CPU device waits a minute for another; a round may well be longer
PATIENCE = (
    "--xla_cpu_collective_call_warn_stuck_timeout_seconds=86400 "
    "--xla_cpu_collective_call_terminate_timeout_seconds=86400"
)


def make_mesh(requested: int | Literal["auto"], useful: int) -> Mesh:
    """A mesh with one axis, the clients'.

    On CPU a "device" is a thread pool: one per core is fastest, and has to be arranged before JAX
    starts, unless the user has done so. `auto` takes every device, but no more than `useful`.
    """
    if "xla_cpu_collective_call" not in os.environ.get("XLA_FLAGS", ""):
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {PATIENCE}".strip()
    arranged = "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    late = False
    if not arranged and getattr(jax.config, "jax_num_cpu_devices", -1) < 0:
        more = requested if requested != "auto" and requested <= MOST_CPU_DEVICES else 1
        try:
            jax.config.update("jax_num_cpu_devices", max(_cores(), more))
        except RuntimeError:  # JAX is already running: its devices it is
            late = True
    devices = jax.devices()
    if late and devices[0].platform == "cpu" and len(devices) < min(_cores(), useful):
        warnings.warn(
            f"JAX was running before flamejax could give it a device for each of {_cores()} cores, "
            f"so this run uses {len(devices)}: call flamejax before other JAX code, or begin with "
            f"jax.config.update('jax_num_cpu_devices', {_cores()})",
            stacklevel=2,
        )
    wanted = min(len(devices), useful) if requested == "auto" else requested
    if wanted > len(devices):
        raise InputError(
            f"engine.devices = {wanted} but JAX has {len(devices)} {devices[0].platform} "
            "device(s); on CPU more can be had only before JAX starts"
        )
    return Mesh(np.array(devices[:wanted]), (AXIS,), axis_types=(AxisType.Auto,))


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class Layout(NamedTuple):
    """Clients in slots. Device d owns slots d*K .. d*K+K-1: its clients by falling size, then rows
    for guests."""

    client: np.ndarray  # [D * K] the client in each slot, C where the slot is empty
    slot: np.ndarray  # [C + 1] the slot of each client; the last entry is unused


def lay_out(work: np.ndarray, devices: int, guests: int = 0) -> Layout:
    """Give every device an equal number of slots and, as nearly as is easy, equal work [C].

    Clients are dealt from the largest to the smallest, one to each device at a time, the largest
    of them to the device with the least work so far.
    """
    clients = len(work)
    slots = -(-clients // devices)
    order = np.append(np.argsort(-work, kind="stable"), np.full(slots * devices - clients, clients))
    deals, sizes = order.reshape(slots, devices), np.append(work, 0)
    load = np.zeros(devices)
    for deal in deals[:CAREFUL_DEALS]:
        deal[np.argsort(load, kind="stable")] = deal.copy()
        load += sizes[deal]
    rest = deals[CAREFUL_DEALS:]
    rest[1::2] = rest[1::2, ::-1].copy()  # small ones: there and back again
    client = np.concatenate([deals.T, np.full((devices, guests), clients)], axis=1).reshape(-1)
    slot = np.zeros(clients + 1, np.int32)
    slot[client] = np.arange(len(client))
    return Layout(client.astype(np.int32), slot)
