"""Trials: the same job several times, with only the tests in question."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.application.cell.sitting import outcomes_of
from orchestrator.domain.trials import TrialAsk, TrialKind, by_job, job_in_sitting
from tests.integration.agent_machine import Machine, lean_python, machine_at

SUITE = """
import os, pathlib, signal
import pytest

COUNT = pathlib.Path({count!r})


@pytest.mark.parametrize("n", range(3))
def test_many(n):
    assert n != 1


def test_sometimes():
    times = len(COUNT.read_text()) if COUNT.exists() else 0
    COUNT.write_text("x" * (times + 1))
    assert times != 1


def test_dies():
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    return lean_python(tmp_path_factory.mktemp("lean") / "venv")


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    with machine_at(tmp_path / "base") as machine:
        yield machine


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    folder = tmp_path / "suite"
    folder.mkdir()
    (folder / "test_it.py").write_text(SUITE.format(count=str(tmp_path / "count")))
    return folder


def test_only_these_are_run_and_collected(machine: Machine, python: str, suite: Path) -> None:
    only = ["test_it.py::test_many[1]", "test_it.py::test_many[2]", "test_it.py::gone"]
    evidence = machine.run(suite, python=python, jobs=[{"only": only}])
    assert evidence.outcomes() == {
        "test_it.py::test_many[1]": "failed",
        "test_it.py::test_many[2]": "passed",
    }
    [manifest] = evidence.of("manifest")
    assert manifest["tests"] == only[:2]


def test_a_test_that_kills_its_process_does_not_take_the_others_along(
    machine: Machine, python: str, suite: Path
) -> None:
    only = ["test_it.py::test_dies", "test_it.py::test_many[0]"]
    evidence = machine.run(suite, python=python, jobs=[{"only": only}])
    assert len(evidence.outcomes()) == 2
    assert evidence.finished()["restarts"] <= 1


def test_a_sitting_of_three_times_is_three_outcomes(
    machine: Machine, python: str, suite: Path
) -> None:
    keys = ["suite::test_it.py::test_sometimes", "suite::test_it.py::gone"]
    ask = TrialAsk(kind=TrialKind.RERUN, tests=by_job(keys), times=3)
    jobs = [
        {"id": job_in_sitting("suite", time), "only": list(ask.tests["suite"])}
        for time in (1, 2, 3)
    ]
    folder = machine.prepare(suite, python=python, jobs=jobs)
    machine.start(folder)
    machine.wait(folder)
    raw = (folder / "events.jsonl").read_bytes()
    outcomes, trouble = outcomes_of(raw, ask, keys)
    assert trouble == ""
    assert [[time[key] for key in keys] for time in outcomes] == [
        ["passed", "absent"],
        ["failed", "absent"],
        ["passed", "absent"],
    ]
