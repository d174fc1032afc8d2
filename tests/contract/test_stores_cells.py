"""Cells and attempts: the same questions to SQLite and to Postgres."""

from __future__ import annotations

from decimal import Decimal
from functools import partial

import pytest
from sqlalchemy import event

from orchestrator.domain.cell import (
    Attempt,
    Cause,
    CellState,
    IllegalTransitionError,
    Transition,
)
from orchestrator.domain.outcome import Outcome
from orchestrator.store.errors import UnknownIdError
from tests.databases import NOW, Agent, advance, after, attempt, create, lease, together

PASSED = Cause(Outcome.PASSED, "")
LOST = Cause(Outcome.ERRORED, "lost", "the machine went silent")
STATES = list(CellState)


def test_a_new_cell_is_queued_since_the_run_began(stores):
    first, second = create(stores)
    cell = stores.cells.get(first)
    assert (cell.id, cell.run_id, cell.name, cell.position) == (first, "run-1", "p0", 0)
    assert (cell.state, cell.entered_at, cell.outcome) == (CellState.QUEUED, NOW, None)
    assert stores.cells.unfinished() == (first, second)
    assert stores.cells.transitions(first) == []


def test_unknown_ids_are_errors_that_name_them(stores):
    for ask in (stores.cells.get, stores.cells.plan):
        with pytest.raises(UnknownIdError, match="no cell 'x'"):
            ask("x")
    with pytest.raises(UnknownIdError, match="no attempt 'x'"):
        stores.cells.attempt("x")
    with pytest.raises(UnknownIdError, match="no lease 'x'"):
        stores.leases.get("x")


def test_admitting_opens_an_attempt(stores):
    cell_id, _ = create(stores)
    assert stores.cells.admit(cell_id, "a1", max_parallel=1, at=after(1))
    assert stores.cells.get(cell_id).state is CellState.PLACING
    assert stores.cells.attempts(cell_id) == [Attempt("a1", cell_id, 1, after(1))]
    assert stores.cells.transitions(cell_id) == [Transition(after(1), 1, "queued", "placing")]
    assert [i.data for i in stores.run_events.after("run-1", 0)] == [{"state": "placing"}]


def test_a_look_begins_with_everything_that_is_stored(stores):
    cell_id, _ = create(stores)
    opened = attempt(stores, cell_id)
    with pytest.raises(UnknownIdError, match="no attempt 'x'"):
        stores.cells.attempt_state("x")
    assert stores.cells.attempt_state(opened).lease is None
    for lease_id in ("old", "new"):
        held = lease(lease_id, opened)
        stores.leases.reserve(held, run_id="run-1", exclusive=False)
    for lease_id in ("old", "new"):
        now = stores.cells.attempt_state(opened)
        assert (now.run, now.spec) == (stores.runs.get("run-1"), stores.runs.spec("run-1"))
        assert (now.cell, now.plan) == (stores.cells.get(cell_id), stores.cells.plan(cell_id))
        assert now.attempt == stores.cells.attempt(opened)
        assert now.position == stores.evidence.position(opened)
        assert now.lease == stores.leases.get("new")
        stores.leases.gone(lease_id, at=after(2), cost_usd=Decimal(0))
    assert stores.cells.attempt_state(opened).lease is None


def test_admitting_the_same_attempt_again_changes_nothing(stores):
    cell_id, _ = create(stores)
    for _ in range(2):
        assert stores.cells.admit(cell_id, "a1", max_parallel=1, at=NOW)
    assert len(stores.cells.attempts(cell_id)) == 1
    assert len(stores.run_events.after("run-1", 0)) == 1


def test_a_cell_at_work_gets_no_second_attempt(stores):
    cell_id, _ = create(stores)
    stores.cells.admit(cell_id, "a1", max_parallel=5, at=NOW)
    with pytest.raises(IllegalTransitionError):
        stores.cells.admit(cell_id, "a2", max_parallel=5, at=NOW)


def test_a_cell_between_placing_and_releasing_takes_a_place(stores):
    first, second = create(stores)
    attempt(stores, first)
    for state in STATES[1:-1]:
        assert stores.cells.enter(first, state, at=NOW).state is state
        assert stores.cells.admit(second, "b", max_parallel=1, at=NOW) is False, state
    assert stores.cells.admit(second, "b", max_parallel=2, at=NOW) is True


def test_never_more_cells_than_allowed_are_at_work(stores):
    cells = create(stores, platforms=12)
    create(stores, "run-2", platforms=1)
    admit = [partial(stores.cells.admit, c, f"{c}-1", max_parallel=3, at=NOW) for c in cells]
    assert together(admit).count(True) == 3
    at_work = [c for c in stores.cells.of_run("run-1") if c.state is CellState.PLACING]
    assert len(at_work) == 3
    assert stores.cells.admit("run-2.p0", "other", max_parallel=3, at=NOW)


def test_a_state_is_reached_once(stores):
    cell_id, _ = create(stores)
    attempt(stores, cell_id)
    for second in (1, 2):
        cell = stores.cells.enter(cell_id, CellState.BOOTING, at=after(second), reason="a place")
    assert (cell.state, cell.entered_at) == (CellState.BOOTING, after(1))
    assert stores.cells.transitions(cell_id)[1:] == [
        Transition(after(1), 1, "placing", "booting", "a place")
    ]
    assert len(stores.run_events.after("run-1", 0)) == 2


def test_a_state_that_is_past_stays_past(stores):
    cell_id, _ = create(stores)
    attempt(stores, cell_id)
    advance(stores, cell_id, CellState.COLLECTING)
    assert stores.cells.enter(cell_id, CellState.BOOTING, at=NOW).state is CellState.COLLECTING


def test_a_step_that_the_table_does_not_have_changes_nothing(stores):
    cell_id, _ = create(stores)
    attempt(stores, cell_id)
    with pytest.raises(IllegalTransitionError):
        stores.cells.enter(cell_id, CellState.RUNNING, at=NOW)
    assert stores.cells.get(cell_id).state is CellState.PLACING
    assert len(stores.cells.transitions(cell_id)) == 1


def test_many_who_reach_a_state_at_once_make_one_transition(stores):
    cell_id, _ = create(stores)
    attempt(stores, cell_id)
    together([partial(stores.cells.enter, cell_id, CellState.BOOTING, at=NOW)] * 6)
    assert len(stores.cells.transitions(cell_id)) == 2


def test_a_requeued_cell_waits_for_its_next_attempt(stores):
    cell_id, _ = create(stores)
    first = attempt(stores, cell_id)
    stores.cells.record_cause(first, LOST)
    stores.cells.enter(cell_id, CellState.RELEASING, at=NOW)
    for _ in range(2):
        stores.cells.requeue(first, LOST, at=after(5))
    cell = stores.cells.get(cell_id)
    assert (cell.state, cell.outcome, cell.entered_at) == (CellState.QUEUED, None, after(5))
    closed = stores.cells.attempt(first)
    assert (closed.cause, closed.outcome, closed.closed_at) == (LOST, Outcome.ERRORED, after(5))
    assert stores.cells.admit(cell_id, first, max_parallel=9, at=NOW) is False
    assert stores.cells.admit(cell_id, "next", max_parallel=9, at=NOW) is True
    assert [a.number for a in stores.cells.attempts(cell_id)] == [1, 2]
    steps = [(t.attempt, t.from_state, t.to_state) for t in stores.cells.transitions(cell_id)]
    assert steps[-2:] == [(1, "releasing", "queued"), (2, "queued", "placing")]


def test_requeueing_needs_the_machine_to_be_gone(stores):
    cell_id, _ = create(stores)
    first = attempt(stores, cell_id)
    with pytest.raises(IllegalTransitionError):
        stores.cells.requeue(first, LOST, at=NOW)
    assert stores.cells.attempt(first).closed_at is None


def test_a_cell_is_concluded_once(stores):
    cell_id, other = create(stores)
    first = attempt(stores, cell_id)
    stores.cells.enter(cell_id, CellState.RELEASING, at=NOW)
    stores.cells.conclude(cell_id, LOST, at=after(7))
    stores.cells.conclude(cell_id, PASSED, at=after(8))
    cell = stores.cells.get(cell_id)
    assert (cell.state, cell.outcome, cell.reason, cell.detail) == (
        CellState.DONE,
        Outcome.ERRORED,
        "lost",
        "the machine went silent",
    )
    assert (stores.cells.attempt(first).outcome, stores.cells.attempt(first).closed_at) == (
        Outcome.ERRORED,
        after(7),
    )
    assert stores.cells.attempt(first).cause is None
    assert stores.run_events.after("run-1", 0)[-1].data == {"state": "done", "outcome": "errored"}
    assert stores.cells.unfinished() == (other,)


def test_a_runs_cells_await_its_end_from_the_last_cell_until_it_is_finished(stores):
    first, second = create(stores)
    create(stores, "other")
    stores.cells.conclude(first, PASSED, at=after(1))
    assert stores.cells.awaiting_run_end() == ()
    stores.cells.conclude(second, PASSED, at=after(2))
    assert stores.cells.awaiting_run_end() == (first, second)
    stores.runs.finish("run-1", Outcome.PASSED, at=after(3))
    assert stores.cells.awaiting_run_end() == ()


def test_a_queued_cell_is_concluded_without_an_attempt(stores):
    cell_id, _ = create(stores)
    stores.cells.conclude(cell_id, Cause(Outcome.CANCELLED, "cancelled"), at=NOW)
    assert stores.cells.get(cell_id).outcome is Outcome.CANCELLED
    assert stores.cells.transitions(cell_id)[-1].attempt == 0


def test_a_cell_with_a_machine_is_not_concluded(stores):
    cell_id, _ = create(stores)
    attempt(stores, cell_id)
    with pytest.raises(IllegalTransitionError):
        stores.cells.conclude(cell_id, PASSED, at=NOW)
    cell = stores.cells.get(cell_id)
    assert (cell.state, cell.outcome) == (CellState.PLACING, None)


def test_many_who_conclude_at_once_conclude_once(stores):
    cell_id, _ = create(stores)
    attempt(stores, cell_id)
    stores.cells.enter(cell_id, CellState.RELEASING, at=NOW)
    together([partial(stores.cells.conclude, cell_id, PASSED, at=NOW)] * 6)
    assert len(stores.cells.transitions(cell_id)) == 3


def test_the_first_cause_stands(stores):
    cell_id, _ = create(stores)
    first = attempt(stores, cell_id)
    stores.cells.record_cause(first, LOST)
    stores.cells.record_cause(first, Cause(Outcome.CANCELLED, "cancelled"))
    assert stores.cells.attempt(first).cause == LOST


@pytest.mark.parametrize("platforms", [1, 9])
def test_the_number_of_statements_does_not_grow_with_the_rows(database, platforms):
    stores = database.stores
    cells = create(stores, platforms=platforms)
    for cell_id in cells:
        first = attempt(stores, cell_id)
        stores.leases.reserve(lease(f"l-{cell_id}", first), run_id="run-1", exclusive=False)
        agent = Agent(stores, first)
        agent.send(*(agent.test(f"t{n}", "failed", longrepr=f"e{n}") for n in range(platforms)))
    asked = []

    def note(_connection, _cursor, statement, *_more):
        if statement != "BEGIN":
            asked.append(statement)

    event.listen(database.sessions.engine, "before_cursor_execute", note)
    for ask in (
        partial(stores.cells.of_run, "run-1"),
        partial(stores.cells.attempt_state, f"{cells[0]}-1"),
        partial(stores.leases.of_run, "run-1"),
        partial(stores.runs.page, limit=50, before=None),
        partial(stores.results.tally, cells[0]),
        partial(stores.results.tests, cells[0]),
        partial(stores.run_events.after, "run-1", 0),
    ):
        asked.clear()
        assert ask()
        assert 1 <= len(asked) <= 2
