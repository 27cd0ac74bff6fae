"""Cases of results folders that are reported on."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from random import Random

from tests import kept

from .cases import Case
from .files import gathered, spoiled

READ = (".json", ".jsonl", ".toml")


@cache
def folders() -> list[dict[str, bytes]]:
    """A comparison, and an experiment beside its runs."""
    with tempfile.TemporaryDirectory() as root:
        compared = kept.pretended(Path(root, "compared"))
        kept.experiment(Path(root, "done", "table2"), compared)
        return [gathered(Path(root, name), "results") for name in ("compared", "done")]


@cache
def trained() -> list[dict[str, bytes]]:
    """Real ones: also a sweep, and a run with its theory."""
    with tempfile.TemporaryDirectory() as root:
        kept.train(Path(root))
        return [gathered(Path(root, name), "results") for name in ("compare", "sweep", "run")]


def report(random: Random, known: list[dict[str, bytes]] | None = None) -> Case:
    """A report on a folder with something wrong in one of its files."""
    whole = random.choice(known or folders())
    files = spoiled(random, {path: x for path, x in whole.items() if path.endswith(READ)})
    return Case(["report", "results", "--out", "out"], files, ["results"])


def trained_report(random: Random) -> Case:
    return report(random, trained())
