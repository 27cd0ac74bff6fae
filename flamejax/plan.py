"""What a comparison runs: each method with each seed, checked before the first one starts."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from flamejax import registry
from flamejax.config import Config, lay_over, load, make
from flamejax.errors import InputError


class Run(NamedTuple):
    """One run of a comparison."""

    label: str  # the method as it was named: NAME[:PRESET][+AGGREGATOR]
    rate: float | None  # one of several tried for method.global_lr; None: as configured
    config: Config

    @property
    def path(self) -> Path:
        """Its results folder, below that of the comparison."""
        rate = [] if self.rate is None else [f"rate{self.rate}"]
        return Path("runs", self.label.replace(":", "-"), *rate, f"seed{self.config.seed}")

    def __str__(self) -> str:
        rate = "" if self.rate is None else f" with global_lr {self.rate}"
        return f"{self.label}{rate}, seed {self.config.seed}"


def plan(
    config: Config | Mapping[str, Any] | str | Path | None,
    changes: Mapping[str, Any],
    methods: str | Sequence[str],
    seeds: str | Iterable[int] | None = None,
    rates: str | Iterable[float] | None = None,
) -> tuple[Config, list[Run]]:
    """The config before the methods are put in, and all runs: by method, rate and seed.

    `changes` are laid over the config; those of "method" reach every method that has the key.
    """
    if isinstance(config, Config):
        config = config.model_dump()
    values = load(config) if isinstance(config, str | Path) else config or {}
    values = lay_over(values, {key: value for key, value in changes.items() if key != "method"})
    base = make(values)
    labels = _listed("methods", methods, _label, "NAME[:PRESET][+AGGREGATOR], e.g. flame,ditto")
    seeds = [base.seed] if seeds is None else _listed("seeds", seeds, _seed, "whole numbers >= 0")
    tried = [None] if rates is None else _listed("rates", rates, _rate, "numbers above 0")
    known = {label: registry.get("methods", parts(label)[0]).model_fields for label in labels}
    common = changes.get("method", {})
    _check_common(common, known.values(), rates is not None)

    runs: list[Run] = []
    for label in labels:
        name, preset, aggregator = parts(label)
        method = {key: value for key, value in common.items() if key in known[label]}
        method |= {"name": name, **({"preset": preset} if preset else {})}
        own = {"aggregator": {"name": aggregator}} if aggregator else {}
        for rate in tried if "global_lr" in known[label] else [None]:
            rated = method if rate is None else {**method, "global_lr": rate}
            for seed in seeds:
                try:
                    made = make(lay_over(values, {**own, "method": rated, "seed": seed}))
                except InputError as error:
                    raise InputError(f"--methods {label}: {error}") from None
                runs.append(Run(label, rate, made))
    for run in runs:
        same = next(r for r in runs if r.config == run.config)
        if same.label != run.label:
            raise InputError(f"--methods: {same.label} and {run.label} are the same; leave out one")
    return base, runs


def parts(label: str) -> tuple[str, str | None, str | None]:
    """A method's name, preset and aggregator; None where the label does not say.

    >>> parts("fedavg+median")
    ('fedavg', None, 'median')
    """
    head, plus, aggregator = label.partition("+")
    name, colon, preset = head.partition(":")
    return name, preset if colon else None, aggregator if plus else None


def _check_common(common: Any, known: Iterable[Iterable[str]], rates_given: bool) -> None:
    """Refuse settings for all methods that no method has, or that are given elsewhere."""
    if not isinstance(common, Mapping):
        raise InputError(f"method must be a table of settings, got {registry.short(common)}")
    keys = sorted({key for one in known for key in one})
    for key in common:
        if key in ("name", "preset"):
            raise InputError(f"--set method.{key}: use --methods, e.g. --methods flame:published")
        if key not in keys:
            hint = registry.nearest(str(key), keys, "method.")
            raise InputError(f"--set method.{key}: none of the methods has this setting{hint}")
    if rates_given and "global_lr" not in keys:
        raise InputError("--rates: none of the methods has a global_lr; leave it out")
    if rates_given and "global_lr" in common:
        raise InputError("--rates and --set method.global_lr exclude each other; leave out one")


def _listed(option: str, given: Any, read: Callable[[Any], Any], wish: str) -> list[Any]:
    """The entries of a list, or of a string with commas; none of them twice."""
    try:
        words = [w.strip() for w in given.split(",")] if isinstance(given, str) else list(given)
        entries = [read(word) for word in words]
    except (ValueError, TypeError, OverflowError, AttributeError):
        entries = []
    if not entries:
        raise InputError(f"--{option} {registry.short(given)} should be a list of {wish}")
    twice = next((entry for entry in entries if entries.count(entry) > 1), None)
    if twice is not None:
        raise InputError(f"--{option} names {twice} twice")
    return entries


def _seed(word: Any) -> int:
    seed = int(word) if isinstance(word, str) else operator.index(word)
    if not 0 <= seed < 2**32:
        raise ValueError
    return seed


def _rate(word: Any) -> float:
    rate = float(word)
    if not 0 < rate < math.inf:
        raise ValueError
    return rate


def _label(word: Any) -> str:
    name, preset, aggregator = parts(word)
    if not name or preset == "" or aggregator == "":
        raise ValueError
    registry.check("methods", name, "--methods")
    return str(word)
