"""Small files that somebody else has written or named."""

from __future__ import annotations

from pathlib import Path

from flamejax.errors import InputError

LONGEST = 2**25  # bytes; some files never end, such as /dev/zero


def read_text(path: str | Path) -> str:
    """The whole file, if it is not absurdly long."""
    with open(path, "rb") as file:
        content = file.read(LONGEST + 1)
    if len(content) > LONGEST:
        raise InputError(f"{path}: more than {LONGEST} bytes, too many for such a file")
    return content.decode("utf-8")
