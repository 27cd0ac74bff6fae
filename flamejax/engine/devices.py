"""Which devices a run uses, and how its clients are laid out on them."""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax
from jax.sharding import AxisType, Mesh

from flamejax import hosts
from flamejax.errors import InputError
from flamejax.types import Tree

AXIS = "clients"
MOST_CPU_DEVICES = 64  # each is a pool of threads
CAREFUL_DEALS = 4096  # of clients to devices; the smaller ones after them even out by number
# XLA ends the process when one CPU device waits a minute for another; a round may well be longer
PATIENCE = (
    "--xla_cpu_collective_call_warn_stuck_timeout_seconds=86400 "
    "--xla_cpu_collective_call_terminate_timeout_seconds=86400 "
    "--xla_cpu_collective_timeout_seconds=86400"
)


def make_mesh(requested: int | Literal["auto", "all"], useful: int) -> Mesh:
    """A mesh with one axis, the clients'.

    On CPU a "device" is a thread pool: one per core is fastest, and has to be arranged before JAX
    starts, unless the user has done so. `auto` takes every device, but no more than `useful`.
    """
    if "xla_cpu_collective_call" not in os.environ.get("XLA_FLAGS", ""):
        os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {PATIENCE}".strip()
    if hosts.count() > 1:
        return _mesh(hosts.devices(requested))
    arranged = "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    late, cores = False, hosts.cores()
    if not arranged and getattr(jax.config, "jax_num_cpu_devices", -1) < 0:
        more = requested if isinstance(requested, int) and requested <= MOST_CPU_DEVICES else 1
        try:
            jax.config.update("jax_num_cpu_devices", max(cores, more))
        except RuntimeError:  # JAX is already running: its devices it is
            late = True
    devices = jax.devices()
    if late and devices[0].platform == "cpu" and len(devices) < min(cores, useful):
        warnings.warn(
            f"JAX was running before flamejax could give it a device for each of {cores} cores, "
            f"so this run uses {len(devices)}: call flamejax before other JAX code, or begin with "
            f"jax.config.update('jax_num_cpu_devices', {cores})",
            stacklevel=2,
        )
    named = {"auto": min(len(devices), useful), "all": len(devices)}
    wanted = named[requested] if isinstance(requested, str) else requested
    if wanted > len(devices):
        raise InputError(
            f"engine.devices = {wanted} but JAX has {len(devices)} {devices[0].platform} "
            "device(s); on CPU more can be had only before JAX starts"
        )
    return _mesh(devices[:wanted])


def _mesh(devices: Sequence[jax.Device]) -> Mesh:
    return Mesh(np.array(devices), (AXIS,), axis_types=(AxisType.Auto,))


def total(parts: Tree, packed: bool | None = None) -> Tree:
    """Sums over all devices, leaf by leaf; on every device.

    packed: whether leaves travel together; if not given, between processes they do. There every
    leaf would travel alone, which for small ones takes most of the time.
    """
    if not (hosts.count() > 1 if packed is None else packed):
        return lax.psum(parts, AXIS)
    leaves, structure = jax.tree.flatten(parts)
    sums: dict[int, Array] = {}
    for dtype in {leaf.dtype for leaf in leaves}:
        same = [i for i, leaf in enumerate(leaves) if leaf.dtype == dtype]
        whole = lax.psum(jnp.concatenate([leaves[i].reshape(-1) for i in same]), AXIS)
        ends = np.cumsum([leaves[i].size for i in same])
        pieces = jnp.split(whole, ends[:-1])
        sums |= {i: x.reshape(leaves[i].shape) for i, x in zip(same, pieces, strict=True)}
    return jax.tree.unflatten(structure, [sums[i] for i in range(len(leaves))])


class Size(NamedTuple):
    """Of a store on devices that holds some of the clients at a time."""

    devices: int
    processes: int
    slots: int  # for clients on each device

    @classmethod
    def of(cls, clients: int, devices: int, processes: int) -> Size:
        """Enough for `clients` of them. They belong to processes by their numbers, and one may
        have more of them than another: eight standard deviations more are allowed for."""
        mine = clients / processes
        most = min(clients, mine + 8 * np.sqrt(mine) + 8) if processes > 1 else clients
        return cls(devices, processes, int(np.ceil(most * processes / devices)))


class Layout(NamedTuple):
    """Clients in slots. Device d owns slots d*K .. d*K+K-1: its clients by falling size, then rows
    for guests."""

    client: np.ndarray  # [D * K] the client in each slot; what no client is called, if it is empty
    present: np.ndarray  # [n] the clients there, in order,
    slot: np.ndarray  # [n] and their slots


def lay_out(work: np.ndarray, devices: int, guests: int = 0, slots: int | None = None) -> Layout:
    """Give every device an equal number of slots and, as nearly as is easy, equal work [n].

    Clients are dealt from the largest to the smallest, one to each device at a time, the largest
    of them to the device with the least work so far. slots: of a device, if not as few as will do.
    """
    clients = len(work)
    slots = -(-clients // devices) if slots is None else slots
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
    return Layout(client.astype(np.int32), np.arange(clients, dtype=np.int32), slot[:-1])


def seat(clients: np.ndarray, work: np.ndarray, nobody: int, size: Size, guests: int = 0) -> Layout:
    """A layout of some clients [n], in order, with work [n]; each on a device of its process."""
    parts = []
    for process in range(size.processes):
        own = clients % size.processes == process
        here = lay_out(work[own], size.devices // size.processes, guests, size.slots)
        parts.append(np.append(clients[own], nobody)[here.client])
    client = np.concatenate(parts).astype(np.int32)
    slot = np.argsort(client, kind="stable")[: len(clients)].astype(np.int32)
    room = size.slots * size.devices - len(clients)
    return Layout(
        client,
        np.pad(client[slot], (0, room), constant_values=nobody),
        np.pad(slot, (0, room)),
    )
