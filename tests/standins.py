"""What tests put in the place of parts of the package, all in one file: the only one of the tests
that has to follow when such a part moves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from flamejax import comparer, many, records
from flamejax.config import Config, Data
from flamejax.datasets import mnist_mini
from flamejax.engine import prepare
from flamejax.errors import RunError
from flamejax.report import palette
from flamejax.types import Dataset

from .imagined import pretend

BAD_RATES = {13: "interrupted", 99: "diverged"}  # method.lr


def by_rate(config: Config) -> str:
    return BAD_RATES.get(getattr(config.method, "lr", 0), "finished")


def pretended_runs(
    monkeypatch: pytest.MonkeyPatch, status: Callable[[Config], str] = by_rate
) -> list[list[str]]:
    """Runs of sweeps, comparisons and experiments are not carried out: each leaves short records of
    one that ended so, and where the status is "interrupted", Ctrl-C comes. Returns what was to be
    run together, so far: folders below runs/."""
    noted: list[list[str]] = []

    def together(configs, outs, quiet=False, data=None, model=None):
        noted.append([str(out).rpartition("runs/")[2] for out in outs])
        failures = []
        for config, out in zip(configs, outs, strict=True):
            folder, ends = records.Folder(out, config.to_toml()), status(config)
            if ends == "interrupted":
                raise KeyboardInterrupt
            record = pretend(config, status=ends)
            for row in record.rows if ends == "finished" else []:
                folder.append("metrics.jsonl", row)
            folder.write_json("summary.json", {**record.summary, "seconds": 1.5})
            failures.append(RunError("diverged") if ends == "diverged" else None)
        return failures

    def alone(config, out, quiet=False, resume=False, data=None, model=None):
        for failure in together([config], [out]):
            if failure:
                raise failure

    monkeypatch.setattr(many, "run_together", together)
    monkeypatch.setattr(comparer, "run_one", alone)
    return noted


# where commands begin to compile, to start processes, or to use a network
WORK = (
    "flamejax.runner.build_pack",
    "flamejax.readying.estimate",
    "flamejax.theory.smoothness.estimate",
    "flamejax.theory.study.study",
    "flamejax.processes.share_out",
    "flamejax.bench.race.race",
    "flamejax.bench.whole.whole",
    "flamejax.hosts.meet",
    "socket.getaddrinfo",
)
read_bundled = cache(mnist_mini.load)


@contextmanager
def stopped_before_work(enough: type[BaseException]) -> Iterator[None]:
    """Commands end with this exception where work would begin, and get there quickly: the bundled
    digits are read once, and of each picture of a report there is one small form."""

    def stop(*_: Any, **__: Any) -> Any:
        raise enough

    def arrange(config: Any, method: Any, model: Any, federation: Any, *_: Any) -> Any:
        if config.seed % 4 == 0:  # tracing a model takes a while
            prepare.arrange(config, method, model, federation, 1)
        raise enough

    def digits(settings: Data, quiet: bool = True) -> Dataset:
        return read_bundled(Data(), True)

    def save(draw: Any, stem: Path) -> None:
        stem.with_name(f"{stem.name}.svg").write_bytes(palette.render(draw, "svg", dpi=50))

    others = {
        "flamejax.readying.build": arrange,
        "flamejax.reporter.save": save,
        "flamejax.many.fit_together": lambda *_, **__: 1,
        "flamejax.datasets.mnist_mini.load": digits,
    }
    with ExitStack() as stack:
        for name, instead in {**dict.fromkeys(WORK, stop), **others}.items():
            stack.enter_context(mock.patch(name, instead))
        yield
