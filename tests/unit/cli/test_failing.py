"""What counts as a failure of a run, beside its failing tests."""

from __future__ import annotations

from typing import Any

import pytest

from orchestrator.cli.commands.runs import marks_of
from orchestrator.cli.failure_logs import failures_of
from orchestrator.client.seatrial import Seatrial
from orchestrator.client.transport import read
from orchestrator.domain.run_record import RunResponse
from tests.unit.cli import runs

TEST = {"job": "hull", "nodeid": "test_hull.py::test_sinks", "outcome": "failed", "message": "no"}
SINKS = ("hull", TEST["nodeid"], "failed", "no")


class StoredTests(Seatrial):
    """A client that finds the same failing tests in every cell."""

    def __init__(self, *tests: runs.Json) -> None:
        self.stored = tests

    def get(self, _path: str, **params: str | int | None) -> runs.Json:
        return {"items": [one for one in self.stored if one["outcome"] == params["outcome"]]}


def hull(outcome: str, reason: str, **given: Any) -> runs.Json:
    figures = {name: given.pop(name) for name in runs.counts() if name in given}
    return runs.job("hull", outcome=outcome, reason=reason, counts=runs.counts(**figures), **given)


def found(*cells: runs.Json, tests: tuple[runs.Json, ...] = (TEST,)) -> list[tuple[str, ...]]:
    run = read(RunResponse, runs.run(*cells))
    shown = failures_of(StoredTests(*tests), run, run.cells)
    return [(one.job, one.test, one.outcome, one.error) for one in shown]


@pytest.mark.parametrize(
    ("job", "more"),
    [
        (hull("failed", "tests", detail="1 failed", passed=1, failed=1), []),
        (
            hull("timed_out", "timeout", detail="after 600 s", passed=1, failed=1, missing=5),
            [("hull", "", "timed_out", "after 600 s")],
        ),
        (
            hull("failed", "tests", detail="1 failed, 5 missing", failed=1, missing=5),
            [("hull", "", "failed", "1 failed, 5 missing")],
        ),
        (hull("failed", "tests", failed=1, not_run=2), [("hull", "", "failed", "tests")]),
        (hull("errored", "lost", failed=1), [("hull", "", "errored", "lost")]),
        (
            hull("failed", "tests", detail="3 failed", failed=3),
            [("hull", "", "failed", "3 failed")],
        ),
    ],
    ids=["explained", "timeout", "missing", "not run", "lost", "tests without a name"],
)
def test_a_job_is_left_out_only_where_its_failing_tests_explain_its_outcome(
    job: runs.Json, more: list[tuple[str, ...]]
) -> None:
    cell = runs.cell("cpu", "done", outcome=job["outcome"], reason=job["reason"], jobs=[job])
    assert found(cell) == [SINKS, *more]


@pytest.mark.parametrize(
    ("reason", "more"),
    [("tests", []), ("lost", [("", "", "errored", "lost: the machine is gone")])],
)
def test_a_cell_is_a_failure_where_its_reason_is_none_of_its_jobs(
    reason: str, more: list[tuple[str, ...]]
) -> None:
    job = hull("failed", "tests", failed=1)
    outcome = "failed" if reason == "tests" else "errored"
    detail = "the machine is gone"
    cell = runs.cell("cpu", "done", outcome=outcome, reason=reason, detail=detail, jobs=[job])
    assert found(cell) == [SINKS, *more]


def test_a_crash_after_failing_tests_is_a_failure_of_its_own() -> None:
    ending = {"outcome": "failed", "reason": "crashed", "detail": "killed by SIGSEGV"}
    job = hull("failed", "tests", detail="1 failed", passed=3, failed=1, ending=ending)
    cell = runs.cell("cpu", "done", outcome="failed", reason="tests", jobs=[job])
    assert found(cell) == [SINKS, ("hull", "", "failed", "killed by SIGSEGV")]


def test_files_of_a_failing_test_are_named_with_their_cell() -> None:
    cell = runs.cell("cpu", "done", jobs=[hull("failed", "tests", failed=1)])
    run = read(RunResponse, runs.run(cell))
    client = StoredTests({**TEST, "artifacts": ["hull.test_sinks-plot.png"]})
    [line, *_] = failures_of(client, run, run.cells)
    assert line.artifacts == ["cpu/hull.test_sinks-plot.png"]


@pytest.mark.parametrize(
    ("held", "said"),
    [
        ({}, ""),
        ({"cpu": "Q-1"}, "in quarantine Q-1 on cpu"),
        ({"cpu": "Q-1", "l4": "Q-1"}, "in quarantine Q-1"),
        ({"cpu": "Q-1", "l4": "Q-2"}, "in quarantine Q-1 on cpu, Q-2 on l4"),
    ],
)
def test_a_failing_test_names_its_active_quarantine(held: dict[str, str], said: str) -> None:
    job = hull("failed", "tests", detail="1 failed", failed=1)
    cells = [runs.cell(name, "done", jobs=[job]) for name in ("cpu", "l4")]
    quarantine = {
        "product": "p", "nodeid": TEST["nodeid"], "reason": "no seed", "owner": "me",
        "opened": "2026-01-01T00:00:00Z", "expires": "2026-02-01T00:00:00Z",
    }  # fmt: skip
    named = {"job": "hull", "nodeid": TEST["nodeid"]}
    over = {"quarantine": quarantine | {"id": "Q-9"}, "state": "expired", "cell": "cpu"} | named
    marked = [
        {"quarantine": quarantine | {"id": name}, "state": "active", "cell": cell} | named
        for cell, name in held.items()
    ]
    run = read(RunResponse, runs.run(*cells) | {"quarantined": [over, *marked]})
    [line] = [one for one in failures_of(StoredTests(TEST), run, run.cells) if one.test]
    assert line.quarantined == held
    assert list(marks_of(line)) == ([said] if said else [])


@pytest.mark.parametrize(
    ("matched", "said"),
    [
        ({}, []),
        ({"KI-1": ("applies", ["cpu"])}, ["known issue KI-1 (applies) on cpu"]),
        ({"KI-1": ("exceeded", ["cpu", "l4"])}, ["known issue KI-1 (exceeded)"]),
        (
            {"KI-1": ("applies", ["cpu", "l4"]), "KI-2": ("ended", ["l4"])},
            ["known issue KI-1 (applies), KI-2 (ended) on l4"],
        ),
    ],
)
def test_a_failing_test_names_its_known_issues_with_their_states(
    matched: dict[str, tuple[str, list[str]]], said: list[str]
) -> None:
    job = hull("failed", "tests", detail="1 failed", failed=1)
    cells = [runs.cell(name, "done", jobs=[job]) for name in ("cpu", "l4")]
    issue = {
        "product": "p", "title": "known", "match": {"exception": "OSError"}, "owner": "me",
        "opened": "2026-01-01", "expires": "2026-02-01",
    }  # fmt: skip
    other = {"cell": "l4", "job": "hull", "nodeid": "tests/test_other.py::test_other"}
    used = [
        {
            "issue": issue | {"id": name},
            "state": state,
            "results": [
                other,
                *({"cell": cell, "job": "hull", "nodeid": TEST["nodeid"]} for cell in on),
            ],
        }
        for name, (state, on) in matched.items()
    ]
    run = read(RunResponse, runs.run(*cells) | {"known_issues": used})
    [line] = [one for one in failures_of(StoredTests(TEST), run, run.cells) if one.test]
    assert list(marks_of(line)) == said
    assert line.as_json()["known_issues"] == {
        cell: {name: state for name, (state, on) in matched.items() if cell in on}
        for cell in ("cpu", "l4")
        if any(cell in on for _, on in matched.values())
    }
