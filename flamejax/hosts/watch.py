"""The processes of a run keep an eye on one another: when one is lost, the others end at once.

JAX's own service notices late, and then ends a process in a way that cannot be caught; a process
that waits for a lost one inside a compiled program cannot do anything. So threads of our own send
signs of life over lines of our own, and end the process when another is gone.
"""

from __future__ import annotations

import os
import socket
import threading
from contextlib import suppress
from typing import NamedTuple, TextIO

from flamejax.arguments import FAILED

BEAT = 2.0  # seconds between signs of life
SILENCE = 20.0  # seconds without one, and a process is lost
_ending = threading.Lock()  # never released: only the first reason is told


class Line(NamedTuple):
    """To another process."""

    socket: socket.socket
    text: TextIO  # what comes from there


class Group(NamedTuple):
    """The processes of a run, as one of them sees them."""

    rank: int
    size: int
    lines: dict[int, Line]  # rank 0's to everyone, another's to rank 0
    left: threading.Event  # this process is done, and misses nobody


def watch(group: Group) -> None:
    """From now on the loss of a process ends this one, whatever it is at."""
    for other, line in group.lines.items():
        line.socket.settimeout(SILENCE)
        threading.Thread(target=_listen, args=(group, other), daemon=True).start()
    threading.Thread(target=_beat, args=(group,), daemon=True).start()


def leave(group: Group, why: str = "bye") -> None:
    """This process is done. With another word than "bye" the others end as well."""
    group.left.set()
    tell(group, why)


def tell(group: Group, what: str) -> None:
    for line in group.lines.values():
        with suppress(OSError):
            line.socket.sendall(" ".join(what.split()).encode() + b"\n")


def _beat(group: Group) -> None:
    while not group.left.wait(BEAT):
        tell(group, "")


def _listen(group: Group, other: int) -> None:
    said = "\n"
    while said == "\n":
        try:
            said = group.lines[other].text.readline()
        except TimeoutError:
            said = f"rank {other} has been silent for {SILENCE:.0f} s"
        except (OSError, UnicodeError):
            said = ""
    if said != "bye\n" and not group.left.is_set():
        _end(group, said.strip() or f"rank {other} ended before the run was over")


def _end(group: Group, why: str) -> None:
    """Not by `sys.exit`, nor `print`: the main thread may be inside XLA, or hold a lock."""
    _ending.acquire()
    tell(group, why)
    os.write(2, f"flamejax: a process of this run is lost: {why}\n".encode())
    os._exit(FAILED)
