"""What tests put in the place of parts of the package, all in one file: the only one of the tests
that has to follow when such a part moves."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from flamejax import comparer, many, records
from flamejax.config import Config
from flamejax.errors import RunError

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
