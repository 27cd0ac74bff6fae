"""Runs of several processes, on one machine or many, by JAX's own distributed runtime.

`join` makes this process one of them. All hold some of the clients and compute the same rounds; the
first one, rank 0, keeps the records. Importing this does not import JAX.
"""

from __future__ import annotations

import hashlib
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, NamedTuple

from flamejax.errors import DivergedError, InputError
from flamejax.hosts.meet import Meeting, meet
from flamejax.hosts.watch import leave, watch

if TYPE_CHECKING:
    import jax

START = 300.0  # seconds to wait for all processes
ECHO = 2.0  # seconds in which the loss of another process is told, before what it has caused here

_here: Meeting | None = None
_devices: list[jax.Device] = []


class Place(NamedTuple):
    """Of a process in a run of several."""

    coordinator: str  # HOST:PORT of rank 0
    processes: int
    rank: int


def rank() -> int:
    return _here.group.rank if _here else 0


def count() -> int:
    return _here.group.size if _here else 1


@contextmanager
def join(place: Place | None, token: str = "") -> Iterator[None]:
    """Be one of the processes of a run; without a place, the only one.

    token: what has to be the same in all of them.
    """
    global _here
    if place is None:
        yield
        return
    if _here:
        raise InputError("this process belongs to a run of several processes already")
    told = token + version("flamejax") + version("jax") + version("jaxlib")
    _here = meet(*place, hashlib.sha256(told.encode()).hexdigest(), cores(), START)
    group = _here.group
    watch(group)
    _take_cores(_here)
    try:
        yield
    except DivergedError:  # in all of them
        leave(group)
        raise
    except KeyboardInterrupt as stopped:  # at a round agreed upon, or at once
        leave(group, "bye" if stopped.args else f"rank {place.rank} was interrupted")
        raise
    except BaseException as error:
        time.sleep(ECHO)
        leave(group, f"rank {place.rank}: {error or type(error).__name__}")
        raise
    leave(group)


def devices(wanted: int | str) -> list[jax.Device]:
    """The devices of all processes; wanted: how many, if they are CPUs. The same ones ever after:
    these are connected."""
    if not _devices:
        from flamejax.hosts.connect import connect

        assert _here
        size = _here.group.size
        if isinstance(wanted, int) and wanted % size:
            raise InputError(f"engine.devices = {wanted} cannot be shared by {size} processes")
        each = wanted // size if isinstance(wanted, int) else _here.cores
        _devices.extend(connect(_here.address, size, _here.group.rank, each))
    return _devices


def meet_again() -> None:
    """Wait until all processes have come here."""
    agree(True)


def agree(*mine: bool) -> list[bool]:
    """For every question, whether some process says yes: the same answers in all of them."""
    if count() == 1:
        return list(mine)
    import numpy as np

    from flamejax.hosts.connect import anywhere

    return anywhere(_devices, np.array(mine)).tolist()


def from_cluster(given: Mapping[str, Any], environment: Mapping[str, str]) -> Place:
    """The place that a cluster's environment variables give a process: Slurm's, Open MPI's, or
    those of launchers like torchrun; `given` overrides."""

    def first(*names: str) -> str | None:
        return next((environment[name] for name in names if environment.get(name)), None)

    address = first("JAX_COORDINATOR_ADDRESS")
    if not address and first("MASTER_ADDR") and first("MASTER_PORT"):
        address = f"{environment['MASTER_ADDR']}:{environment['MASTER_PORT']}"
    nodes, job = first("SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"), first("SLURM_JOB_ID")
    if not address and nodes and job and job.isdecimal():
        address = f"{first_node(nodes)}:{int(job) % 4096 + 61440}"
    found = {
        "coordinator": address,
        "processes": first("SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "WORLD_SIZE"),
        "rank": first("SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "RANK"),
    }
    found |= {name: value for name, value in given.items() if value is not None}
    for name, value in found.items():
        if value is None:
            raise InputError(f"--cluster: no variable tells the {name}; give --{name}")
    return placed(str(found["coordinator"]), found["processes"], found["rank"])


def placed(coordinator: str, processes: Any, rank: Any) -> Place:
    """A place, checked."""
    try:
        size, number = int(processes), int(rank)
    except ValueError:
        raise InputError(
            f"--processes {processes} and --rank {rank} should be whole numbers"
        ) from None
    if not 1 <= size <= 100_000 or not 0 <= number < size:
        raise InputError(f"--rank {number} should be one of 0 .. {size - 1}, of --processes {size}")
    return Place(coordinator, size, number)


def first_node(nodes: str) -> str:
    """The first name in Slurm's short form of a list.

    >>> first_node("gpu[007-010,012],login1")
    'gpu007'
    """
    found = re.match(r"([^\[,]+)(?:\[([^\],-]+))?", nodes)
    return "".join(part or "" for part in found.groups()) if found else nodes


def _take_cores(here: Meeting) -> None:
    """Keep to this process's share of its machine: XLA would use all of it in every process."""
    if hasattr(os, "sched_setaffinity"):
        free = sorted(os.sched_getaffinity(0))
        share = free[here.seat * here.cores : (here.seat + 1) * here.cores]
        if len(share) == here.cores:  # and nobody has shared them out before
            os.sched_setaffinity(0, share)


def cores() -> int:
    """That this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
