"""What a comparison runs: each method with each seed, checked before the first one starts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from flamejax import registry
from flamejax.config import Config, lay_over, make
from flamejax.errors import InputError
from flamejax.given import SEEDS, listed, read_seed, values_of


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
    values = values_of(config)
    values = lay_over(values, {key: value for key, value in changes.items() if key != "method"})
    base = make(values)
    labels = listed("--methods", methods, _label, "NAME[:PRESET][+AGGREGATOR], e.g. flame,ditto")
    seeds = [base.seed] if seeds is None else listed("--seeds", seeds, read_seed, SEEDS)
    tried = [None] if rates is None else listed("--rates", rates, _rate, "numbers above 0")
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
    first: dict[str, Run] = {}
    for run in runs:
        same = first.setdefault(repr(run.config), run)
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
