"""Faults of the machine that tests switch on: they are made where Python meets the system, so they
do not depend on which module of the package does the work."""

from __future__ import annotations

import builtins
import errno
import fnmatch
import io
import itertools
import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import flamejax as fj
from flamejax.config import Config


class InterruptAfter(fj.Callback):
    """Ctrl-C after so many calls of the compiled rounds."""

    def __init__(self, calls: int) -> None:
        self.left = calls

    def on_rounds(self, config: Config, done: int) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGINT)


class KillAfter(fj.Callback):
    """This process is killed, without a chance to do anything, after so many calls."""

    def __init__(self, calls: int) -> None:
        self.left = calls

    def on_rounds(self, config: Config, done: int) -> None:
        self.left -= 1
        if self.left == 0:
            os.kill(os.getpid(), signal.SIGKILL)


class Seen(fj.Callback):
    """Calls `then` whenever some rounds are over."""

    def __init__(self, then: Callable[[Config, int], Any]) -> None:
        self.on_rounds = then  # type: ignore[method-assign]


class Rows(fj.Callback):
    """Keeps the rows of all evaluations."""

    def __init__(self) -> None:
        self.rows: list[Mapping[str, Any]] = []

    def on_evaluation(self, config: Config, row: Mapping[str, Any]) -> None:
        self.rows.append(row)


def memory_left(monkeypatch: pytest.MonkeyPatch, *amounts: int) -> None:
    """The system says that so many kB (1,024 bytes) of memory can be had: one amount for every
    time it is asked, and the last of them ever after."""
    left, plain = list(amounts), builtins.open

    def tell(file: Any, *arguments: Any, **options: Any) -> Any:
        if file != "/proc/meminfo":
            return plain(file, *arguments, **options)
        amount = left.pop(0) if len(left) > 1 else left[0]
        return io.StringIO(f"MemTotal: 99999999 kB\nMemAvailable: {amount} kB\n")

    monkeypatch.setattr(builtins, "open", tell)


def when_written(
    monkeypatch: pytest.MonkeyPatch, names: str, then: Callable[[Any, int], None]
) -> None:
    """Calls `then` whenever a file with such a name (a pattern of the shell, for the last part of
    its path) has been opened to write to it: with what was opened, and how often before that."""
    plain, plain_low, before = io.open, os.open, itertools.count()

    def meant(file: Any) -> bool:
        return isinstance(file, str | os.PathLike) and fnmatch.fnmatch(Path(file).name, names)

    def opened(file: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
        handle = plain(file, mode, *arguments, **options)
        if meant(file) and {*mode} & {*"wax+"}:
            then(handle, next(before))
        return handle

    def opened_low(file: Any, flags: int, *arguments: Any, **options: Any) -> int:
        number = plain_low(file, flags, *arguments, **options)
        if meant(file) and flags & (os.O_WRONLY | os.O_RDWR):
            then(number, next(before))
        return number

    monkeypatch.setattr(io, "open", opened)
    monkeypatch.setattr(builtins, "open", opened)
    monkeypatch.setattr(os, "open", opened_low)


def full_disk(monkeypatch: pytest.MonkeyPatch, names: str, after: int = 0) -> None:
    """No space is left for files with such names (a pattern of the shell), once `after` of them
    were written: they are still made, but nothing can be written to them."""

    def fail(*_: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def fill(handle: Any, before: int) -> None:
        if before < after:
            return
        if isinstance(handle, int):
            os.close(handle)
            fail()
        handle.write = fail

    when_written(monkeypatch, names, fill)
