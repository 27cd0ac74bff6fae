"""How much memory a run needs, and how much there is."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, NamedTuple

import jax

from flamejax.catalog import size
from flamejax.config import Config
from flamejax.errors import InputError

DENSE = 2**30  # bytes of all clients' states that are kept on the devices unless asked otherwise
WINDOW = 2**26  # bytes of states brought to the devices at a time, if a round needs no more
GROUP = Path("/sys/fs/cgroup")


def budget(config: Config) -> int:
    """Bytes of memory for the states that the host keeps."""
    asked = config.engine.state_budget
    return free_memory() // 2 if asked == "auto" else asked


def free_memory(group: Path = GROUP) -> int:
    """Bytes that can be had, or a guess; group: what the system says of a container."""
    try:  # this counts what the disk's cache would give back
        with open("/proc/meminfo") as lines:
            free = next(int(x.split()[1]) * 1024 for x in lines if x.startswith("MemAvailable:"))
    except (OSError, ValueError, StopIteration):
        return 4 * DENSE
    left = _left_to_group(group)
    return free if left is None else min(free, left)


def _left_to_group(group: Path) -> int | None:
    """Bytes that a container leaves to its processes, if it has a limit."""
    try:
        most, taken = (int((group / f"memory.{name}").read_text()) for name in ("max", "current"))
        counted = (line.split() for line in (group / "memory.stat").read_text().splitlines())
        cache = sum(int(size) for name, size in counted if name == "inactive_file")
        return max(0, most - taken + cache)  # what the disk's cache has can be had, too
    except (OSError, ValueError):
        return None


def resident() -> int:
    """Bytes of memory that this process has; 0 where unknown."""
    try:
        with open("/proc/self/statm") as line:
            return int(line.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0


def window(config: Config) -> int:
    """Bytes of states to bring to the devices at a time: several such parts are in memory."""
    given = config.engine.state_budget
    return WINDOW if given == "auto" else min(WINDOW, given // 16)


class Need(NamedTuple):
    """Bytes that a run takes on the devices of this process, which may be the host's memory."""

    data: int  # samples
    states: int  # of clients that are there at a time
    temporary: int  # while it computes
    free: int  # that there are

    @property
    def whole(self) -> int:
        return self.data + self.states + self.temporary


def check_placed(data: int, states: int, clients: int) -> Need:
    """Refuse what has no place, before it is put there; data: samples on this process's devices,
    states: of so many clients."""
    need = Need(data, states, 0, _free())
    if need.whole > need.free:
        which = "partition.clients" if states > data else "data.limit"
        more = ", or try engine.store = 'touched'" if states > data else ""
        raise _too_much(
            f"the states of {clients:,} clients take {size(states)} and their samples {size(data)}",
            need.free,
            f"lower {which}{more}",
        )
    return need


def check_programs(need: Need, programs: list[Any]) -> Need:
    """Refuse what has no room to compute; programs: as JAX compiled them."""
    temporary = max(program.memory_analysis().temp_size_in_bytes for program in programs)
    free = _free()  # what was placed is not any more
    if temporary > free:
        raise _too_much(
            f"a round needs {size(temporary)} to compute with",
            free,
            "lower method.batch, or try engine.execution = 'map', one client at a time",
        )
    return need._replace(temporary=temporary)


def _free() -> int:
    """Bytes on the devices of this process."""
    stats = [device.memory_stats() for device in jax.local_devices()]
    if any(not found or "bytes_limit" not in found for found in stats):
        return free_memory()  # CPUs share the host's
    return sum(found["bytes_limit"] - found.get("bytes_in_use", 0) for found in stats if found)


def _too_much(what: str, free: int, fix: str) -> InputError:
    return InputError(f"memory: {what}, and {size(free)} are free; {fix}")
