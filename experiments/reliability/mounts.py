"""Real full disks and read-only folders, where this process may mount something (root on Linux)."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path


def _mount(*arguments: str) -> bool:
    return subprocess.run(["mount", *arguments], capture_output=True).returncode == 0


def _unmount(folder: Path) -> None:
    subprocess.run(["umount", "--lazy", str(folder)], capture_output=True)


@cache
def possible() -> bool:
    """Whether mounting works here."""
    if sys.platform != "linux":
        return False
    with tempfile.TemporaryDirectory() as folder:
        try:
            works = _mount("-t", "tmpfs", "-o", "size=64k", "tmpfs", folder)
        except OSError:
            return False
        if works:
            _unmount(Path(folder))
        return works


@contextmanager
def disk(folder: Path, kilobytes: int) -> Iterator[None]:
    """A small disk, mounted there."""
    folder.mkdir(parents=True, exist_ok=True)
    if not _mount("-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(folder)):
        raise OSError(f"cannot mount a disk at {folder}")
    try:
        yield
    finally:
        _unmount(folder)


def resize(folder: Path, kilobytes: int) -> None:
    """Give a small disk another size."""
    if not _mount("-o", f"remount,size={kilobytes}k", str(folder)):
        raise OSError(f"cannot resize the disk at {folder}")


@contextmanager
def mounted_again(folder: Path) -> Iterator[None]:
    """The folder on a mount of its own, which `freeze` can make read-only."""
    if not _mount("--bind", str(folder), str(folder)):
        raise OSError(f"cannot mount {folder}")
    try:
        yield
    finally:
        _unmount(folder)


def freeze(folder: Path) -> bool:
    """Make a mount read-only; False while a file is open for writing there."""
    return _mount("-o", "remount,bind,ro", str(folder))


@contextmanager
def frozen(folder: Path, patience: float = 2.0) -> Iterator[bool]:
    """A folder in which nothing can be written for a while; gives whether that is so."""
    if os.geteuid() != 0:
        inner = [folder, *(path for path in folder.rglob("*") if path.is_dir())]
        for path in inner:
            path.chmod(0o555)
        try:
            yield True
        finally:
            for path in inner:
                path.chmod(0o755)
    elif possible():
        with mounted_again(folder):
            until = time.monotonic() + patience
            while not (done := freeze(folder)) and time.monotonic() < until:
                time.sleep(0.001)
            yield done
    else:  # root may write anywhere
        yield False
