"""How configs, data and models are given, and lists of them for several runs."""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from flamejax import registry
from flamejax.config import Config, load
from flamejax.errors import InputError
from flamejax.types import Dataset, Model

SEEDS = "whole numbers >= 0"


def values_of(config: Config | Mapping[str, Any] | str | Path | None) -> Mapping[str, Any]:
    """The nested values of a config, however it is given."""
    if isinstance(config, Config):
        return config.model_dump()
    if isinstance(config, str | Path):
        return load(config)
    if not isinstance(config, Mapping | None):
        raise InputError(f"config should be a path, a mapping or a Config, not {type(config)}")
    return config or {}


def take_own(data: Any, model: Any, settings: dict[str, Any]) -> dict[str, Any]:
    """One's own data and model; where they are settings instead, they join the others."""
    own: dict[str, Any] = {}
    for name, value, kind in (("data", data, Dataset), ("model", model, Model)):
        if isinstance(value, kind):
            own[name] = value
        elif isinstance(value, Mapping):
            settings[name] = value
        elif value is not None:
            raise InputError(f"{name} should be a {kind.__name__} or settings, not {type(value)}")
    return own


def listed(option: str, given: Any, read: Callable[[Any], Any], wish: str) -> list[Any]:
    """The entries of a list, or of a string with commas; none of them twice."""
    try:
        words = [w.strip() for w in given.split(",")] if isinstance(given, str) else list(given)
        entries = [read(word) for word in words]
    except (ValueError, TypeError, OverflowError, AttributeError):
        entries = []
    if not entries:
        raise InputError(f"{option} {registry.short(given)} should be a list of {wish}")
    twice = next((entry for entry, times in Counter(entries).items() if times > 1), None)
    if twice is not None:
        raise InputError(f"{option} names {twice} twice")
    return entries


def read_seed(word: Any) -> int:
    """An entry of a list of seeds."""
    found = int(word) if isinstance(word, str) else operator.index(word)
    if not 0 <= found < 2**32:
        raise ValueError
    return found
