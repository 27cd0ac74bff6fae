"""What the tests take: a pytest plugin that counts processor seconds and memory of every test file.

A file's seconds are those of its tests, their fixtures and the processes they started. They are
divided by those of a fixed piece of work, repeated between files in every worker, so that a slow or
busy machine does not matter: a budget is in seconds of the machine that `budget.toml` was written
on. `pytest --budget` holds the tests to it, `pytest --write-budget` writes it anew.
"""

from __future__ import annotations

import ctypes
import gc
import math
import os
import resource
import time
import tomllib
from collections import defaultdict
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

BUDGET = Path(__file__).with_name("budget.toml")
ALLOWED = 1.2  # times the budget
SLACK = 4.0  # seconds a file may take beyond that: of two with one program, the first compiles it
MOST_MEMORY = 1.5e9  # bytes of a worker
LET_GO = 0.8e9  # bytes, above which compiled programs are let go between files
SHOWN = 12  # files
PARTS = ("default", "full")  # of the tests
EVERYTHING = "all files"
EVERY = 8  # files between two repetitions of the fixed work


def seconds() -> float:
    """Processor seconds of this process and of its children that have ended."""
    used = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


def memory() -> int:
    """Bytes of this process that are in memory."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def fixed_work() -> None:
    """What the tests do most: trace a program, compile it and run it a little."""
    new = np.float32(time.time_ns() % 2**24)  # or else a kept program would be taken

    def loss(x, rows):
        for _ in range(4):
            x = jnp.tanh(x @ x.T) + jnp.sort(x, axis=0) / new
        return jnp.sum(jnp.where(rows > 0, x, -x) ** 2)

    @jax.jit
    def steps(x, rows):
        return jax.lax.scan(lambda x, _: (x - 1e-3 * jax.grad(loss)(x, rows), None), x, length=20)

    x = np.linspace(0, 1, 32 * 32, dtype=np.float32).reshape(32, 32)
    steps.lower(x, x).compile(compiler_options={"xla_backend_optimization_level": 0})(x, x)


class Account:
    """One worker's, or that of a session without workers."""

    def __init__(self, config: pytest.Config) -> None:
        self.calibrates = config.getoption("budget") or config.getoption("write_budget")
        self.files: list[str] = []  # so far
        self.last = seconds()
        self.peak = 0
        self.fixed: list[float] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self, location: tuple) -> None:
        if location[0] in self.files:
            return
        self.files.append(location[0])
        self.peak = max(self.peak, memory())
        if memory() > LET_GO:
            let_go()
        if self.calibrates and len(self.files) % EVERY == 1:
            self.calibrate()

    def calibrate(self) -> None:
        before = seconds()
        fixed_work()
        spent = seconds() - before
        self.fixed.append(spent)
        self.last += spent

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Any:
        report = yield
        now = seconds()
        self.peak = max(self.peak, memory())
        report.cost = {"seconds": now - self.last, "peak": self.peak, "fixed": self.fixed}
        self.last = now
        return report


def let_go() -> None:
    """Free compiled programs and what they were compiled from."""
    jax.clear_caches()
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)


class Sum:
    """Of all workers."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.files: dict[str, float] = defaultdict(float)
        self.peaks: dict[str, float] = {}
        self.fixed: dict[str, list[float]] = {}
        self.lines: list[str] = []  # to be printed at the end

    def pytest_runtest_logreport(self, report: Any) -> None:
        worker = getattr(report, "worker_id", "main")
        self.files[file_of(report.nodeid)] += report.cost["seconds"]
        self.peaks[worker] = max(self.peaks.get(worker, 0), report.cost["peak"])
        self.fixed[worker] = report.cost["fixed"]

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if not self.files:
            return
        largest = max(self.peaks.values())
        self.lines.append(
            f"{sum(self.files.values()):.0f} processor seconds in tests; the largest worker took "
            f"{largest / 1e9:.2f} GB"
        )
        option = session.config.getoption
        which = "full" if option("markexpr") == "full" else "default"
        if option("budget") and not self._holds(which, largest):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        if option("write_budget"):
            self._write(which)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        for line in self.lines:
            terminalreporter.write_line(line)

    def fixed_seconds(self) -> float:
        return float(np.mean([x for worker in self.fixed.values() for x in worker]))

    def _holds(self, which: str, largest: float) -> bool:
        budget, fixed = read_budget(), self.fixed_seconds()
        allowed = budget[which]
        speed = budget["fixed_work"] / fixed  # of this machine, in terms of that of the budget
        spent = {name: speed * value for name, value in self.files.items()}
        rows = {EVERYTHING: sum(spent.values())}
        rows |= dict(sorted(spent.items(), key=lambda row: -row[1])[:SHOWN])
        whole = {**allowed, EVERYTHING: sum(allowed.values())}
        over = [n for n, x in spent.items() if x > ALLOWED * allowed.get(n, 0) + SLACK]
        over += [EVERYTHING] * (rows[EVERYTHING] > ALLOWED * whole[EVERYTHING])
        rows |= {name: spent[name] for name in over if name in spent}
        self.lines.append(
            f"fixed work: {fixed:.3f} s here, {budget['fixed_work']:.3f} s for the budget"
        )
        for name, value in rows.items():
            mark = "  <- over its budget" if name in over else ""
            self.lines.append(f"{value:8.1f} s of {whole.get(name, 0):6.1f} s  {name}{mark}")
        if largest > MOST_MEMORY:
            self.lines.append(f"a worker took more than {MOST_MEMORY / 1e9:.1f} GB")
        return not over and largest <= MOST_MEMORY

    def _write(self, which: str) -> None:
        budget, fixed = read_budget() or {"fixed_work": self.fixed_seconds()}, self.fixed_seconds()
        speed = budget["fixed_work"] / fixed
        budget[which] = {x: math.ceil(speed * self.files[x]) for x in sorted(self.files)}
        lines = [
            "# Processor seconds of each test file, rounded up, as `pytest --write-budget` wrote;",
            "# fixed_work: those of a fixed piece of work on the same machine.",
            f"fixed_work = {budget['fixed_work']:.4f}",
        ]
        for name in PARTS:
            lines += ["", f"[{name}]  # {sum(budget.get(name, {}).values())} s in all"]
            lines += [f'"{file}" = {value}' for file, value in budget.get(name, {}).items()]
        BUDGET.write_text("\n".join(lines) + "\n")


def file_of(test: str) -> str:
    """Where the test is; examples in docstrings are counted together."""
    return "flamejax" if test.startswith("flamejax/") else test.partition("::")[0]


def read_budget() -> dict[str, Any]:
    return tomllib.loads(BUDGET.read_text()) if BUDGET.exists() else {}


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("cost of the tests")
    group.addoption("--budget", action="store_true", help="fail where tests/cost/budget.toml does")
    group.addoption("--write-budget", action="store_true", help="write tests/cost/budget.toml")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Account(config), "account")
    if "PYTEST_XDIST_WORKER" not in os.environ:
        config.pluginmanager.register(Sum(config), "sum of accounts")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The dearest files first, so that workers end at about the same time."""
    parts = [read_budget().get(part, {}) for part in PARTS]
    cost = {file: max(part.get(file, 0) for part in parts) for part in parts for file in part}
    items.sort(key=lambda item: -cost.get(file_of(item.nodeid), 0))
