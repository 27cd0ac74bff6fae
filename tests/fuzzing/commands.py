"""Cases of command lines: every option of every command, as its own parser knows them."""

from __future__ import annotations

import argparse
from functools import cache, partial
from random import Random

from flamejax import cli

from .cases import NUMBERS, Case, any_string, any_value
from .configs import FILE, complete, keys

LONG = ",".join(map(str, range(2_000)))
POOLS = {
    "config": [FILE, FILE, FILE, "nowhere.toml", ".", "/dev/null", "/dev/zero", "x" * 300,
               "a\x00b"],
    "out": ["out", "out", "../../x", "a/b/c", "/dev/null", "/dev/null/x", "/proc/x", "", ".", "..",
            "x" * 300, "x/" * 2500, "a\nb", "\x1b[31m", "\udcff", "~", FILE, "page.html"],
    "methods": ["flame", "flame,local", "flame:published", "fedavg+median", "flame,flame", "x", "",
                "flame:", "+", ":", "flame+x", "flame:x", ",", "local,local:standard", "../../x"],
    "seeds": ["0", "0,1", "1,1", "-1", "4294967296", "", "a", ",", "0,,1", "1.5", "٣", LONG,
              "9" * 5000],
    "rates": ["0.1", "0.1,0.2", "0", "nan", "inf", "-1", "1e309", "", "a", ",", "0.1,0.10",
              "1e-400"],
    "grid": ["method.lam=1,2", "method.rho=0.1", "seed=0,1", "x=1", "=", "method=1", "method.lam=",
             "method.lam=1,1.0", "rounds=1,x", "data.name=mnist_mini,linreg", "a.b.c=1", "..=1",
             "method.lam=[1]", "partition.clients=2,4", "method.name=flame,ditto", "grid=1",
             ".".join(["a"] * 3000) + "=1", "method.lam='", "selection.on=../../x,test",
             "partition.name=iid,hybrid", "seed=0,a", f"seed={LONG}", f"method.lam={LONG}"],
    "pack": ["auto", "1", "2", "0", "-1", "x", "1.5", "9" * 5000, ""],
    "coordinator": ["localhost:1234", "x", ":", "localhost:99999", "localhost:٣", "", ":1",
                    "a:b:1"],
    "processes": ["1", "2", "0", "-1", "x", "99999999", "9" * 5000, "٣"],
    "rank": ["0", "1", "-1", "x", "9" * 5000],
    "datasets": ["mnist_mini", "mnist", "x", "", ",", "mnist_mini,mnist_mini", "npz:x", "synthetic",
                 "npz:/dev/zero", "kept:../x", "linreg"],
    "partitions": ["iid", "q2", "q0", "q" + "9" * 5000, "q٣", "q", "x", "", "../../x", "iid,iid"],
    "name": ["headline", "table2", "lambda", "x", "own.toml", ".toml", "../x.toml", "",
             "mnist_mini",
             "mnist", "synthetic", "npz:x", "kept:x", "tfds:mnist", "tfds:../x", "runs.toml"],
    "dir": ["", ".", "..", "/dev/null", "/dev/zero", "x" * 300, "nowhere", "a\x00b", "/etc/passwd"],
    "path": [FILE, ".", "/dev/null", "/dev/zero", "nowhere", "", "x" * 300, "x.npz", "a\x00b",
             "\udcff"],
    "folders": [".", "nowhere", FILE, "/dev/null", "", "x" * 300, "..", "a\x00b"],
    "plot": ["x.png", "x.pdf", "x.svg", "x", "x.toml", "", "../../x.png", "x" * 300 + ".png",
             "a/b.png",
             "/dev/null/x.png", "\udcff.png", "a\nb.png"],
    "draws": ["1000", "2000", "999", "-1", "x", "9" * 50, "1e3", "٣٣٣٣", ""],
    "races": ["W1", "small", "x", "", "whole"],
    "peers": ["torch", "torch=x", "x", "", "=", "flwr=/bin/false"],
    "mnist": ["nowhere", "."],
    "baseline": [FILE, "nowhere", ".", "/dev/null", "/dev/zero", "x" * 300],
    "kind": ["methods", "datasets", "x", ""],
    "title": ["A", "", "<script>", "\udcff", "\x00", "x" * 5000],
    "against": ["rounds", "bytes", "x"],
    "figure": ["pm", "gm", "hm", "x"],
    "form": ["standard", "published", "x"],
}  # fmt: skip


@cache
def parsers() -> dict[tuple[str, ...], argparse.ArgumentParser]:
    """Every command by its words."""

    def below(words: tuple[str, ...], parser: argparse.ArgumentParser) -> dict:
        inner = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
        found = {} if inner else {words: parser}
        for action in inner:
            for name, one in action.choices.items():
                found |= below((*words, name), one)
        return found

    return below((), cli.parser())


def words_for(random: Random, dest: str, tame: bool) -> str:
    """What an option is given; tame: the first of its pool, which is right."""
    if tame and dest in POOLS:
        return POOLS[dest][0]
    if dest == "assignments":
        return f"{random.choice(keys())}={any_value(random)}"
    if dest in POOLS and random.random() < 0.9:
        return random.choice(POOLS[dest])
    return random.choice([any_string(random), random.choice(NUMBERS)])


def options(random: Random) -> Case:
    """A command with options of its own, each with what may be wrong."""
    words = random.choice(list(parsers()))
    actions = [a for a in parsers()[words]._actions if a.dest not in ("help", "version")]
    named = [a for a in actions if a.option_strings]
    chosen = random.sample(named, min(len(named), random.choice([0, 1, 1, 2, 3, 5])))
    tame = random.random() < 0.5  # all but one option as it should be
    command: list[str] = []
    for action in chosen:
        flag = random.choice(action.option_strings)
        if action.nargs == 0:
            command.append(flag)
        elif random.random() < 0.2 and flag.startswith("--"):
            command.append(f"{flag}={words_for(random, action.dest, tame and action != chosen[0])}")
        else:
            count = random.choice([0, 1, 2]) if action.nargs in ("?", "+", "*") else 1
            if tame and action != chosen[0]:
                count = 1
            words_of = partial(words_for, random, action.dest, tame and action != chosen[0])
            command += [flag, *(words_of() for _ in range(count))]
    for action in actions:
        if not action.option_strings:
            count = 1 if action.nargs is None else random.choice([0, 1, 1, 2])
            placed = [words_for(random, action.dest, tame) for _ in range(count)]
            command = [*placed, *command] if random.random() < 0.7 else [*command, *placed]
    if random.random() < 0.1:
        command.insert(random.randint(0, len(command)), any_string(random))
    if random.random() < 0.03:
        command.append(random.choice(["--help", "--version", "--", "-v", "-h", "--q", "--set"]))
    text = random.choice(complete())
    return Case([*words, *command], {FILE: text.encode()})


def wild(random: Random) -> Case:
    """Words in no order."""
    known = [word for words in parsers() for word in words] + [
        "--out",
        "--set",
        "--help",
        "-v",
        "--",
    ]
    pick = [lambda: random.choice(known), lambda: any_string(random), lambda: any_value(random)]
    return Case([random.choice(pick)() for _ in range(random.randint(0, 5))])
