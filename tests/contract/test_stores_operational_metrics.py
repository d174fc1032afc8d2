"""Figures: what a database tells of itself in one look."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

from orchestrator.domain.cell import Cause, CellState
from orchestrator.domain.outcome import Outcome
from orchestrator.store.attempt_evidence import EvidencePosition
from orchestrator.store.operational_metrics import LabelledCount
from orchestrator.store.stores import Stores
from tests.contract.test_stores_outbox import channel, ids, receipt, told
from tests.databases import NOW, Agent, advance, after, attempt, create, lease, read


def test_an_empty_database_has_figures(stores: Stores) -> None:
    found = stores.operational_metrics.snapshot(NOW)
    assert all(found.of(figure) == {} for figure in LabelledCount)
    assert (found.oldest_waiting_at, found.late_firings) == (None, 0)


def test_runs_cells_leases_and_money(stores: Stores) -> None:
    cells = create(stores, platforms=3)
    for number, cell in enumerate(cells[:2]):
        held = lease(f"lease-{number}", attempt(stores, cell), usd="1.50")
        stores.leases.reserve(replace(held, place=f"p{number}"), run_id="run-1", exclusive=True)
        stores.leases.active(f"lease-{number}", f"m-{number}", at=NOW)
    advance(stores, cells[0], CellState.RELEASING)
    stores.leases.gone("lease-0", at=NOW, cost_usd=Decimal("0.123456"))
    stores.cells.conclude(cells[0], Cause(Outcome.PASSED, ""), at=NOW)
    stores.orphans.see("aws", ["i-1", "i-2"], at=NOW)
    found = stores.operational_metrics.snapshot(NOW)
    assert found.of(LabelledCount.RUNS) == {("running", ""): 1}
    assert found.of(LabelledCount.CELLS) == {
        ("done", "passed"): 1,
        ("placing", ""): 1,
        ("queued", ""): 1,
    }
    assert found.of(LabelledCount.LEASES) == {("fake", "gone"): 1, ("fake", "active"): 1}
    assert found.of(LabelledCount.SPENT_USD) == {("fake", ""): 0.123456}
    assert found.of(LabelledCount.RESERVED_USD) == {("fake", ""): 1.5}
    assert found.of(LabelledCount.ORPHANS) == {("aws", ""): 2}


def test_money_of_machines_that_are_not_real_is_no_money(stores: Stores) -> None:
    [cell] = create(stores, platforms=1)
    one = lease("lease-1", attempt(stores, cell))
    stores.leases.reserve(one, run_id="run-1", exclusive=False)
    stores.leases.note("lease-1", {}, simulated=True)
    found = stores.operational_metrics.snapshot(NOW)
    assert found.of(LabelledCount.LEASES) == {("fake", "reserved"): 1}
    assert found.of(LabelledCount.RESERVED_USD) == {}


def test_what_live_machines_cost_in_an_hour(stores: Stores) -> None:
    cells = create(stores, platforms=4)
    for number, cell in enumerate(cells):
        one = lease(f"lease-{number}", attempt(stores, cell))
        one = replace(one, place=f"p{number}", price_usd_per_hour=Decimal("1.25"))
        stores.leases.reserve(one, run_id="run-1", exclusive=False)
    for number in (0, 1, 2):
        stores.leases.active(f"lease-{number}", f"m-{number}", at=NOW)
    stores.leases.note("lease-1", {}, simulated=True)
    stores.leases.gone("lease-2", at=NOW, cost_usd=Decimal(0))
    found = stores.operational_metrics.snapshot(NOW)
    assert found.of(LabelledCount.COST_PER_HOUR_USD) == {("fake", ""): 1.25}


def test_how_long_machines_take_until_they_answer(stores: Stores) -> None:
    for number, cell in enumerate(create(stores, platforms=3)):
        name = f"lease-{number}"
        one = replace(lease(name, attempt(stores, cell)), place=f"p{number}")
        stores.leases.reserve(one, run_id="run-1", exclusive=False)
        stores.leases.launching(name, at=after(number))
        stores.cells.enter(cell, CellState.BOOTING, at=after(number))
        stores.cells.enter(cell, CellState.PREPARING, at=after(10 + number * number))
    assert stores.operational_metrics.snapshot(after(60)).launch_s == {"fake": 10.0}
    assert stores.operational_metrics.snapshot(after(2 * 86_400)).launch_s == {}


def test_how_long_running_attempts_have_been_quiet(stores: Stores) -> None:
    assert stores.operational_metrics.snapshot(NOW).quiet_since is None
    for cell, at in zip(create(stores, platforms=2), (7, 3), strict=True):
        attempt_id = attempt(stores, cell)
        advance(stores, cell, CellState.RUNNING)
        chunk = Agent(stores, attempt_id).line("phase", name="preparing")
        facts = read(chunk)
        stores.evidence.append(
            attempt_id, EvidencePosition(), at=after(at), events=chunk, facts=facts
        )
    assert stores.operational_metrics.snapshot(after(20)).quiet_since == after(3)


def test_what_waits_to_be_told(stores: Stores) -> None:
    new_id = ids()
    for number in (1, 2):
        stores.outbox.add(channel(number))
    stores.outbox.put(told("fail", "a"), new_id=new_id, at=after(5))
    stores.outbox.put(told("fail", "b", lineage="else"), new_id=new_id, at=after(9))
    taken = stores.outbox.claim(at=after(10))
    assert taken is not None
    stores.outbox.settle(taken[1].id, receipt("gone"), at=after(10))
    found = stores.operational_metrics.snapshot(after(20))
    assert found.of(LabelledCount.DELIVERIES) == {("waiting", ""): 2, ("discarded", ""): 2}
    assert found.of(LabelledCount.CHANNELS) == {("ok", ""): 1, ("disabled", ""): 1}
    assert found.oldest_waiting_at == after(5)
