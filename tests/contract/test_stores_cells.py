"""Cells, attempts, and the ledger: the same questions to SQLite and to Postgres."""

from __future__ import annotations

from decimal import Decimal
from functools import partial

import pytest

from orchestrator.adapters.db.errors import UnknownIdError
from orchestrator.application.ports.stores import Reservation
from orchestrator.domain.cell import (
    Attempt,
    Cause,
    CellState,
    IllegalTransitionError,
    LeaseState,
    Transition,
)
from orchestrator.domain.machine import FakeReach, LocalReach, SshReach
from orchestrator.domain.outcome import Outcome
from tests.databases import NOW, advance, after, attempt, create, lease, together

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
    assert [i.data for i in stores.feed.after("run-1", 0)] == [{"state": "placing"}]


def test_admitting_the_same_attempt_again_changes_nothing(stores):
    cell_id, _ = create(stores)
    for _ in range(2):
        assert stores.cells.admit(cell_id, "a1", max_parallel=1, at=NOW)
    assert len(stores.cells.attempts(cell_id)) == 1
    assert len(stores.feed.after("run-1", 0)) == 1


def test_a_cell_at_work_gets_no_second_attempt(stores):
    cell_id, _ = create(stores)
    stores.cells.admit(cell_id, "a1", max_parallel=5, at=NOW)
    with pytest.raises(IllegalTransitionError):
        stores.cells.admit(cell_id, "a2", max_parallel=5, at=NOW)


@pytest.mark.parametrize("state", STATES[1:-1])
def test_a_cell_between_placing_and_releasing_takes_a_place(stores, state):
    first, second = create(stores)
    attempt(stores, first)
    way = STATES[2 : STATES.index(state) + 1]
    for step in way:
        stores.cells.reach(first, step, at=NOW)
    assert stores.cells.get(first).state is state
    assert stores.cells.admit(second, "b", max_parallel=1, at=NOW) is False
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
        cell = stores.cells.reach(cell_id, CellState.BOOTING, at=after(second), reason="a place")
    assert (cell.state, cell.entered_at) == (CellState.BOOTING, after(1))
    assert stores.cells.transitions(cell_id)[1:] == [
        Transition(after(1), 1, "placing", "booting", "a place")
    ]
    assert len(stores.feed.after("run-1", 0)) == 2


def test_a_state_that_is_past_stays_past(stores):
    cell_id, _ = create(stores)
    attempt(stores, cell_id)
    advance(stores, cell_id, CellState.COLLECTING)
    assert stores.cells.reach(cell_id, CellState.BOOTING, at=NOW).state is CellState.COLLECTING


def test_a_step_that_the_table_does_not_have_changes_nothing(stores):
    cell_id, _ = create(stores)
    attempt(stores, cell_id)
    with pytest.raises(IllegalTransitionError):
        stores.cells.reach(cell_id, CellState.RUNNING, at=NOW)
    assert stores.cells.get(cell_id).state is CellState.PLACING
    assert len(stores.cells.transitions(cell_id)) == 1


def test_many_who_reach_a_state_at_once_make_one_transition(stores):
    cell_id, _ = create(stores)
    attempt(stores, cell_id)
    together([partial(stores.cells.reach, cell_id, CellState.BOOTING, at=NOW)] * 6)
    assert len(stores.cells.transitions(cell_id)) == 2


def test_a_requeued_cell_waits_for_its_next_attempt(stores):
    cell_id, _ = create(stores)
    first = attempt(stores, cell_id)
    stores.cells.blame(first, LOST)
    stores.cells.reach(cell_id, CellState.RELEASING, at=NOW)
    for _ in range(2):
        stores.cells.requeue(first, LOST, at=after(5))
    cell = stores.cells.get(cell_id)
    assert (cell.state, cell.outcome, cell.entered_at) == (CellState.QUEUED, None, after(5))
    closed = stores.cells.attempt(first)
    assert (closed.cause, closed.outcome, closed.closed_at) == (LOST, Outcome.ERRORED, after(5))
    assert stores.cells.admit(cell_id, first, max_parallel=9, at=NOW) is False
    assert stores.cells.admit(cell_id, "next", max_parallel=9, at=NOW) is True
    assert [a.number for a in stores.cells.attempts(cell_id)] == [1, 2]
    steps = [(t.attempt, t.origin, t.target) for t in stores.cells.transitions(cell_id)]
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
    stores.cells.reach(cell_id, CellState.RELEASING, at=NOW)
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
    assert stores.feed.after("run-1", 0)[-1].data == {"state": "done", "outcome": "errored"}
    assert stores.cells.unfinished() == (other,)


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
    stores.cells.reach(cell_id, CellState.RELEASING, at=NOW)
    together([partial(stores.cells.conclude, cell_id, PASSED, at=NOW)] * 6)
    assert len(stores.cells.transitions(cell_id)) == 3


def test_the_first_cause_stands(stores):
    cell_id, _ = create(stores)
    first = attempt(stores, cell_id)
    stores.cells.blame(first, LOST)
    stores.cells.blame(first, Cause(Outcome.CANCELLED, "cancelled"))
    assert stores.cells.attempt(first).cause == LOST


# The ledger


@pytest.fixture
def opened(stores):
    """Two cells with an attempt each."""
    return [attempt(stores, cell_id) for cell_id in create(stores)]


def reserve(stores, one, *, run_id="run-1", exclusive=False, max_usd=None):
    limit = None if max_usd is None else Decimal(max_usd)
    return stores.leases.reserve(one, run_id=run_id, exclusive=exclusive, max_usd=limit)


def test_a_lease_comes_back_as_it_was_reserved(stores, opened):
    one = lease("l1", opened[0], usd="0.10")
    assert reserve(stores, one) is Reservation.RESERVED
    assert stores.leases.get("l1") == one
    assert str(stores.leases.get("l1").price_usd_per_hour) == "0.7000"


def test_a_lease_that_exists_is_reserved(stores, opened):
    one = lease("l1", opened[0])
    reserve(stores, one, exclusive=True, max_usd="1")
    assert reserve(stores, one, exclusive=True, max_usd="1") is Reservation.RESERVED
    assert len(stores.leases.open()) == 1


@pytest.mark.parametrize(
    "reach",
    [
        LocalReach("here"),
        SshReach("10.0.0.5", "ubuntu", "ssh-ed25519 AAAA", "id_ed25519", 2222),
        FakeReach("m-1"),
    ],
)
def test_the_ways_to_a_machine_come_back(stores, opened, reach):
    reserve(stores, lease("l1", opened[0]))
    stores.leases.reached("l1", reach)
    assert stores.leases.get("l1").reach == reach


def test_the_life_of_a_lease(stores, opened):
    reserve(stores, lease("l1", opened[0]))
    stores.leases.launching("l1", at=after(1))
    stores.leases.launching("l1", at=after(2))
    assert stores.leases.get("l1").launched_at == after(1)
    stores.leases.held("l1", "m-1", at=after(3))
    held = stores.leases.get("l1")
    assert (held.state, held.machine_id, held.launched_at) == (LeaseState.HELD, "m-1", after(1))
    stores.leases.launching("l1", at=after(4))
    assert stores.leases.get("l1").state is LeaseState.HELD
    stores.leases.releasing("l1")
    stores.leases.held("l1", "m-2", at=after(5))
    late = stores.leases.get("l1")
    assert (late.state, late.machine_id) == (LeaseState.RELEASING, "m-1")
    for usd in ("0.123", "9"):
        stores.leases.gone("l1", at=after(6), cost_usd=Decimal(usd), refusal="capacity: none")
    gone = stores.leases.get("l1")
    assert (gone.state, gone.gone_at, gone.cost_usd) == (
        LeaseState.GONE,
        after(6),
        Decimal("0.123"),
    )
    assert gone.refusal == "capacity: none"
    stores.leases.releasing("l1")
    assert stores.leases.get("l1").state is LeaseState.GONE
    assert stores.leases.open() == []


def test_an_exclusive_place_is_given_once_until_it_is_free(stores, opened):
    assert reserve(stores, lease("l1", opened[0]), exclusive=True) is Reservation.RESERVED
    assert reserve(stores, lease("l2", opened[1]), exclusive=True) is Reservation.BUSY
    other = lease("l3", opened[1], place="elsewhere")
    assert reserve(stores, other, exclusive=True) is Reservation.RESERVED
    with pytest.raises(UnknownIdError):
        stores.leases.get("l2")
    stores.leases.gone("l1", at=NOW, cost_usd=Decimal(0))
    assert reserve(stores, lease("l2", opened[1]), exclusive=True) is Reservation.RESERVED


def test_a_place_for_many_is_never_busy(stores, opened):
    for number in range(3):
        answer = reserve(stores, lease(f"l{number}", opened[0]))
        assert answer is Reservation.RESERVED


def test_an_exclusive_place_is_given_to_one_of_many_runs(stores):
    asks = []
    for number in range(8):
        (cell_id,) = create(stores, f"r{number}", platforms=1)
        one = lease(f"l{number}", attempt(stores, cell_id))
        asks.append(partial(reserve, stores, one, run_id=f"r{number}", exclusive=True))
    answers = together(asks)
    assert sorted(answers) == [Reservation.BUSY] * 7 + [Reservation.RESERVED]


def test_money_is_never_promised_twice(stores, opened):
    asks = [
        partial(reserve, stores, lease(f"l{n}", opened[0], usd="0.30"), max_usd="1.00")
        for n in range(10)
    ]
    assert together(asks).count(Reservation.RESERVED) == 3


def test_money_not_spent_is_free_again(stores, opened):
    assert reserve(stores, lease("l1", opened[0], usd="4"), max_usd="4") is Reservation.RESERVED
    assert reserve(stores, lease("l2", opened[1], usd="0.01"), max_usd="4") is (
        Reservation.OVER_BUDGET
    )
    stores.leases.gone("l1", at=NOW, cost_usd=Decimal("0.10"))
    assert reserve(stores, lease("l2", opened[1], usd="3.90"), max_usd="4") is Reservation.RESERVED
    assert reserve(stores, lease("l3", opened[1], usd="0.01"), max_usd="4") is (
        Reservation.OVER_BUDGET
    )


def test_another_runs_money_is_another_runs(stores, opened):
    (cell_id,) = create(stores, "run-2", platforms=1)
    mine = lease("l2", attempt(stores, cell_id))
    reserve(stores, lease("l1", opened[0]), max_usd="1")
    assert reserve(stores, mine, run_id="run-2", max_usd="1") is Reservation.RESERVED


def test_leases_are_found_by_attempt_and_by_run(stores, opened):
    for name, of in (("b", opened[0]), ("a", opened[0])):
        reserve(stores, lease(name, of))
    assert [x.id for x in stores.leases.of_attempt(opened[0])] == ["b", "a"]
    assert stores.leases.of_attempt(opened[1]) == []
    by_cell = stores.leases.of_run("run-1")
    assert {c: [x.id for x in found] for c, found in by_cell.items()} == {
        "run-1.p0": ["b", "a"],
        "run-1.p1": [],
    }
    assert by_cell["run-1.p0"][0] == lease("b", opened[0])
