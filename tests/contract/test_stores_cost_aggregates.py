"""What machines came to, summed up: the same questions to SQLite and to Postgres."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal

import pytest

from orchestrator.application.cost_summary import Dimension, _by
from orchestrator.domain.cell import Cause, CellState, RunState
from orchestrator.domain.charges import OWN_MACHINE, PRICE_UNKNOWN
from orchestrator.domain.money import cost_by_phase
from orchestrator.domain.outcome import Outcome
from orchestrator.store.costs import Refusals
from tests.contract.lease_stories import live, one_machine, rent, settle
from tests.databases import NOW, after, create

SPAN = (NOW - timedelta(days=1), NOW + timedelta(days=9))


def test_an_empty_ledger_came_to_nothing(stores):
    assert stores.costs.accounts(*SPAN) == []
    assert stores.costs.runs(*SPAN, limit=5) == []
    assert stores.costs.phases(*SPAN) == []
    assert stores.costs.refusals(*SPAN, limit=5) == []
    assert stores.costs.of_runs(["run-1"]) == {}
    assert stores.costs.simulated_usd(*SPAN) == 0


@pytest.fixture
def three(stores):
    """Two machines of one provider on two days, and one of another."""
    one_machine(stores, "run-1", usd="1.0001")
    one_machine(stores, "run-2", usd="0.0002", at=NOW + timedelta(days=2))
    one_machine(stores, "run-3", usd="3", at=NOW + timedelta(days=2), provider="gcp")


@pytest.mark.usefixtures("three")
def test_money_is_summed_exactly(stores):
    for by, found in (
        (Dimension.DAY, [("2026-03-01", 1, "1.0001"), ("2026-03-03", 2, "3.0002")]),
        (Dimension.PROVIDER, [("gcp", 1, "3"), ("aws", 2, "1.0003")]),
        (Dimension.PLATFORM, [("p0", 3, "4.0003")]),
        (Dimension.VERSION, [("lib 1.10", 3, "4.0003")]),
    ):
        sums = _by(by, stores.costs.accounts(*SPAN))
        assert [(key, one.machines, str(one.usd)) for key, one in sums] == found
        for _, one in sums:
            assert one.seconds == pytest.approx(1000 * one.machines, abs=0.01)
            assert one.reserved_usd == Decimal("2.5") * one.machines


def test_own_machines_and_unknown_prices_are_told_from_a_cost_of_nothing(stores):
    one_machine(stores, "run-1", usd="0", provider="local", price=Decimal(0))
    one_machine(stores, "run-2", usd="0", price=None)
    one_machine(stores, "run-3", usd="0", provider="gcp", price=Decimal(0))
    costs = {one.provider: one.sum.cost for one in stores.costs.accounts(*SPAN)}
    assert {name: (one.usd, one.no_cost) for name, one in costs.items()} == {
        "local": (None, OWN_MACHINE),
        "aws": (None, PRICE_UNKNOWN),
        "gcp": (Decimal(0), ""),
    }
    assert stores.costs.of_runs(["run-1", "run-2", "run-3"]) == {"run-3": Decimal(0)}
    spent = stores.leases.spending(["run-1", "run-2", "run-3"])
    assert [spent[run].settled.no_cost for run in sorted(spent)] == [OWN_MACHINE, PRICE_UNKNOWN, ""]


@pytest.mark.usefixtures("three")
def test_a_span_begins_and_ends(stores):
    (one,) = stores.costs.accounts(NOW, NOW + timedelta(days=2))
    assert (one.day, one.platform, one.provider, one.version) == (
        "2026-03-01",
        "p0",
        "aws",
        "lib 1.10",
    )


@pytest.mark.usefixtures("three")
def test_runs_come_dearest_first_and_page_by_page(stores):
    found = stores.costs.runs(*SPAN, limit=2)
    assert [(one.run, str(one.sum.usd)) for one in found] == [("run-3", "3"), ("run-1", "1.0001")]
    first = found[0]
    assert (first.matrix, first.subject, first.version) == ("nightly", "lib", "1.10")
    assert (first.state, first.outcome) == (RunState.RUNNING, None)
    assert first.sum.seconds == pytest.approx(1000, abs=0.01)
    assert [one.run for one in stores.costs.runs(*SPAN, limit=2, skip=2)] == ["run-2"]
    assert stores.costs.of_runs(["run-1", "run-3", "nope"]) == {
        "run-1": Decimal("1.0001"),
        "run-3": Decimal(3),
    }


def test_what_is_not_settled_refused_or_not_real_does_not_count(stores):
    open_cell, refused, free, simulated = create(stores, platforms=4)
    rent(stores, open_cell, "open")
    live(stores, open_cell, "open")
    rent(stores, refused, "refused")
    stores.leases.active("refused", "m-refused", at=NOW)
    settle(stores, "refused", "0", at=after(60), refusal="capacity: none is left")
    rent(stores, free, "free", provider="static")
    live(stores, free, "free")
    settle(stores, "free", "0", at=after(1050))
    rent(stores, simulated, "simulated")
    live(stores, simulated, "simulated")
    stores.leases.note("simulated", {}, simulated=True)
    settle(stores, "simulated", "7", at=after(1050))
    (one,) = stores.costs.accounts(*SPAN)
    assert (one.provider, one.sum.machines, one.sum.usd) == ("static", 1, 0)
    assert stores.costs.runs(*SPAN, limit=9) == []
    assert stores.costs.simulated_usd(*SPAN) == 7


def phases(stores):
    found = stores.costs.phases(*SPAN)
    assert {one.platform for one in found} == {"p0"}
    return {one.phase: (round(one.seconds), one.usd) for one in found if one.seconds}


def test_a_machines_time_is_parted_by_what_it_did(stores):
    lease_id = one_machine(stores, usd="1.00")
    found = phases(stores)
    assert {phase.value: seconds for phase, (seconds, _) in found.items()} == {
        "placing": 50,
        "booting": 200,
        "preparing": 100,
        "running": 500,
        "collecting": 50,
        "releasing": 100,
    }
    lease = stores.leases.get(lease_id)
    told = cost_by_phase(stores.cells.transitions("run-1.p0"), lease, after(2000))
    for phase, usd in told.items():
        assert found.get(phase, (0, 0))[1] == pytest.approx(usd, abs=Decimal("0.0001"))


def test_waiting_for_an_order_is_not_paid(stores):
    (cell,) = create(stores, platforms=1)
    rent(stores, cell, "l-1")
    stores.leases.note("l-1", {"ordered_at": after(200).isoformat()}, simulated=False)
    live(stores, cell, "l-1")
    settle(stores, "l-1", "1", at=after(1200))
    (one,) = stores.costs.accounts(*SPAN)
    assert one.sum.seconds == pytest.approx(1000, abs=0.01)
    found = phases(stores)
    assert found[CellState.BOOTING][0] == 100
    assert CellState.PLACING not in found
    assert found[CellState.RELEASING][0] == 250


def test_a_machine_that_ended_by_itself_is_paid_until_then(stores):
    (cell,) = create(stores, platforms=1)
    rent(stores, cell, "l-1")
    live(stores, cell, "l-1")
    stores.leases.note("l-1", {"ended_at": after(450).isoformat()}, simulated=False)
    settle(stores, "l-1", "1", at=after(1200))
    (one,) = stores.costs.accounts(*SPAN)
    assert one.sum.seconds == pytest.approx(400, abs=0.01)
    found = phases(stores)
    assert found[CellState.RUNNING][0] == 50
    assert CellState.RELEASING not in found


def test_a_machine_that_turned_up_again_had_not_ended(stores):
    (cell,) = create(stores, platforms=1)
    rent(stores, cell, "l-1")
    live(stores, cell, "l-1")
    stores.leases.note("l-1", {"ended_at": after(450).isoformat()}, simulated=False)
    settle(stores, "l-1", "1", at=after(1200))
    stores.leases.reopen("l-1", "m-l-1")
    assert stores.leases.get("l-1").billed_until is None


def test_a_machine_that_outlives_its_attempt_is_being_given_back(stores):
    (cell,) = create(stores, platforms=1)
    attempt_id = rent(stores, cell, "l-1")
    live(stores, cell, "l-1")
    stores.cells.requeue(attempt_id, Cause(Outcome.ERRORED, "lost"), at=after(1000))
    rent(stores, cell, "l-2", at=after(1010), number=2)
    settle(stores, "l-1", "1", at=after(2050))
    found = phases(stores)
    assert sum(seconds for seconds, _ in found.values()) == 2000
    assert found[CellState.RELEASING][0] == 1100


def test_refusals_are_counted_by_place_and_reason(stores):
    cells = create(stores, platforms=4)
    said = ("capacity: none", "capacity: none at all", "quota: 0 of 8", "broken")
    for number, (cell, words) in enumerate(zip(cells, said, strict=True)):
        rent(stores, cell, f"l-{number}")
        settle(stores, f"l-{number}", "0", at=after(60 + number), refusal=words)
    found = stores.costs.refusals(*SPAN, limit=2)
    place = ("aws", "us-east-1/us-east-1a")
    assert found[0] == Refusals(*place, "capacity", 2, after(61), "capacity: none at all")
    assert [one.reason for one in stores.costs.refusals(*SPAN, limit=9)] == [
        "capacity",
        "quota",
        "broken",
    ]
    assert len(found) == 2
    assert stores.costs.refusals(after(900), after(901), limit=9) == []
