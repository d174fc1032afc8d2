"""Trials: the same job several times, with only the tests in question."""

from __future__ import annotations

import pytest

from orchestrator.application.cell.retest_session import outcomes_of
from orchestrator.domain.retests import RetestKind, RetestPlan, by_job, job_in_session
from tests.integration.agent_machine import Evidence, machine_at

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


KEYS = ["suite::test_it.py::test_sometimes", "suite::test_it.py::gone"]
ASK = RetestPlan(kind=RetestKind.RERUN, tests=by_job(KEYS), times=3)
SOME = ["test_it.py::test_many[1]", "test_it.py::test_many[2]", "test_it.py::gone"]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory, lean: str) -> tuple[Evidence, bytes]:
    """An attempt of jobs that run some tests alone, and its events as they were written."""
    folder = tmp_path_factory.mktemp("only")
    (folder / "suite").mkdir()
    (folder / "suite" / "test_it.py").write_text(SUITE.format(count=str(folder / "count")))
    jobs = [
        *(
            {"id": job_in_session("suite", time), "only": list(ASK.tests["suite"])}
            for time in (1, 2, 3)
        ),
        {"id": "some", "only": SOME},
        {"id": "dies", "only": ["test_it.py::test_dies", "test_it.py::test_many[0]"]},
    ]
    with machine_at(folder / "base") as machine:
        evidence = machine.run(folder / "suite", python=lean, jobs=jobs)
        return evidence, (machine.attempts[0] / "events.jsonl").read_bytes()


def test_only_these_are_run_and_collected(ran: tuple[Evidence, bytes]) -> None:
    evidence, _ = ran
    assert evidence.outcomes("some") == {SOME[0]: "failed", SOME[1]: "passed"}
    [manifest] = evidence.of("manifest", "some")
    assert manifest["tests"] == SOME[:2]


def test_a_test_that_kills_its_process_does_not_take_the_others_along(
    ran: tuple[Evidence, bytes],
) -> None:
    evidence, _ = ran
    assert evidence.outcomes("dies") == {
        "test_it.py::test_many[0]": "passed", "test_it.py::test_dies": "crashed",
    }  # fmt: skip
    assert evidence.finished("dies")["restarts"] == 0, "it was the last one"


def test_a_session_of_three_times_is_three_outcomes(ran: tuple[Evidence, bytes]) -> None:
    _, raw = ran
    outcomes, trouble = outcomes_of(raw, ASK, KEYS)
    assert trouble == ""
    assert [[time[key] for key in KEYS] for time in outcomes] == [
        ["passed", "absent"],
        ["failed", "absent"],
        ["passed", "absent"],
    ]
