"""A pytest plugin that writes down, for the tool, which flamejax was imported and what failed."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

import flamejax

WHERE = "FLAMEJAX_ERRORS_SEEN"  # names the file to write


class Seen:
    def __init__(self, path: Path) -> None:
        self.path, self.passed = path, 0
        self.failed: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)
        self.passed += report.passed and report.when == "call"

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.failed.append(report.nodeid)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        found = {"flamejax": flamejax.__file__, "failed": self.failed, "passed": self.passed}
        self.path.write_text(json.dumps(found))


def pytest_configure(config: pytest.Config) -> None:
    if WHERE in os.environ and "PYTEST_XDIST_WORKER" not in os.environ:
        config.pluginmanager.register(Seen(Path(os.environ[WHERE])), "errors seen")
