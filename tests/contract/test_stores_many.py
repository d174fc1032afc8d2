"""What is read of many runs and cells at once: the same questions to SQLite and to Postgres."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest
from sqlalchemy import event

from orchestrator.application.describe_run import list_runs
from orchestrator.application.reused_results import results_of_cell
from orchestrator.domain.cell import Cause, CellState, LeaseState, RunSpec, RunState
from orchestrator.domain.outcome import Counts, Outcome, TestOutcome
from orchestrator.domain.reuse_inputs import Reuse
from orchestrator.domain.run_record import ArtifactRecord
from orchestrator.store.cell_results import Depth
from orchestrator.store.leases import RunSpending
from orchestrator.store.results import TestsAsked
from orchestrator.store.runs import RunNames, RunsAsked
from tests.databases import (
    MANIFEST,
    NOW,
    Agent,
    a_run,
    advance,
    after,
    attempt,
    create,
    lease,
    matrix,
)

EVERY = TestsAsked()


def told(stores, cell: str, *outcomes: str, job: str = "unit", number: int = 1) -> Agent:
    """An attempt whose tests went so; `gone` was collected and never reported."""
    agent = Agent(stores, attempt(stores, cell, number))
    names = [f"t.py::{n}" for n in range(len(outcomes))]
    collected = agent.manifest(*names, job=job)
    reports = [
        agent.test(name, outcome, job=job)
        for name, outcome in zip(names, outcomes, strict=True)
        if outcome != "gone"
    ]
    agent.send(collected, *reports)
    return agent


def conclude(stores, cell: str, outcome: Outcome = Outcome.PASSED) -> None:
    advance(stores, cell, CellState.RELEASING)
    stores.evidence.settle(cell, [])
    stores.cells.conclude(cell, Cause(outcome, ""), at=after(60))


def test_totals_are_the_same_before_and_after_a_cell_is_done(stores):
    cell, _ = create(stores)
    told(stores, cell, "passed", "failed", "gone")
    alive = stores.results.totals(["run-1"])
    assert alive == {"run-1": Counts(passed=1, failed=1, missing=1)}
    conclude(stores, cell, Outcome.FAILED)
    assert stores.results.totals(["run-1"]) == alive
    assert stores.results.totals(["run-2"]) == stores.results.totals([]) == {}


def test_totals_have_the_tests_of_reused_jobs(stores):
    [first] = create(stores, platforms=1)
    told(stores, first, "passed", "passed")
    conclude(stores, first)
    [second] = create(stores, "run-2", platforms=1)
    reused = Reuse(job="unit", why="same", run="run-1", cell=first, at=NOW)
    stores.reusable_results.decide(second, [reused, Reuse(job="demo", why="new")], at=NOW)
    both = {"run-1": Counts(passed=2), "run-2": Counts(passed=2)}
    assert stores.results.totals(["run-1", "run-2"]) == both
    stores.cells.conclude(second, Cause(Outcome.PASSED, "reused"), at=NOW)
    assert stores.results.totals(["run-1", "run-2"]) == both
    assert stores.reusable_results.decisions([first, second]) == {
        second: {"demo": Reuse(job="demo", why="new"), "unit": reused}
    }


def test_results_of_many_cells_are_those_of_each(stores):
    one, other = create(stores)
    agent = told(stores, one, "passed", "skipped")
    agent.send(
        agent.line("environment", torch="2.9"),
        agent.line("log", level="warning", message="warm"),
        agent.line("phase", "unit", name="started"),
    )
    stores.results.put_artifacts(one, [ArtifactRecord("b", 2, "2"), ArtifactRecord("a", 1, "1")])
    found = stores.results.of_cells([one, other, "no such"])
    assert set(found) == {one}
    assert found[one].counts == {"unit": Counts(passed=1, skipped=1)}
    assert stores.cells.lives([one])[one].environment == stores.results.environment(one)
    assert list(found[one].notices) == stores.results.notices(one)
    assert [artifact.name for artifact in found[one].artifacts] == ["a", "b"]
    assert found[one].jobs == stores.results.jobs(one)
    conclude(stores, one)
    assert stores.results.of_cells([one])[one].counts == found[one].counts


def test_metrics_and_artifacts_are_left_out_where_nobody_looks(stores):
    [cell] = create(stores, platforms=1)
    agent = Agent(stores, attempt(stores, cell))
    agent.send(agent.line("metric", "demo", name="speed", samples=[1.0], unit="s"))
    assert len(stores.results.of_cells([cell])[cell].metrics) == 1
    assert cell not in stores.results.of_cells([cell], Depth.SHOWN)


def test_lives_of_many_cells_are_those_of_each(stores):
    one, other = create(stores)
    attempt(stores, one)
    advance(stores, one, CellState.RELEASING)
    stores.cells.requeue(f"{one}-1", Cause(Outcome.ERRORED, "lost"), at=after(5))
    attempt(stores, one, 2)
    lives = stores.cells.lives([one, other, "no such"])
    assert set(lives) == {one, other}
    for cell, life in lives.items():
        assert life.cell == stores.cells.get(cell)
        assert life.plan == stores.cells.plan(cell)
        assert list(life.attempts) == stores.cells.attempts(cell)
        assert list(life.transitions) == stores.cells.transitions(cell)
    assert [one.number for one in lives[one].attempts] == [1, 2]


def test_cells_of_many_runs_stand_in_matrix_order(stores):
    for name in ("run-1", "run-2"):
        create(stores, name)
    found = stores.cells.of_runs(["run-2", "run-1", "run-3"])
    assert {run: [cell.name for cell in cells] for run, cells in found.items()} == {
        "run-1": ["p0", "p1"],
        "run-2": ["p0", "p1"],
    }


def test_spending_adds_up_what_is_settled_and_hands_out_the_rest(stores):
    one, other = create(stores)
    for number, cell in enumerate((one, other)):
        owner = attempt(stores, cell)
        held = lease(f"l-{number}", owner, place=f"place-{number}")
        stores.leases.reserve(held, run_id="run-1", exclusive=False)
        stores.leases.launching(held.id, at=NOW)
    stores.leases.gone("l-0", at=after(9), cost_usd=Decimal("0.1230"))
    found = stores.leases.spending(["run-1", "run-2"])
    assert set(found) == {"run-1"}
    assert found["run-1"].settled.known_usd == Decimal("0.1230")
    [going] = found["run-1"].unsettled
    assert going == replace(stores.leases.get("l-1"), state=LeaseState.LAUNCHING)
    assert stores.leases.spending([]) == {}
    assert RunSpending().settled.usd == 0


@pytest.fixture
def three(stores) -> list[str]:
    """Runs of two subjects and two matrices; the last one goes on."""
    names = ["run-1", "run-2", "run-3"]
    asked = matrix(1)
    for name, subject, version, title in (
        ("run-1", "lib", "1.10", "nightly"),
        ("run-2", "other", "1.1_0", "weekly"),
        ("run-3", "lib", "2.0", "nightly"),
    ):
        run = replace(a_run(name), subject_name=subject, subject_version=version, matrix_name=title)
        stores.runs.create(run, RunSpec(asked, MANIFEST), [], key=None)
    stores.runs.finish("run-1", Outcome.FAILED, at=after(1))
    stores.runs.finish("run-2", Outcome.PASSED, at=after(2))
    return names


def test_pages_of_what_is_asked_for(stores, three):
    for asked, names in (
        (RunsAsked(), ["run-3", "run-2", "run-1"]),
        (RunsAsked(outcome=Outcome.FAILED), ["run-1"]),
        (RunsAsked(state=RunState.RUNNING), ["run-3"]),
        (RunsAsked(subject="lib"), ["run-3", "run-1"]),
        (RunsAsked(subject="lib", version="2"), ["run-3"]),
        (RunsAsked(version="1.1_"), ["run-2"]),
        (RunsAsked(version="%"), []),
        (RunsAsked(matrix="weekly"), ["run-2"]),
    ):
        page, _ = stores.runs.page(limit=9, before=None, filters=asked)
        assert [run.id for run in page] == names, asked
    assert stores.runs.names() == RunNames(("lib", "other"), ("nightly", "weekly"))


def test_a_list_asks_as_often_for_many_runs_as_for_one(database):
    stores = database.stores
    for number in range(8):
        told(stores, create(stores, f"run-{number}")[0], "passed")
    seen: list[str] = []
    event.listen(
        database.sessions.engine,
        "before_cursor_execute",
        lambda _c, _k, statement, *_: seen.append(statement),
    )
    counts = []
    for limit in (1, 8):
        seen.clear()
        found, _ = list_runs(stores, limit=limit, before=None, at=after(9))
        counts.append(len(seen))
        assert all(one.counts == Counts(passed=1) for one in found)
    assert counts[0] == counts[1]


def names(lines) -> list[tuple[str, str]]:
    return [(line.nodeid.removeprefix("t.py::"), line.outcome.word) for line in lines]


def test_tests_come_the_worst_first_page_by_page(stores):
    [cell] = create(stores, platforms=1)
    told(stores, cell, "passed", "gone", "failed", "skipped", "passed", "failed")
    cursor, pages = "", []
    while True:
        page = stores.results.worst_first(cell, {}, EVERY, limit=2, after=cursor)
        pages.append(names(page))
        cursor = page.next
        if not cursor:
            break
    assert pages == [
        [("2", "failed"), ("5", "failed")],
        [("1", "missing"), ("0", "passed")],
        [("3", "skipped"), ("4", "passed")],
    ]
    everything = stores.results.worst_first(cell, {}, EVERY, limit=99, after="nonsense")
    assert len(everything) == 6


def test_tests_are_asked_for_by_outcome_job_and_name(stores):
    [cell] = create(stores, platforms=1)
    agent = told(stores, cell, "passed", "failed")
    agent.send(agent.manifest("t.py::x_y", job="demo"), agent.test("t.py::x_y", job="demo"))

    def ask(**asked):
        found = stores.results.worst_first(cell, {}, TestsAsked(**asked), limit=9, after="")
        return names(found)

    assert ask(outcome=TestOutcome.FAILED) == [("1", "failed")]
    assert ask(job="demo") == [("x_y", "passed")]
    assert ask(contains="_") == [("x_y", "passed")]
    assert ask(contains="%") == []


def test_tests_of_reused_jobs_are_read_where_they_are(stores):
    [first] = create(stores, platforms=1)
    agent = told(stores, first, "passed", "failed")
    agent.send(agent.manifest("t.py::d", job="demo"), agent.test("t.py::d", job="demo"))
    conclude(stores, first)
    [second] = create(stores, "run-2", platforms=1)
    reused = Reuse(job="unit", why="same", run="run-1", cell=first, at=NOW)
    stores.reusable_results.decide(second, [reused], at=NOW)
    lines = stores.results.worst_first(second, {first: ("unit",)}, EVERY, limit=9, after="")
    assert sorted(names(lines)) == [("0", "passed"), ("1", "failed")]
    assert len(results_of_cell(stores, second)) == 2
    assert stores.results.worst_first(second, {}, EVERY, limit=9, after="") == []


def test_one_line_comes_with_its_text(stores):
    [cell] = create(stores, platforms=1)
    agent = Agent(stores, attempt(stores, cell))
    agent.send(agent.manifest("t.py::a"), agent.test("t.py::a", "failed", longrepr="boom\nthere\n"))
    [line] = stores.results.worst_first(cell, {}, EVERY, limit=9, after="")
    assert line.has_text
    assert line.signature
    assert line.duration_s == pytest.approx(0.75)
    assert stores.results.line(cell, {}, line.test_id) == replace(line, text="boom\nthere\n")
    assert stores.results.line(cell, {}, line.test_id + 1) is None
