"""Pytest plugin: which test runs which line of the product, and the run of some tests alone.

With `SEATRIAL_COVERING_RECORD` (a folder) each process of pytest writes `*.coverage` (coverage.py's
data, a context for each test) and `*.json` (seconds of each test that passed). A fixture that
lives longer than a test has its test file as its context: any test of the file may need it.

With `SEATRIAL_COVERING_CHOOSE` (a JSON list of test ids) only these run, in this order. All tests
of a file run instead when none of its ids is there any more.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

PRODUCT = ("orchestrator", "reports", "runners")
RECORD, CHOOSE = "SEATRIAL_COVERING_RECORD", "SEATRIAL_COVERING_CHOOSE"


class Recorder:
    """Measures from here to the end of this process."""

    def __init__(self, folder: Path, root: Path) -> None:
        import coverage

        self.stem = folder / f"{os.getpid()}"
        self.seconds: dict[str, float] = {}
        self.coverage = coverage.Coverage(
            data_file=f"{self.stem}.coverage",
            config_file=False,
            source=[str(root / name) for name in PRODUCT],
        )
        self.coverage.start()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.coverage.switch_context(item.nodeid)
        answer = yield
        self.coverage.switch_context("")
        return answer

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[object], request: pytest.FixtureRequest
    ) -> Iterator[None]:
        if fixturedef.scope == "function":
            return (yield)
        node = request._pyfuncitem.nodeid
        self.coverage.switch_context(node.split("::")[0])
        answer = yield
        self.coverage.switch_context(node)
        return answer

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.passed:
            spent = self.seconds.get(report.nodeid, 0.0)
            self.seconds[report.nodeid] = spent + report.duration
        else:
            self.seconds[report.nodeid] = float("-inf")

    def pytest_sessionfinish(self) -> None:
        self.coverage.stop()
        self.coverage.save()
        passed = {test: spent for test, spent in self.seconds.items() if spent >= 0}
        Path(f"{self.stem}.json").write_text(json.dumps(passed), "utf-8")


class Chooser:
    """Keeps the wanted tests, in the wanted order."""

    def __init__(self, wanted: list[str]) -> None:
        self.rank = {test: number for number, test in enumerate(wanted)}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        there = {item.nodeid.split("::")[0] for item in items if item.nodeid in self.rank}
        kept = [
            item
            for item in items
            if item.nodeid in self.rank or item.nodeid.split("::")[0] not in there
        ]
        kept.sort(key=lambda item: self.rank.get(item.nodeid, len(self.rank)))
        items[:] = kept


def pytest_configure(config: pytest.Config) -> None:
    runs_tests = hasattr(config, "workerinput") or not getattr(config.option, "numprocesses", 0)
    if RECORD in os.environ and runs_tests:
        config.pluginmanager.register(Recorder(Path(os.environ[RECORD]), config.rootpath))
    if CHOOSE in os.environ:
        wanted = json.loads(Path(os.environ[CHOOSE]).read_text("utf-8"))
        config.pluginmanager.register(Chooser(wanted))
