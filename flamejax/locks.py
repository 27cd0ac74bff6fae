"""A folder is for one process at a time."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from flamejax.errors import InputError


@contextmanager
def held(out: Path | None) -> Iterator[None]:
    """A folder for this process alone; made if need be, and gone again if it stays empty."""
    if out is None:
        yield
        return
    made = [path for path in (out, *out.absolute().parents) if not path.exists()]
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"--out: cannot write {out}: {error.strerror}") from None
    try:
        with alone(out):
            yield
    finally:
        for path in made:
            with suppress(OSError):  # only what stayed empty goes
                path.rmdir()


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Two processes in one folder would take each other's runs for unfinished ones.

    The lock is the system's: it is gone with the process, however that ends.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"--out {folder} is in use by another process") from None
        except OSError:  # a file system without locks
            pass
        yield
    finally:
        os.close(handle)
