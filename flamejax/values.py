"""Kinds of values that settings take."""

from __future__ import annotations

import os
import re
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

UNITS = {"": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def _bytes(value: Any) -> Any:
    """A number of bytes, also with a unit.

    >>> _bytes("1.5 GB")
    1500000000
    """
    if not isinstance(value, str) or value == "auto":
        return value
    found = re.fullmatch(r"(\d{1,15}(?:\.\d{1,15})?) ?([kMGT]?B)?", value)
    if not found:
        raise ValueError("a number of bytes, such as 2000000000 or '2GB'")
    return int(float(found[1]) * UNITS[(found[2] or "").removeprefix("B")])


def minutes(interval: Any) -> float | None:
    """The minutes of an interval, if it is one of time.

    >>> minutes("10min")
    10.0
    """
    text = interval if isinstance(interval, str) else ""
    found = re.fullmatch(r"(\d{1,6}(?:\.\d{1,6})?) ?min", text)
    return float(found[1]) if found and float(found[1]) else None


def _interval(value: Any) -> Any:
    if isinstance(value, str) and value != "never" and minutes(value) is None:
        raise ValueError("a number of rounds, or of minutes as in '10min', or 'never'")
    return value


def _absolute(path: str) -> str:
    """A path that means the same wherever the recorded config is run again; none stays none."""
    if path == "~" or path.startswith("~/"):
        path = os.path.expanduser(path)
    return os.path.abspath(path) if path else ""


def _absolute_name(name: str) -> str:
    """A data set's name; a file that is named in it is meant wherever the config is run again."""
    kind, _, path = name.partition(":")
    return f"npz:{_absolute(path)}" if kind == "npz" and path else name


Positive = Annotated[float, Field(gt=0, lt=3e38)]  # no more than float32 can hold
NonNegative = Annotated[float, Field(ge=0, lt=3e38)]
Fraction = Annotated[float, Field(gt=0, lt=1)]
Count = Annotated[int, Field(gt=0, lt=2**31)]
Bytes = Annotated[int, Field(gt=0, lt=2**60), BeforeValidator(_bytes)]
Interval = Annotated[Count | str, BeforeValidator(_interval)]  # rounds, "10min", or "never"
# the bound also makes pydantic refuse what is not Unicode, and so cannot be written to config.toml
FilePath = Annotated[str, Field(max_length=4096), AfterValidator(_absolute)]
DataName = Annotated[str, Field(max_length=4096), AfterValidator(_absolute_name)]
