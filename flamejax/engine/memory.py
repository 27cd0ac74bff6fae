"""How much memory there is for the states of clients."""

from __future__ import annotations

import os

from flamejax.config import Config

DENSE = 2**30  # bytes of all clients' states that are kept on the devices unless asked otherwise
WINDOW = 2**26  # bytes of states brought to the devices at a time, if a round needs no more


def budget(config: Config) -> int:
    """Bytes of memory for the states that the host keeps."""
    asked = config.engine.state_budget
    return free_memory() // 2 if asked == "auto" else asked


def free_memory() -> int:
    """Bytes that can be had, or a guess."""
    try:  # this counts what the disk's cache would give back
        with open("/proc/meminfo") as lines:
            return next(int(x.split()[1]) * 1024 for x in lines if x.startswith("MemAvailable:"))
    except (OSError, ValueError, StopIteration):
        return 4 * DENSE


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
