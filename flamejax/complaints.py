"""What a config's reader is told of a mistake: one line that names the key."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, ValidationError

from flamejax import registry


def one_line(error: ValidationError, schema: type[BaseModel], prefix: str) -> str:
    """The first complaint of pydantic as `key = value should be ...`."""
    problem = error.errors()[0]
    fields, depth = schema.model_fields, 0
    for depth, part in enumerate(problem["loc"], start=1):
        inner = fields[part].annotation if part in fields else None
        if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
            break  # what follows in `loc` names the branch of a union, not a key
        if depth < len(problem["loc"]):
            fields = inner.model_fields
    where = problem["loc"][:depth]
    outer = [*[prefix] * bool(prefix), *where[:-1]]
    key = dotted([*outer, *where[-1:]])
    if not where:  # what is no Unicode cannot even be looked for
        return f"{registry.short(problem['input'])} is not a known key"
    if problem["type"] in ("extra_forbidden", "invalid_key"):
        beside = "".join(f"{part}." for part in outer)
        hint = registry.nearest(str(where[-1]), sorted(fields), beside)
        return f"{key} is not a known key{hint}"
    wishes = [
        "a table of settings"
        if p["type"] in ("model_type", "model_attributes_type")
        else p["msg"].removeprefix("Input should be ").removeprefix("Value error, ")
        for p in error.errors()
        if p["loc"][:depth] == where
    ]
    wish = " or ".join(dict.fromkeys(wishes))
    return f"{key} = {registry.short(problem['input'])} should be {wish}"


def dotted(parts: Sequence[Any]) -> str:
    """A key path as it is quoted in a message; what is not a plain word stands in quotes."""
    plain = re.compile(r"[\w-]{1,24}")
    words = map(str, parts)
    return ".".join(word if plain.fullmatch(word) else registry.short(word, 24) for word in words)
