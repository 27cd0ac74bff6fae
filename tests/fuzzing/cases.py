"""A command with its files, and words that nobody expects."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from types import MappingProxyType
from typing import NamedTuple


class Link(NamedTuple):
    """A symbolic link, among files."""

    target: str


Files = Mapping[str, bytes | Link]  # by their paths from where the command is run


class Case(NamedTuple):
    """Something to try."""

    command: list[str]
    files: Files = MappingProxyType({})
    names: Sequence[str] = ()  # one of these has to stand in a refusal
    valid: bool = False  # it has to be accepted
    real: bool = False  # it is carried out, training included


Kind = Callable[[Random], Case]

STRINGS = [
    "", " ", "x", "é", "日本", "\u202e", "\u2028", "\x1b[31mred\x1b[0m", "\x7f", "\u0000",
    "a\u0000b",
    "\t", "a\nb", "\ud800", "\udcff", "🜁", "nan", "null", "None", "true", "auto", "all", "never",
    "0",
    "../../x", "..", ".", "/", "/etc/passwd", "/dev/null", "/dev/zero", "/proc/self/mem", "~",
    "~/x",
    "~nobody", "$HOME", "%s%n", "{}", "{0}", "a:b", ":", "npz:", "npz:/dev/zero", "npz:../../x",
    "npz:\u0000", "npz:" + "x" * 300, "kept:", "kept:../x", "kept:x", "tfds:", "tfds:../x",
    "images",
    "10min", "0min", "-1min", "1e9min", "2GB", "0GB", "-1GB", "9" * 40 + "GB", "1.5.5GB", "mnist",
    "x" * 300, "x" * 5000, "9" * 5000, "/" + "x/" * 1000, "a,b", ",", "flame", "qlabel", "mean",
    "=",
    "--out", "-1", "0x10", "1_000", "\uff11", "१", "q9", "[[]]", "'", '"', "\\", "mnist_mini",
    "linreg",
]  # fmt: skip

NUMBERS = [
    "0", "1", "2", "3", "7", "-1", "-0", "2147483647", "2147483648", "4294967295", "4294967296",
    "9223372036854775808", "18446744073709551616", "1" + "0" * 40, "9" * 5000, "0x7f", "0b1",
    "1_0",
    "0.0", "-0.0", "0.5", "1.0", "0.999999999", "1e-320", "1e-45", "1e-30", "1e30", "3e38",
    "3.5e38",
    "1e308", "1e309", "-1e309", "nan", "-nan", "inf", "-inf", "+inf", "1000000", "1e3",
]  # fmt: skip

OTHERS = [
    "true", "false", "[]", "[1]", "[1, 2]", "[[[]]]", "[" * 200 + "]" * 200, "[" * 5000, "{}",
    "{a = 1}", "{name = 'flame'}", "{" + "a = {" * 50 + "}" * 51, "1979-05-27", "07:32:00",
    "1979-05-27T07:32:00Z", "1979-13-45", "'''\na\n'''", '"\\u0000"', '"\\ud800"', "", "nul",
    "1 2",
    "'a' # b", "=", "[1, 'a']", "[nan]", "{a.b.c = 1}", '"""', "0o8", "1__0", "\x00", "\r", "é",
]  # fmt: skip


def any_string(random: Random) -> str:
    if random.random() < 0.85:
        return random.choice(STRINGS)
    letters = "abz09._-=/:, \n\x00\x1bé\udcff\uff21[]{}'\"#"
    return "".join(random.choice(letters) for _ in range(random.randint(0, 12)))


def quoted(text: str) -> str:
    """A TOML string, as far as there is one."""
    plain = {'"': '\\"', "\\": "\\\\"}
    return (
        '"'
        + "".join(plain.get(c, c if c.isprintable() else f"\\u{ord(c):04x}") for c in text)
        + '"'
    )


def any_value(random: Random) -> str:
    """What stands on the right of a TOML line."""
    kind = random.random()
    if kind < 0.45:
        return random.choice(NUMBERS)
    return quoted(any_string(random)) if kind < 0.75 else random.choice(OTHERS)


def some(random: Random, most: int) -> range:
    """Once, or now and then a few times."""
    return range(1 if random.random() < 0.6 else random.randint(1, most))
