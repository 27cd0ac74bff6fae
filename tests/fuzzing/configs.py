"""Cases of configs: TOML that is nearly right, settings that are nearly right, and right ones."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from random import Random

import tomli_w

from flamejax import config, registry

from .cases import NUMBERS, Case, any_string, any_value, some

CONFIGS = Path(__file__).parents[2] / "configs"
EXPERIMENTS = Path(__file__).parents[2] / "experiments"
FILE = "given.toml"
SMALL = {"rounds": 1, "data": {"limit": 400}, "partition": {"clients": 4, "min_samples": 3}}
# commands that take a config, and stop at or before the first round
TAKERS = (["run", FILE], ["data", "partition", FILE], ["compare", FILE, "--methods", "flame,local"])
TAKERS += (
    ["sweep", FILE, "--seeds", "0,1"],
    ["theory", "check", FILE],
    ["theory", "regression", FILE],
)
WEIGHTS = (12, 4, 2, 2, 1, 1)
# as they are, or in these values, settings that go together whatever the others are
METHODS = [(name, preset) for name in registry.names("methods")
           for preset in registry.get("methods", name).presets]  # fmt: skip
GOOD = {
    "seed": ["0", "1", "4294967295"],
    "rounds": ["1", "7", "2147483647"],
    "eval_every": ["1", "1000"],
    "eval_clients": ["'all'", "'auto'", "3"],
    "data.limit": ["400", "7936", "'all'"],
    "partition.name": ["'iid'", "'dirichlet'", "'quantity'", "'quality'", "'hybrid'", "'qlabel'"],
    "partition.beta": ["0.5", "1e-3", "100.0"],
    "partition.sigma": ["0.0", "0.3"],
    "partition.held_out": ["0.01", "0.5"],
    "model.name": ["'mlp'", "'mlr'", "'auto'"],
    "method.lr": ["1e-30", "0.1", "2.9e38"],
    "method.momentum": ["0.0", "0.999"],
    "method.weight_decay": ["0.0", "1e30"],
    "attack.name": ["'none'", "'same_value'", "'gaussian'", "'label_poison'", "'ipm'"],
    "attack.gamma2": ["0.0", "1e20"],
    "aggregator.name": ["'mean'", "'median'", "'weighted_mean'", "'geometric_median'",
                        "'norm_clip'"],
    "participation.clients_per_round": ["1", "'all'", "2"],
    "selection.on": ["'test'", "'validation'"],
    "engine.execution": ["'auto'", "'map'", "'vmap'", "'chunk'"],
    "engine.precision": ["'float32'", "'float64'"],
    "engine.on_nonfinite": ["'drop'", "'stop'", "'keep'"],
    "engine.state_budget": ["'2GB'", "1", "'1.5 kB'"],
    "checkpoint.every": ["'never'", "3", "'0.5min'"],
}  # fmt: skip


@cache
def complete() -> list[str]:
    """Whole configs, with every key of every choice."""
    found = []
    for number, (name, preset) in enumerate(METHODS):
        method = {"name": name, "preset": preset}
        attack = registry.names("attacks")[number % len(registry.names("attacks"))]
        aggregator = registry.names("aggregators")[number % len(registry.names("aggregators"))]
        values = {**SMALL, "method": method, "attack": {"name": attack, "fraction": 0.25}}
        values |= {"aggregator": {"name": aggregator}, "selection": {"on": "test"}}
        found.append(config.make(values).to_toml())
    for name in registry.GENERATED:
        found.append(config.make({"data": {"name": name}, "partition": {"clients": 4}}).to_toml())
    return found


@cache
def shipped() -> list[str]:
    return [path.read_text() for path in sorted(CONFIGS.glob("*.toml"))]


@cache
def keys() -> list[str]:
    """Key paths of all choices."""
    found: dict[str, None] = {}
    for text in complete():
        for number, line in enumerate(text.split("\n")):
            if " = " in line:
                found[key_at(text.split("\n"), number)] = None
    return list(found)


def key_at(lines: list[str], number: int) -> str:
    """The path of the key in a line of TOML."""
    table = next((line.strip("[]") for line in reversed(lines[:number]) if line[:1] == "["), "")
    return ".".join(filter(None, [table, lines[number].partition(" = ")[0].strip()]))


def taken(random: Random, text: str, names: list[str], **more: bool) -> Case:
    """Some command with this config."""
    content = text.encode("utf-8", "surrogatepass")
    (command,) = random.choices(TAKERS, WEIGHTS)
    return Case(list(command), {FILE: content}, names, **more)


def one_value(random: Random) -> Case:
    """A complete config with a value that may be wrong, or with some."""
    lines = random.choice(complete()).split("\n")
    wrong = []
    for _ in some(random, 3):
        number = random.choice([n for n, line in enumerate(lines) if " = " in line])
        value = value_for(random, lines, number)
        wrong += [key_at(lines, number), value.strip("\"'")]
        lines[number] = f"{lines[number].partition(' = ')[0]} = {value}"
    # another name takes other settings, and commands take some names only
    wrong += [f"{FILE}: ", "is not a known key", "data.name", "method.name"]
    wrong += ["local solutions are exact"]  # `theory regression` takes no settings of a solver
    return taken(random, "\n".join(lines), wrong)


def value_for(random: Random, lines: list[str], number: int) -> str:
    """A value for the key in a line: like the one that is there, or anything."""
    if random.random() < 0.6:
        return any_value(random)
    old = lines[number].partition(" = ")[2]
    plain = [old, f"{old}0", f"0.{old}", "1", "2", "3", "0.5", "true", "false"]
    return random.choice([*GOOD.get(key_at(lines, number), []), *plain])


def changed_text(random: Random) -> Case:
    """A config with letters, words or lines changed."""
    text = random.choice([*shipped(), *complete(), *complete()])
    for _ in some(random, 6):
        text = change_text(random, text)
    return taken(random, text, [])


def change_text(random: Random, text: str) -> str:
    at = random.randint(0, len(text))
    lines = text.split("\n")
    line = random.randrange(len(lines))
    how = random.randrange(11)
    if how == 0:
        return text[:at] + text[at + random.randint(1, 20) :]
    if how == 1:
        return text[:at] + any_string(random) + text[at:]
    if how == 2:
        return text[:at] + random.choice("[]{}=.,'\"#\\\n\t 0-_\x00\ud800é") + text[at + 1 :]
    if how == 3:
        return text[:at]
    if how == 4:
        return text + text[at:]
    if how == 5:
        lines.insert(random.randrange(len(lines)), lines[line])
    elif how == 6:
        del lines[line]
    elif how == 7:
        lines.insert(line, f"[{any_string(random)}]")
    elif how == 8:
        lines.insert(line, f"{random.choice(keys())} = {any_value(random)}")
    elif how == 9:
        deep = ".".join(["a"] * random.choice([3, 100, 3000]))
        lines.insert(line, f"{random.choice(keys())}.{deep} = {any_value(random)}")
    else:
        swapped = random.choice(re.findall(r"\w+", text) or ["x"])
        return text.replace(swapped, any_string(random), random.choice([1, -1]))
    return "\n".join(lines)


def nonsense(random: Random) -> Case:
    """Bytes that never were a config."""
    size = random.choice([0, 1, 5, 50, 300])
    content = bytes(random.getrandbits(8) for _ in range(size))
    if random.random() < 0.3:
        content = (
            random.choice([b"\xef\xbb\xbf", b"\xff\xfe", b"PK\x03\x04", b"\x80\x04", b"\0"])
            + content
        )
    if random.random() < 0.2:
        content = random.choice([b"[", b"{", b"a=[", b"a.", b"'''", b"[[a]]\n", b"#"]) * 20_000
    return Case(["run", FILE], {FILE: content})


def setting(random: Random) -> Case:
    """Settings on the command line."""
    command = random.choice(
        [["run"], ["run"], ["data", "partition"], ["compare"], ["theory", "check"]]
    )
    named, words = [], []
    for _ in some(random, 3):
        key = random.choice(keys()) if random.random() < 0.9 else any_string(random)
        value = random.choice([any_value, any_string])(random)
        value = random.choice([value, *GOOD.get(key, ["1", "2"])[:2]])
        named += [key, key.split(".")[0], value.strip("\"'"), "--set", "is not a known key"]
        words += ["--set", f"{key}={value}"]
    small = ["--set", "partition.clients=4"] if random.random() < 0.5 else []
    return Case([*command, *small, *words], names=named)


def generated(random: Random) -> Case:
    """Clients that bring their own samples,
    or share them: nothing but memory bounds their number."""
    words = ["data.name=" + random.choice(["linreg", "synthetic", "mnist_mini"])]
    words.append(
        "partition.name=" + random.choice(["iid", "quality", "quantity", "qlabel", "natural"])
    )
    words.append("partition.overlap=" + random.choice(["true", "false"]))
    for key in ("partition.clients", "data.samples", "data.features", "partition.min_samples",
                "participation.clients_per_round", "eval_clients", "attack.name"):  # fmt: skip
        if random.random() < 0.4:
            value = random.choice(
                [str(random.randint(1, 200)), random.choice(NUMBERS), "label_poison"]
            )
            words.append(f"{key}={value}")
    command = random.choice([["run"], ["data", "partition"]])
    keys = [word.partition("=")[0] for word in words]
    return Case(
        [*command, *(w for word in words for w in ("--set", word))], names=[*keys, "memory"]
    )


def good(random: Random) -> Case:
    """Settings that go together: these have to be taken."""
    name, preset = random.choice(METHODS)
    words = ["partition.clients=4", "partition.min_samples=3", f"method.name={name}"]
    words += [f"method.preset={preset}", "seed=3"]
    for key in random.sample(list(GOOD), random.randint(0, 6)):
        if not key.startswith("method.") or hasattr(registry.get("methods", name)(), key[7:]):
            words.append(f"{key}={random.choice(GOOD[key])}")
    command = random.choice([["run"], ["run"], ["data", "partition"]])
    if command == ["run"] and random.random() < 0.5:  # the same as a file
        values: dict = {}
        for word in words:
            config.override(values, word)
        text = tomli_w.dumps(values)
        return Case([*command, FILE], {FILE: text.encode()}, valid=True)
    return Case([*command, *(w for word in words for w in ("--set", word))], valid=True)


# settings that mean more work the larger they are
WORK = ("rounds", "eval_every", "epochs", "max_steps", "local_rounds", "inner_steps", "local_steps")
WORK += (
    "iterations",
    "prox_steps",
    "features",
    "samples",
    "clients",
    "limit",
    "d_sub",
    "seed",
    "log",
)
WORK += ("theory", "devices", "dir")


def carried_out(random: Random) -> Case:
    """A small run with settings that may be absurd; where they pass, it is trained for a round."""
    lines = random.choice(complete()).split("\n")
    for _ in some(random, 4):
        number = random.choice([n for n, line in enumerate(lines) if " = " in line])
        key = key_at(lines, number).rpartition(".")[2]
        if key not in WORK:
            lines[number] = f"{key} = {value_for(random, lines, number)}"
    words = ["model.name=mlr", "rounds=1", "engine.devices=1"]
    words = [w for word in words for w in ("--set", word)]
    text = "\n".join(lines).encode("utf-8", "surrogatepass")
    return Case(["run", FILE, *words, "--out", "out", "--quiet"], {FILE: text}, real=True)


def experiment_file(random: Random) -> Case:
    """An experiment of one's own, with something changed."""
    names = [path.stem for path in sorted(EXPERIMENTS.glob("*.toml"))]
    text = (EXPERIMENTS / f"{random.choice(names)}.toml").read_text()
    for _ in some(random, 4):
        if random.random() < 0.5:
            lines = text.split("\n")
            at = [n for n, line in enumerate(lines) if " = " in line]
            if at:
                number = random.choice(at)
                value = random.choice([any_value(random), "[]", "{}", "['mnist_mini']", "['iid']"])
                lines[number] = f"{lines[number].partition(' = ')[0]} = {value}"
            text = "\n".join(lines)
        else:
            text = change_text(random, text)
    more = random.choice(
        [["--dry-run"], ["--smoke"], ["--smoke", "--dry-run"], ["--datasets", "mnist_mini"]]
    )
    command = ["experiment", "own.toml", *more]
    return Case(command, {"own.toml": text.encode("utf-8", "surrogatepass")})
