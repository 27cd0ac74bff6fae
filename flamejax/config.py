"""The schema of a run, strict on the way in, complete on the way out.

A config is TOML, a dict, or keyword arguments; `--set key.path=value` changes single keys. Unknown
keys and bad values are refused in one line that names the key.
"""

from __future__ import annotations

import datetime
import tomllib
from collections import namedtuple
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import tomli_w
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, SerializeAsAny, ValidationError

from flamejax import registry
from flamejax.complaints import dotted, one_line
from flamejax.errors import InputError
from flamejax.reading import DEEPEST
from flamejax.reading import load as load
from flamejax.values import (
    Bytes,
    Count,
    DataName,
    FilePath,
    Fraction,
    Interval,
    NonNegative,
    Positive,
    minutes,
)

if TYPE_CHECKING:
    from flamejax.types import Aggregator, Attack, Method, Model


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class Data(Section):
    name: DataName = "mnist_mini"
    dir: FilePath = ""  # folder (or archive) that holds the files; not needed for bundled data
    limit: Literal["all"] | Count = "all"  # use only so many samples, drawn by the seed
    # per client: of generated data (of linreg in each split; on average with quantity skew; not of
    # synthetic with partition.name = "natural", which draws sizes of its own), and of stored data
    # where clients of iid, quality and qlabel share samples (partition.overlap)
    samples: Count = 100
    # generated data, synthetic and linreg:
    features: Count = 60
    alpha: NonNegative = 1.0  # synthetic: standard deviation of the clients' mean weights,
    beta: NonNegative = 1.0  # and of their mean inputs
    spread: NonNegative = 1.0  # linreg: root mean square distance of the clients' true parameters
    # from their center, which has length 1,
    noise: NonNegative = 1.0  # standard deviation of the targets,
    scale: Positive = 1.0  # and b in X'X = N b I


class Partition(Section):
    name: str = "hybrid"  # of stored data; "natural" of generated data
    clients: Count = 10
    q: Count = 2  # classes per client: qlabel, hybrid
    beta: Positive = 0.5  # Dirichlet concentration: dirichlet, quantity, hybrid
    sigma: NonNegative = 0.1  # noise level: quality
    min_samples: Annotated[int, Field(ge=3, lt=2**31)] = 10  # per client, all splits together
    # clients draw from all samples and may share some: with quantity and hybrid as published, with
    # iid, quality and qlabel data.samples each, so that there may be any number of clients
    overlap: bool = False
    held_out: Fraction = 0.2  # share of each client's samples not trained on


class ModelChoice(Section):
    name: str = "auto"  # the paper's network for the data set
    # matmul: products of matrices, fastest on CPU; native: XLA's own; auto: what suits the backend
    convolution: Literal["auto", "matmul", "native"] = "auto"


class Named(Section):
    """Settings of something chosen by name; each choice has a class of its own.

    Floats become traced hyper-parameters, all else is fixed when the round is compiled.
    """

    name: str
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}  # the first one is the default
    shared: ClassVar[tuple[str, ...]] = ()  # keys that outlive a change of name

    def hyper(self) -> Any:
        """A named tuple of the float settings, for the compiled round."""
        values = {k: v for k, v in self if isinstance(v, float)}
        return namedtuple("Hyper", values.keys())(**values)


class MethodSettings(Named):
    preset: str = "standard"
    presets: ClassVar = {"standard": {}}  # a method with several forms has its own

    def build(self, model: Model) -> Method:
        raise NotImplementedError


class AttackSettings(Named):
    preset: str = "paper"
    presets: ClassVar = {"paper": {}, "published": {}}
    shared: ClassVar = ("preset", "fraction", "gamma2")
    fraction: Annotated[float, Field(ge=0, le=1)] = 0.2  # of the clients are malicious
    gamma2: NonNegative = 0.1  # variance of p, or of the noise: same_value, sign_flip, gaussian

    def build(self) -> Attack:
        raise NotImplementedError


class AggregatorSettings(Named):
    def build(self, messages: int, malicious: int) -> Aggregator:
        """For so many messages in a mean, so many of them from malicious clients."""
        raise NotImplementedError


class Participation(Section):
    clients_per_round: Literal["all"] | Count = "all"


class Selection(Section):
    on: Literal["validation", "test"] = "validation"  # `test` is the paper's oracle choice
    validation: Fraction = 0.25  # share of the held-out samples used to choose, not to report


class Engine(Section):
    execution: Literal["auto", "map", "vmap", "chunk"] = "auto"
    chunk: Literal["auto"] | Count = "auto"  # clients side by side with execution = "chunk"
    devices: Literal["auto", "all"] | Count = "auto"  # auto: all that have a client to train
    rounds_per_call: Literal["auto"] | Count = "auto"
    # dense: the states of all clients on the devices; touched: on the host, only of clients that
    # were ever selected, as long as the process takes at most `state_budget` bytes of memory, and
    # the rest on disk
    store: Literal["auto", "dense", "touched"] = "auto"
    state_budget: Literal["auto"] | Bytes = "auto"  # such as "2GB"; auto: half of what is free
    precision: Literal["float32", "float64"] = "float32"
    # a client whose message or training loss is not finite: its round is left out and counted, or
    # the run ends, or nothing is checked
    on_nonfinite: Literal["drop", "stop", "keep"] = "drop"


class Recorded(Section):
    # the Lagrangian and what belongs to it after every round, in theory.jsonl and theory.png: a
    # pass over all training samples more, for methods that have one
    theory: bool = False
    # L of the clients' losses, which weighs epsilon in the Lyapunov function; "estimate": the
    # largest curvature at the initial model
    smoothness: Literal["estimate"] | NonNegative = "estimate"
    # also the Moreau envelope at w, by at most so many gradient steps of each client, each of them
    # another pass; 0: not
    prox_steps: Annotated[int, Field(ge=0, lt=2**31)] = 0
    log: str = "none"  # where figures go, too: "tensorboard", "wandb" or "tensorboard,wandb"

    @property
    def loggers(self) -> list[str]:
        return [*dict.fromkeys(name.strip() for name in self.log.split(","))]


class Checkpoint(Section):
    # rounds between checkpoints, or minutes as in "10min", or "never"; whenever a run is
    # interrupted it leaves one, too
    every: Interval = "10min"
    keep: Count = 2  # of the newest

    @property
    def seconds(self) -> float | None:
        """Between checkpoints, if they go by time."""
        found = minutes(self.every)
        return 60 * found if found else None


def _chosen(section: str, default: str) -> Callable[[Any], Any]:
    """Checks a section whose schema depends on its name; a preset lies under explicit values."""

    def choose(value: Any) -> Any:
        if isinstance(value, Named):
            return value
        if not isinstance(value, Mapping):
            raise InputError(f"{section} must be a table of settings, got {registry.short(value)}")
        name = value.get("name", default)
        if not isinstance(name, str):
            raise InputError(f"{section}.name must be a string, got {registry.short(name)}")
        registry.check(f"{section}s", name, f"{section}.name")
        settings = registry.get(f"{section}s", name)
        value = {**value, "name": name}
        if settings.presets:
            preset = value.setdefault("preset", next(iter(settings.presets)))
            if not isinstance(preset, str) or preset not in settings.presets:
                known = " or ".join(f"'{p}'" for p in settings.presets)
                said = registry.short(preset)
                raise InputError(f"{section}.preset = {said}: {name} has {known}")
            value = {**settings.presets[preset], **value}
        try:
            return settings.model_validate(value)
        except ValidationError as error:
            raise InputError(one_line(error, settings, section)) from None

    return choose


# sections that are chosen by name, and their default choice
CHOSEN = {"method": "flame", "attack": "none", "aggregator": "mean"}
_method, _attack, _aggregator = (_chosen(*item) for item in CHOSEN.items())


class Config(Section):
    """A whole run."""

    seed: Annotated[int, Field(ge=0, lt=2**32)] = 0
    rounds: Count = 300
    eval_every: Count = 5
    # clients that evaluations look at, drawn once by the seed; auto: all, but at most 10,000
    eval_clients: Literal["all", "auto"] | Count = "auto"
    data: Data = Data()
    partition: Partition = Partition()
    model: ModelChoice = ModelChoice()
    method: Annotated[SerializeAsAny[MethodSettings], BeforeValidator(_method)] = Field(
        default_factory=lambda: _method({})
    )
    attack: Annotated[SerializeAsAny[AttackSettings], BeforeValidator(_attack)] = Field(
        default_factory=lambda: _attack({})
    )
    aggregator: Annotated[SerializeAsAny[AggregatorSettings], BeforeValidator(_aggregator)] = Field(
        default_factory=lambda: _aggregator({})
    )
    participation: Participation = Participation()
    selection: Selection = Selection()
    engine: Engine = Engine()
    record: Recorded = Recorded()
    checkpoint: Checkpoint = Checkpoint()

    @property
    def malicious(self) -> int:
        """How many clients attack."""
        attacked = self.attack.name != "none"
        return round(self.attack.fraction * self.partition.clients) if attacked else 0

    def to_toml(self) -> str:
        return tomli_w.dumps(self.model_dump())


def make(values: Mapping[str, Any]) -> Config:
    """A checked config from nested values; whatever is missing takes its default."""
    for key in ("seeds", "grid"):
        if key in values:
            raise InputError(f"{key} is for several runs of one config: use flamejax sweep")
    data = values.get("data")
    if isinstance(data, Mapping) and data.get("name") in registry.GENERATED:
        values = _merge({"partition": {"name": "natural"}}, values)
    try:
        config = Config.model_validate(values)
    except ValidationError as error:
        raise InputError(one_line(error, Config, "")) from None
    for kind, name, key in (
        ("partitions", config.partition.name, "partition.name"),
        ("models", config.model.name, "model.name"),
        ("datasets", config.data.name, "data.name"),
        *(("loggers", name, "record.log") for name in config.record.loggers),
    ):
        registry.check(kind, name, key)
    selected, clients = config.participation.clients_per_round, config.partition.clients
    if selected != "all" and selected > clients:
        raise InputError(
            f"participation.clients_per_round = {selected} exceeds partition.clients = {clients}"
        )
    if config.malicious >= clients:
        fraction = config.attack.fraction
        raise InputError(f"attack.fraction = {fraction} leaves no benign client of {clients}")
    if config.record.prox_steps and not config.record.theory:
        raise InputError("record.prox_steps is part of record.theory: set record.theory = true")
    return config


def override(values: dict[str, Any], assignment: str) -> None:
    """Apply one ``key.path=value`` in place; the value is TOML, or else taken as a string."""
    path, equals, text = assignment.partition("=")
    *tables, key = (part.strip() for part in path.split("."))
    if not equals or not key or not all(tables):
        said = registry.short(assignment)
        raise InputError(f"--set {said}: write it as key.path=value, e.g. method.rho=0.1")
    if len(tables) > DEEPEST:
        raise InputError(f"--set {registry.short(path)} is not a known key")
    try:
        parsed = tomllib.loads(f"v = {text}")
        value = parsed["v"]
        if len(parsed) > 1 or isinstance(value, datetime.date | datetime.time | dict):
            value = text
    except (ValueError, RecursionError):
        value = text
    for depth, table in enumerate(tables, start=1):
        values = values.setdefault(table, {})
        if not isinstance(values, dict):
            outer = dotted(tables[:depth])
            raise InputError(f"--set {dotted([*tables, key])}: {outer} is a value, not a table")
    values[key] = value


def lay_over(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """`changes` over `base`, table by table.

    Another method starts from its own defaults, and another preset brings its values, whatever
    `base` said: a complete config would otherwise hide them. So with attacks and aggregators.
    """
    base = dict(base)
    for section, default in CHOSEN.items():
        old, new = base.get(section), changes.get(section)
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            base[section] = _outlive(section, default, old, new)
    return _merge(base, changes)


def _outlive(
    section: str, default: str, old: Mapping[str, Any], new: Mapping[str, Any]
) -> Mapping[str, Any]:
    """What of `old` still holds when `new` is laid over it."""
    name = old.get("name", default)
    if not isinstance(name, str) or name not in registry.names(f"{section}s"):
        return old if new.get("name", name) == name else {}
    settings = registry.get(f"{section}s", name)
    preset = old.get("preset", next(iter(settings.presets), None))
    if new.get("name", name) != name:
        governed = settings.presets.get(preset, {}) if isinstance(preset, str) else {}
        return {k: v for k, v in old.items() if k in settings.shared and k not in governed}
    if new.get("preset", preset) != preset:
        governed = {key for values in settings.presets.values() for key in values}
        return {k: v for k, v in old.items() if k not in governed}
    return old


def _merge(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in changes.items():
        both = isinstance(value, Mapping) and isinstance(merged.get(key), Mapping)
        merged[key] = _merge(merged[key], value) if both else value
    return merged
