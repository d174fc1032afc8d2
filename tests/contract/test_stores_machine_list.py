"""Machines with whose they are: the same questions to SQLite and to Postgres."""

from __future__ import annotations

from orchestrator.domain.cell import CellState, LeaseState
from orchestrator.domain.inventory import Orphan
from tests.contract.lease_stories import live, one_machine, rent, settle
from tests.databases import NOW, after, create


def test_nothing_is_rented(stores):
    assert stores.machines.now() == []
    assert stores.machines.gone(limit=5) == []
    assert stores.machines.sightings() == []


def test_an_open_lease_is_told_with_its_run_and_its_cell(stores):
    first, second = create(stores)
    rent(stores, first, "l-1")
    live(stores, first, "l-1")
    rent(stores, second, "l-2")
    one, other = stores.machines.now()
    assert (one.run, one.cell, one.attempt, one.version) == ("run-1", "p0", 1, "1.10")
    assert one.lease == stores.leases.get("l-1")
    assert (one.lease.state, one.state) == (LeaseState.RELEASING, CellState.RELEASING)
    assert (one.max_minutes, one.hold_minutes) == (60, 0)
    assert (other.lease.id, other.cell) == ("l-2", "p1")


def test_what_went_last_comes_first(stores):
    for number in (1, 2, 3):
        one_machine(stores, f"run-{number}", at=after(number * 100))
    (cell,) = create(stores, "run-4", platforms=1)
    rent(stores, cell, "refused")
    settle(stores, "refused", "0", at=after(9999), refusal="quota: none")
    assert [one.run for one in stores.machines.gone(limit=2)] == ["run-3", "run-2"]
    assert stores.machines.now() == []


def test_sightings_come_oldest_first(stores):
    stores.orphans.see("aws", ["i-2"], at=after(5))
    stores.orphans.see("gcp", ["vm-1"], at=NOW)
    stores.orphans.see("aws", ["i-2", "i-1"], at=after(9))
    assert stores.machines.sightings() == [
        Orphan("gcp", "vm-1", NOW),
        Orphan("aws", "i-2", after(5)),
        Orphan("aws", "i-1", after(9)),
    ]
