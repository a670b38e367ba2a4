"""A pytest plugin that tells each row's outcome, seconds and figures to the runner, as JSON lines.

`-p tests.gpu.recorder --rows-to FD --until SECONDS [--done ROW …]`: rows that would begin after
that time of the monotonic clock are not run, and done ones are left out.
"""

from __future__ import annotations

import json
import os
import re
import time
from typing import Any

import pytest

LACKS = re.compile(r"ModuleNotFoundError: No module named '(torch|transformers)'$", re.MULTILINE)
"""What the bundle leaves to the machine: rows that import it are not run without it."""
OUTCOMES = {"passed": "pass", "failed": "fail", "skipped": "not run"}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rows-to", type=int, required=True)
    parser.addoption("--until", type=float, required=True)
    parser.addoption("--done", action="append", default=[])


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Recorder(config.option.rows_to, config.option.until))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    items[:] = [item for item in items if item.nodeid not in config.option.done]


class Recorder:
    """Writes a line when a row begins, and one when it has ended."""

    def __init__(self, descriptor: int, until: float) -> None:
        self._descriptor, self._until = descriptor, until
        self._row: dict[str, Any] = {}

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._row = {"row": nodeid, "outcome": "pass", "seconds": 0.0, "figures": {}}
        self._write({"begins": nodeid})

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        if time.monotonic() > self._until:
            pytest.skip("the tier's time is over")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._row["seconds"] = round(self._row["seconds"] + report.duration, 2)
        self._row["figures"] |= dict(report.user_properties)
        # A teardown that fails after a call that passed is a failure too; never the other way.
        if report.outcome != "passed" and self._row["outcome"] != "fail":
            self._row["outcome"] = OUTCOMES[report.outcome]
            is_skipped = isinstance(report.longrepr, tuple)
            self._row["reason"] = report.longrepr[2] if is_skipped else report.longreprtext

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._write(self._row)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that cannot be imported is a row too."""
        if report.outcome != "passed":
            is_skipped = isinstance(report.longrepr, tuple)
            reason = report.longrepr[2] if is_skipped else report.longreprtext
            lacks = LACKS.search(reason)
            outcome = OUTCOMES["skipped" if lacks else report.outcome]
            reason = f"needs {lacks[1]}, which this machine has not" if lacks else reason
            row = {"row": report.nodeid, "outcome": outcome, "seconds": 0.0, "figures": {}}
            self._write({**row, "reason": reason})

    def _write(self, line: dict[str, Any]) -> None:
        os.write(self._descriptor, (json.dumps(line, default=str) + "\n").encode())
