"""flamejax on a bad machine: a disk that fills up, a clock that jumps.

    python faulty.py [--disk BYTES --folder DIR] [--clock SEED] -- run --out DIR ...

--disk: after so many bytes, writing below DIR fails as on a full disk. --clock: the time of day
jumps by up to ten years, back and forth.
"""

from __future__ import annotations

import argparse
import builtins
import errno
import io
import os
import random
import sys
import time
from pathlib import Path
from typing import Any


class Disk:
    """Room for some bytes below a folder."""

    def __init__(self, folder: Path, room: int) -> None:
        self.folder, self.room = folder.absolute(), room

    def holds(self, file: Any) -> bool:
        if not isinstance(file, str | os.PathLike):
            return False
        return Path(os.fspath(file)).absolute().is_relative_to(self.folder)

    def take(self, wanted: int) -> int:
        given = min(wanted, self.room)
        self.room -= given
        if wanted and not given:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return given


def fill(disk: Disk) -> None:
    """From now on files below the folder of `disk` are written to it."""
    plain = io.open

    class Limited(io.FileIO):
        def write(self, data: Any) -> int:
            view = memoryview(data).cast("B")
            return super().write(view[: disk.take(len(view))])

    def opened(file: Any, mode: str = "r", *more: Any, **options: Any) -> Any:
        if not set(mode) & set("wax") or "+" in mode or not disk.holds(file):
            return plain(file, mode, *more, **options)
        buffer = io.BufferedWriter(Limited(file, "".join(set(mode) & set("wax"))))
        text = {k: v for k, v in options.items() if k in ("encoding", "errors", "newline")}
        return buffer if "b" in mode else io.TextIOWrapper(buffer, **text)

    io.open = builtins.open = opened


def jump(seed: int) -> None:
    """From now on the time of day is not to be trusted."""
    rng, plain = random.Random(seed), time.time_ns
    ahead = [0]

    def nanoseconds() -> int:
        if rng.random() < 0.3:
            ahead[0] = rng.randint(-(10**9), 10**9) * 315_000_000  # ten years
        return plain() + ahead[0]

    time.time_ns = nanoseconds
    time.time = lambda: nanoseconds() / 1e9


def main() -> None:
    split = sys.argv.index("--")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--disk", type=int)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--clock", type=int)
    options = parser.parse_args(sys.argv[1:split])
    sys.argv = ["faulty", *sys.argv[split + 1 :]]
    if options.disk is not None:
        fill(Disk(options.folder, options.disk))
    if options.clock is not None:
        jump(options.clock)
    from flamejax.cli import entry

    entry()


if __name__ == "__main__":
    main()
