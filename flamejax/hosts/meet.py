"""The processes of a run find one another before JAX starts: its own errors cannot be caught."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections import Counter
from contextlib import suppress
from typing import NamedTuple

from flamejax.errors import InputError
from flamejax.hosts.watch import BEAT, Group, Line, tell


class Meeting(NamedTuple):
    group: Group
    address: str  # where JAX's own service may be
    cores: int  # for each process: all have as many
    seat: int  # which of the processes on its machine this is


def meet(address: str, size: int, rank: int, token: str, cores: int, seconds: float) -> Meeting:
    """Wait until all processes of the run are there.

    token: one word for what has to be the same everywhere, config and versions; cores: of this
    machine, to be shared by the processes on it.
    """
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise InputError(f"--coordinator {address}: write it as HOST:PORT")
    group, until = Group(rank, size, {}, threading.Event()), time.monotonic() + seconds
    mine = f"{socket.gethostname()} {cores}"
    if rank:
        answer = _call(group, host, int(port), f"flamejax {size} {token} {rank} {mine}", until)
        numbers = answer.split()
        if len(numbers) != 3 or not all(map(str.isdecimal, numbers)):
            raise InputError(f"rank 0 at {address}: {answer or 'no answer'}")
        return Meeting(group, f"{host}:{numbers[0]}", int(numbers[1]), int(numbers[2]))
    try:
        loopback = host == "localhost" or host.startswith("127.")
        server = socket.create_server((host if loopback else "", int(port)))
    except OSError as error:
        why = os.strerror(error.errno or 0)
        raise InputError(f"rank 0 cannot listen at {address}: {why}") from None
    machines = {0: mine}
    with server, socket.create_server(("", 0)) as free:
        while missing := sorted(set(range(1, size)) - set(group.lines)):
            server.settimeout(max(0.01, until - time.monotonic()))
            try:
                link = server.accept()[0]
            except TimeoutError:
                why = f"after {seconds:.0f} s there is no rank {', '.join(map(str, missing))}"
                tell(group, why)
                raise InputError(why) from None
            machines |= _greet(group, link, f"flamejax {size} {token}", missing)
        chosen = free.getsockname()[1]
    names = [machines[number].split()[0] for number in range(size)]
    there = Counter(names)
    each = min(max(1, int(c) // there[name]) for name, c in map(str.split, machines.values()))
    for number, line in group.lines.items():
        seat = names[:number].count(names[number])
        tell(group._replace(lines={number: line}), f"{chosen} {each} {seat}")
    return Meeting(group, f"{host}:{chosen}", each, 0)


def _greet(group: Group, link: socket.socket, hello: str, missing: list[int]) -> dict[int, str]:
    """Let a process in, and note its machine. What is not flamejax is let go without a word."""
    link.settimeout(BEAT)
    line = Line(link, link.makefile())
    with suppress(OSError, ValueError):
        said, rank, name, cores = line.text.readline().rsplit(" ", 3)
        if said == hello and int(rank) in missing and int(cores) > 0:
            group.lines[int(rank)] = line
            return {int(rank): f"{name} {int(cores)}"}
        if said.startswith("flamejax "):
            link.sendall(b"its --processes, config or versions differ, or it has this --rank\n")
    return {}


def _call(group: Group, host: str, port: int, hello: str, until: float) -> str:
    """What rank 0 answers, once everyone has come."""
    while True:
        try:
            link = socket.create_connection((host, port), timeout=BEAT)
            break
        except OSError as error:
            if time.monotonic() > until:
                raise InputError(f"no rank 0 at {host}:{port}: {error}") from None
            time.sleep(0.2)
    link.settimeout(max(0.0, until - time.monotonic()) + 2 * BEAT)
    group.lines[0] = Line(link, link.makefile())
    with suppress(OSError, UnicodeError):
        link.sendall(f"{hello}\n".encode())
        return group.lines[0].text.readline().strip()
    return ""
