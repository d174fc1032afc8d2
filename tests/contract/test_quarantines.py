"""Quarantines over real results: who may go in, who returns, who is suggested."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace

import pytest

from orchestrator.application.describe_run import describe_run
from orchestrator.application.list_flaky import list_flaky
from orchestrator.application.quarantine import (
    NewQuarantine,
    add_quarantine,
    end_quarantine,
    settle_after,
    settle_quarantines,
    suggest_quarantines,
)
from orchestrator.domain.caller_identity import Person
from orchestrator.domain.cell import Cause, CellState, RunSpec
from orchestrator.domain.document_problems import InvalidDocumentError
from orchestrator.domain.matrix import expand
from orchestrator.domain.outcome import Counts, Outcome
from orchestrator.domain.quarantine import QuarantineState
from tests.databases import MANIFEST, NOW, ON_SQLITE, Agent, a_run, after, attempt, matrix

TEST = "tests/test_a.py::test_flaky"
DAY = 86_400.0
ME = Person("me", "t-1")
NEW = NewQuarantine(
    product="proof", nodeid=TEST, reason="no seed", owner="me", days=14, returns_after=3
)


class Days:
    """A product whose test runs once a day on two platforms."""

    def __init__(self, stores) -> None:
        self.stores, self.day = stores, 0
        self.clock = SimpleNamespace(now=lambda: after(self.day * DAY))

    def ran(self, *outcomes: str, nodeid: str = TEST, job: str = "unit") -> str:
        """A run of the next day: one outcome a platform; `retried` failed and passed there."""
        self.day += 1
        asked, run = matrix(len(outcomes)), a_run(f"run-{self.day:03}", self.day * DAY)
        cells = [(f"{run.id}.{plan.id}", plan) for plan in expand(asked, MANIFEST)]
        self.stores.runs.create(run, RunSpec(asked, MANIFEST), cells, key=None)
        for (cell, _), outcome in zip(cells, outcomes, strict=True):
            agent = Agent(self.stores, attempt(self.stores, cell))
            lines = []
            if outcome == "retried":
                lines.append(agent.line("test", job, record="rerun", nodeid=nodeid))
            word = "passed" if outcome == "retried" else outcome
            longrepr = "E   AssertionError: boom"
            lines.append(agent.test(nodeid, word, job=job, longrepr=longrepr))
            assert agent.send(*lines)
            self.stores.cells.enter(cell, CellState.RELEASING, at=self.clock.now())
            self.stores.cells.conclude(cell, Cause(Outcome.FAILED, ""), at=self.clock.now())
        return run.id

    def record(self, run_id: str):
        return describe_run(self.stores, run_id, at=self.clock.now())


@pytest.fixture
def days(stores):
    return Days(stores)


def refused(world, **change) -> list[str]:
    with pytest.raises(InvalidDocumentError) as error:
        add_quarantine(world, replace(NEW, **change), author=ME)
    return [str(problem) for problem in error.value.problems]


@ON_SQLITE
def test_a_quarantine_is_added_and_ended(days):
    days.ran("failed")
    added = add_quarantine(days, NEW, author=ME)
    assert (added.id, added.opened) == ("Q-0001", days.clock.now())
    assert added.expires - added.opened == timedelta(days=14)
    ended = end_quarantine(days, "Q-0001", by="me")
    assert ended is not None
    assert (ended.ended_at, ended.ended_by) == (days.clock.now(), "me")
    assert end_quarantine(days, "Q-0002", by="me") is None


@ON_SQLITE
def test_nonsense_is_refused_with_what_to_do(days):
    days.ran("failed")
    assert refused(days, days=91) == ["days: must be from 1 to 90: a quarantine ends by itself"]
    [said] = refused(days, nodeid="tests/test_a.py::test_flakey")
    assert said.startswith("nodeid: proof has no test 'tests/test_a.py::test_flakey'")
    assert refused(days, product="other") != []
    add_quarantine(days, NEW, author=ME)
    [said] = refused(days)
    assert said == "nodeid: is in quarantine Q-0001 until 2026-03-16: end that first"
    add_quarantine(days, replace(NEW, platforms=("p0",)), author=ME)


def test_a_test_returns_after_so_many_passes_on_each_platform(days):
    days.ran("failed", "passed")
    add_quarantine(days, NEW, author=ME)
    for outcomes in (("passed", "passed"), ("passed", "failed"), ("passed", "passed")):
        days.ran(*outcomes)
        settle_after(days.stores, NEW.product, at=days.clock.now())
    [one] = days.stores.quarantines.list()
    assert one.ended_at is None
    days.ran("passed", "passed")
    settle_after(days.stores, NEW.product, at=days.clock.now())
    assert days.stores.quarantines.list()[0].ended_at is None
    days.ran("passed", "passed")
    settle_after(days.stores, NEW.product, at=days.clock.now())
    [one] = days.stores.quarantines.list()
    assert one.ended_at == days.clock.now()
    assert one.ended_by == "returned after 3 passes in a row"
    days.ran("passed", "failed")
    assert settle_quarantines(days.stores, "proof", at=days.clock.now()) == (one,)


@ON_SQLITE
def test_a_pass_on_retry_is_no_pass_and_older_ones_do_not_count(days):
    for _ in range(5):
        days.ran("passed")
    add_quarantine(days, NEW, author=ME)
    for outcome in ("passed", "retried", "passed", "skipped", "passed"):
        days.ran(outcome)
        [one] = settle_quarantines(days.stores, "proof", at=days.clock.now())
        assert one.ended_at is None
    days.ran("passed")
    [one] = settle_quarantines(days.stores, "proof", at=days.clock.now())
    assert one.ended_at is not None


def test_the_tests_of_that_name_in_two_jobs_have_results_of_their_own(days):
    days.ran("failed")
    add_quarantine(days, NEW, author=ME)
    for _ in range(3):
        days.ran("failed")
    days.ran("passed", job="zoo")
    days.ran("failed")
    [listed] = list_flaky(days, "proof", runs=50).quarantines
    assert (listed.failures, listed.passes) == (5, 0)


def test_failures_in_quarantine_stay_failures_and_are_marked(days):
    days.ran("failed")
    add_quarantine(days, NEW, author=ME)
    record = days.record(days.ran("failed", "failed"))
    assert record.counts == Counts(failed=2)
    assert [(q.quarantine.id, q.cell, q.state) for q in record.quarantined] == [
        ("Q-0001", "p0", QuarantineState.ACTIVE),
        ("Q-0001", "p1", QuarantineState.ACTIVE),
    ]
    days.day += 20
    late = days.record(days.ran("failed"))
    assert [q.state for q in late.quarantined] == [QuarantineState.EXPIRED]
    assert late.failure_groups[0].excuses == ""
    assert late.counts == Counts(failed=1)


def test_failures_of_a_run_before_the_quarantine_are_marked_as_a_gate_tolerates_them(days):
    older = days.ran("failed", "failed")
    assert days.record(older).quarantined == ()
    days.day += 1
    add_quarantine(days, replace(NEW, platforms=("p1",)), author=ME)
    record = days.record(older)
    assert [(q.quarantine.id, q.cell, q.state) for q in record.quarantined] == [
        ("Q-0001", "p1", QuarantineState.ACTIVE),
    ]
    [group] = record.failure_groups
    assert (group.quarantines, group.tolerated, group.count) == (("Q-0001",), 1, 2)
    assert group.excuses == "Q-0001 (1 of them)"
    end_quarantine(days, "Q-0001", by="me")
    assert days.record(older).quarantined == ()
    assert days.record(older).failure_groups[0].excuses == ""


def test_flaky_tests_are_suggested_and_broken_ones_are_not(days):
    for outcome in ("passed", "retried", "passed", "failed", "passed"):
        days.ran(outcome)
    for _ in range(4):
        days.ran("failed", nodeid="tests/test_a.py::test_broken")
    [found] = suggest_quarantines(days, "proof")
    assert (found.job, found.nodeid, found.platforms) == ("unit", TEST, ("p0",))
    assert found.evidence.passed_on_retry == 1
    assert found.quarantine == ""
    add_quarantine(days, NEW, author=ME)
    assert [one.quarantine for one in suggest_quarantines(days, "proof")] == ["Q-0001"]
    assert suggest_quarantines(days, "other") == ()
    assert days.clock.now() > NOW
