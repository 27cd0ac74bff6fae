"""What a sweep runs: every point of a grid with every seed, checked before the first one starts."""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from flamejax import registry
from flamejax.config import Config, lay_over, make, override
from flamejax.errors import InputError
from flamejax.given import SEEDS, listed, read_seed, values_of
from flamejax.reading import DEEPEST

MOST = 100_000  # runs of a grid
LONGEST_NAME = 150  # of a folder; file systems end at 255 bytes
Axes = dict[str, list[Any]]  # key path -> its values


class Run(NamedTuple):
    """One run of a sweep."""

    point: dict[str, Any]  # key path -> its value in this run
    config: Config

    @property
    def path(self) -> Path:
        """Its results folder, below that of the sweep."""
        return Path("runs", folder_of(self.point), f"seed{self.config.seed}")

    def __str__(self) -> str:
        return ", ".join([*map(assignment, self.point.items()), f"seed {self.config.seed}"])


def plan(
    config: Config | Mapping[str, Any] | str | Path | None,
    changes: Mapping[str, Any],
    grid: Mapping[str, Any] | Sequence[str] | None = None,
    seeds: Any = None,
) -> tuple[Axes, list[Run]]:
    """The values of every key, and all runs: by point, the last key changing first, and seed.

    The config may hold `seeds` and a table `grid` of its own, over which those given here are
    laid key by key. `changes` are laid over the rest, and then the point's values.
    """
    base = dict(values_of(config))
    axes = axes_of("", base.pop("grid", None), base.pop("seeds", None))
    axes |= axes_of("--", grid, seeds)
    _check(axes, changes)
    check_number(axes)
    own = axes.pop("seed", [None])  # None: the config's
    runs: list[Run] = []
    for values in product(*axes.values()):
        changed = changes
        for key, value in zip(axes, values, strict=True):
            changed = put(changed, key, key.split("."), value)
        for seed in own:
            made = make(lay_over(base, changed if seed is None else {**changed, "seed": seed}))
            runs.append(Run({key: _at(made, key) for key in axes}, made))
    folders = [run.path for run in runs]
    if len({*folders}) < len(runs):  # two spellings of one value
        twice = next(run for run in runs if folders.count(run.path) > 1)
        raise InputError(f"--grid names {', '.join(map(assignment, twice.point.items()))} twice")
    return values_in(runs), runs


def check_number(axes: Axes) -> None:
    """Refuse a grid that nobody could want all of."""
    runs = math.prod(map(len, axes.values()))
    if runs > MOST:
        said = ", ".join(f"{len(values)} of {key}" for key, values in axes.items())
        raise InputError(f"--grid: {runs} runs ({said}) are more than {MOST}; take fewer values")


def values_in(runs: Sequence[Run]) -> Axes:
    """The values of every key in these runs."""
    return {key: list(dict.fromkeys(run.point[key] for run in runs)) for key in runs[0].point}


def text(value: Any) -> str:
    """A value as it is shown: as in TOML, but strings bare and numbers short.

    >>> [text(value) for value in (1.0, 0.1, 1e-5, 10, True, "iid")]
    ['1', '0.1', '1e-05', '10', 'true', 'iid']
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and float(f"{value:g}") == value:
        return f"{value:g}"
    return str(value)


def assignment(item: tuple[str, Any]) -> str:
    return f"{item[0]} = {text(item[1])}"


def axes_of(dashes: str, grid: Any, seeds: Any) -> Axes:
    """A grid and seeds from one place, the command or the file; seeds are the values of "seed"."""
    axes: Axes = {}
    for key, given in _pairs(f"{dashes}grid", grid):
        if key in axes:
            raise InputError(f"{dashes}grid names {registry.short(key)} twice")
        given = _parsed(given) if isinstance(given, str) else given
        axes[key] = listed(f"{dashes}grid {key}", given, _entry, "values")
    if seeds is not None and "seed" in axes:
        raise InputError(f"{dashes}seeds and {dashes}grid seed exclude each other; leave out one")
    if seeds is not None or "seed" in axes:
        given = axes.get("seed") if seeds is None else seeds
        axes["seed"] = listed(f"{dashes}seeds", given, read_seed, SEEDS)
    return axes


def _pairs(name: str, grid: Any) -> Iterator[tuple[str, Any]]:
    """Key paths and what is given for them, of `key=v1,v2` words or of a table of lists."""
    if grid is None:
        return
    if isinstance(grid, Mapping):
        for key, given in grid.items():
            inner = _pairs(name, given) if isinstance(given, Mapping) else [("", given)]
            yield from ((f"{key}.{rest}" if rest else str(key), found) for rest, found in inner)
        return
    if isinstance(grid, str) or not isinstance(grid, Sequence):
        said = registry.short(grid)
        raise InputError(f"{name} = {said} should be a table of lists, e.g. method.lam = [0.1, 1]")
    for word in grid:
        key, equals, given = str(word).partition("=")
        key = key.strip()
        if not equals or not all(key.split(".")) or key.count(".") > DEEPEST:
            said = registry.short(word)
            raise InputError(f"{name} {said}: write it as KEY=V1,V2, e.g. method.lam=0.1,1,10")
        yield key, given


def _parsed(given: str) -> list[Any]:
    """Values with commas between them, each TOML or else a string; quotes protect commas.

    >>> _parsed("0.1, all,'a,b'")
    [0.1, 'all', 'a,b']
    """
    found: dict[str, Any] = {}
    words = re.findall(r"""((?:"[^"]*"|'[^']*'|[^,])*),""", f"{given},")
    for number, word in enumerate(words):
        override(found, f"{number}={word.strip()}")
    return list(found.values())


def _entry(value: Any) -> Any:
    """One of a key's values; NumPy's numbers become Python's."""
    if isinstance(value, Mapping | list | tuple):
        raise ValueError
    return value.item() if hasattr(value, "item") else value


def _check(axes: Axes, changes: Mapping[str, Any]) -> None:
    """Refuse a sweep of nothing, and what is given in two ways."""
    if not axes:
        raise InputError("nothing to sweep: give --grid KEY=V1,V2 or --seeds, e.g. --seeds 0,1,2")
    for key in ("grid", "seeds"):
        if key in changes:
            raise InputError(f"--set {key}: use --{key}")
    for key in axes:
        value: Any = changes
        for part in key.split("."):
            value = value.get(part) if isinstance(value, Mapping) else None
        if value is not None:
            said = registry.short(value)
            raise InputError(f"{key} is in the grid and set to {said}; leave out one")


def put(values: Mapping[str, Any], key: str, parts: Sequence[str], value: Any) -> dict[str, Any]:
    """The nested values with one more, which is at `parts`, the last of the path `key`."""
    first, *rest = parts
    if rest:
        inner = values.get(first, {})
        if not isinstance(inner, Mapping):
            raise InputError(f"--grid {key}: {registry.short(first)} is a value, not a table")
        value = put(inner, key, rest, value)
    return {**values, first: value}


def _at(config: Config, key: str) -> Any:
    return reduce(getattr, key.split("."), config)


def folder_of(point: Mapping[str, Any]) -> str:
    """A name that is safe in all file systems, and another for every other point."""
    words = [f"{key}={quote(text(value), safe='+')}" for key, value in point.items()]
    name = ",".join(words)
    if len(name) > LONGEST_NAME:
        name = f"{name[:LONGEST_NAME]}~{hashlib.sha256(name.encode()).hexdigest()[:12]}"
    return name
