"""Small files that somebody else has written or named."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from flamejax.errors import InputError

LONGEST = 2**25  # bytes; some files never end, such as /dev/zero
DEEPEST = 20  # tables within tables


def read_text(path: str | Path) -> str:
    """The whole file, if it is not absurdly long."""
    with open(path, "rb") as file:
        content = file.read(LONGEST + 1)
    if len(content) > LONGEST:
        raise InputError(f"{path}: more than {LONGEST} bytes, too many for such a file")
    return content.decode("utf-8")


def load(path: str | Path) -> dict[str, Any]:
    """The nested values of a TOML file."""
    try:
        values = tomllib.loads(read_text(path))
    except OSError as error:
        raise InputError(f"{path}: cannot read the config: {error.strerror}") from None
    except (ValueError, RecursionError) as error:  # syntax, encoding, endless numbers
        reason = " ".join(str(error).split())[:120]
        raise InputError(f"{path}: not valid TOML: {reason}") from None
    tables = [values]
    for _ in range(DEEPEST):  # a dotted key may go on for ever
        tables = [x for table in tables for x in table.values() if isinstance(x, dict)]
    if tables:
        raise InputError(f"{path}: tables more than {DEEPEST} deep; no setting is there")
    return values
