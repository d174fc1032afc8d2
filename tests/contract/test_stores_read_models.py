"""A run as it is told from what is stored, on SQLite and on Postgres."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest
from sqlalchemy import event

from orchestrator.application.describe_run import describe_cell, describe_run
from orchestrator.application.job_outcomes import judge_jobs
from orchestrator.domain.attestation import Attestation, Device
from orchestrator.domain.cell import Cause, CellState, PlacementDecision, PlacementResult
from orchestrator.domain.machine import Place, SshEndpoint
from orchestrator.domain.money import Bill
from orchestrator.domain.outcome import Counts, Outcome
from tests.databases import NOW, ON_SQLITE, Agent, after, attempt, create, lease

OFFER = Place(
    "us-east-1a/g5.xlarge/spot",
    price_usd_per_hour=Decimal("3.6"),
    disk_usd_per_hour=Decimal("0.36"),
    address_usd_per_hour=Decimal("0.036"),
    minimum_s=60,
    priced="table 2026-11-21",
    region="us-east-1",
    zone="us-east-1a",
    market="spot",
    instance_type="g5.xlarge",
)
FACTS = {"instance_type": "g5.2xlarge", "image_id": "ami-1", "image_name": "DLAMI"}
SEEN = Attestation(FACTS, (Device("nvidia", "NVIDIA A10G"),), "2.9.1", simulated=False)


def a_lease(lease_id, of, **changes):
    usd = changes.pop("usd", "3.6")
    made = lease(lease_id, of, place=changes.pop("place", OFFER.name))
    return replace(made, provider="aws", price_usd_per_hour=Decimal(usd), offer=OFFER, **changes)


def reserve(stores, one):
    stores.leases.reserve(one, run_id="run-1", exclusive=False)
    stores.leases.launching(one.id, at=after(0))


@pytest.fixture
def told(stores):
    """A cell whose first machine was refused, and whose second one ran for 100 s."""
    cell_id, _ = create(stores)
    of = attempt(stores, cell_id)
    stores.leases.decide(
        of, PlacementDecision(after(0), "elsewhere", PlacementResult.REFUSED, "capacity", "none")
    )
    reserve(stores, a_lease("l1", of, place="elsewhere"))
    stores.leases.gone("l1", at=after(5), cost_usd=Decimal(0), refusal="capacity: none")
    stores.leases.decide(
        of, PlacementDecision(after(5), OFFER.name, PlacementResult.CHOSEN, "", "first")
    )
    reserve(stores, a_lease("l2", of))
    stores.leases.note("l2", FACTS, simulated=False)
    stores.leases.active("l2", "us-east-1/i-1", at=after(6))
    stores.leases.reached("l2", SshEndpoint("203.0.113.7", "ubuntu", "k", lease="l2"))
    stores.leases.attest("l2", SEEN)
    way = ((10, "booting"), (30, "preparing"), (40, "running"), (80, "collecting"))
    for seconds, state in (*way, (90, "releasing")):
        stores.cells.enter(cell_id, CellState(state), at=after(seconds))
    stores.leases.gone("l2", at=after(100), cost_usd=Decimal("0.1110"))
    return describe_run(stores, "run-1", at=after(500)).cells[0]


def test_a_lease_is_told_with_its_place_its_image_and_the_parts_of_its_bill(told):
    refused, ran = told.leases
    assert (refused.seconds, refused.billed_s, refused.cost_usd) == (0, 0, 0)
    assert refused.refusal == "capacity: none"
    assert (ran.seconds, ran.billed_s, ran.cost_usd) == (100, 100, Decimal("0.1110"))
    assert ran.bill == Bill(Decimal("0.1000"), Decimal("0.0100"), Decimal("0.0010"))
    assert (ran.instance_type, ran.market, ran.region, ran.zone) == (
        "g5.2xlarge",
        "spot",
        "us-east-1",
        "us-east-1a",
    )
    assert (ran.image_id, ran.image_name, ran.priced) == ("ami-1", "DLAMI", OFFER.priced)
    assert ran.address == "ubuntu@203.0.113.7:22"
    assert told.cost_usd == Decimal("0.1110")
    assert {state: str(usd) for state, usd in ran.phase_usd.items()} == {
        "placing": "0.0111",
        "booting": "0.0222",
        "preparing": "0.0111",
        "running": "0.0444",
        "collecting": "0.0111",
        "diagnosing": "0.0000",
        "releasing": "0.0111",
    }
    assert [(x.place, x.result, x.attempt) for x in told.decisions] == [
        ("elsewhere", PlacementResult.REFUSED, 1),
        (OFFER.name, PlacementResult.CHOSEN, 1),
    ]
    assert told.attestation == SEEN


def test_the_last_machine_that_told_is_the_one_that_counts(stores, told):
    stores.cells.requeue("run-1.p0-1", Cause(Outcome.ERRORED, "lost"), at=after(101))
    of = attempt(stores, "run-1.p0", 2)
    reserve(stores, a_lease("l3", of))
    again = describe_run(stores, "run-1", at=after(500)).cells[0]
    assert again.attestation == SEEN
    assert [x.attempt for x in again.leases] == [1, 1, 2]
    stores.leases.attest("l3", replace(SEEN, torch="2.10"))
    again = describe_run(stores, "run-1", at=after(500)).cells[0]
    assert again.attestation == replace(SEEN, torch="2.10")


@ON_SQLITE
def test_a_cell_is_simulated_when_any_of_its_machines_was(stores):
    cell_id, other = create(stores)
    spec = stores.runs.spec("run-1")
    plan = stores.cells.plan(cell_id)
    assert plan.platform.provider == "fake"
    assert describe_cell(stores, stores.cells.get(cell_id), spec, at=NOW).simulated
    run_of_aws(stores)
    one, two = attempt(stores, "run-2.p0"), attempt(stores, "run-2.p1")
    for lease_id, of in (("s1", one), ("s2", one), ("r1", two)):
        stores.leases.reserve(a_lease(lease_id, of), run_id="run-2", exclusive=False)
    stores.leases.note("s1", {"zone": "z"}, simulated=True)
    cells = describe_run(stores, "run-2", at=NOW).cells
    assert [cell.simulated for cell in cells] == [True, False]
    assert [x.simulated for x in cells[0].leases] == [True, False]
    assert [cell.attestation for cell in cells] == [None, None]
    assert other == "run-1.p1"


def run_of_aws(stores):
    """The same run on rented machines."""
    spec = stores.runs.spec("run-1")
    plans = [stores.cells.plan(f"run-1.p{n}") for n in range(2)]
    rented = [replace(p, platform=replace(p.platform, provider="aws")) for p in plans]
    run = replace(stores.runs.get("run-1"), id="run-2")
    stores.runs.create(run, spec, [(f"run-2.{p.id}", p) for p in rented], key=None)


@ON_SQLITE
def test_one_cell_is_told_as_in_its_run(stores, told):
    spec, cell = stores.runs.spec("run-1"), stores.cells.get("run-1.p0")
    assert describe_cell(stores, cell, spec, at=after(500)) == told
    assert judge_jobs(stores, cell, spec) == told.jobs


@ON_SQLITE
def test_costs_are_told_by_job_and_by_validated_test(stores):
    cell_id, _ = create(stores)
    agent = Agent(stores, attempt(stores, cell_id))
    agent.send(
        agent.line("phase", "unit", name="started", pid=1),
        agent.manifest("a", "b", "c"),
        agent.test("a"),
        agent.test("b", "failed"),
        agent.test("c", "skipped"),
        agent.line("phase", "unit", name="finished", exit_code=1, duration_s=20.0),
    )
    reserve(stores, a_lease("l1", agent.attempt_id))
    stores.leases.active("l1", "m", at=NOW)
    stores.leases.gone("l1", at=after(100), cost_usd=Decimal("0.1110"))
    record = describe_run(stores, "run-1", at=after(500))
    assert record.counts == Counts(passed=1, failed=1, skipped=1)
    costs = record.cells[0].job_costs
    assert dict(costs.by_job) == {"unit": Decimal("0.0222")}
    assert costs.overhead_usd == Decimal("0.0888")
    assert record.usd_per_validated_test == Decimal("0.055500")
    assert [cell.usd_per_validated_test for cell in record.cells] == [Decimal("0.055500"), None]


def statements(database, do):
    """How many statements it takes."""
    seen = []
    engine = database.sessions.engine

    def note(_connection, _cursor, statement, *_rest):
        seen.append(statement)

    event.listen(engine, "before_cursor_execute", note)
    do()
    event.remove(engine, "before_cursor_execute", note)
    return len(seen)


def test_attempts_leases_and_decisions_cost_no_further_statements(database, stores, told):
    def tell():
        describe_run(stores, "run-1", at=after(500))

    before = statements(database, tell)
    stores.cells.requeue("run-1.p0-1", Cause(Outcome.ERRORED, "lost"), at=after(101))
    of = attempt(stores, "run-1.p0", 2)
    for number in range(5):
        reserve(stores, a_lease(f"more-{number}", of))
        line = PlacementDecision(after(200), f"p{number}", PlacementResult.SKIPPED, "quota", "")
        stores.leases.decide(of, line)
    assert statements(database, tell) == before


@ON_SQLITE
def test_a_run_is_told_while_a_machine_is_found_for_it(stores, monkeypatch):
    cell_id, _ = create(stores)
    lives = stores.cells.lives

    def found_meanwhile(cell_ids, **asked):
        known = lives(cell_ids, **asked)
        reserve(stores, a_lease("l1", attempt(stores, cell_id)))
        return known

    monkeypatch.setattr(stores.cells, "lives", found_meanwhile)
    assert describe_run(stores, "run-1", at=after(500)).cells[0].leases == ()
    monkeypatch.undo()
    [lease] = describe_run(stores, "run-1", at=after(500)).cells[0].leases
    assert lease.attempt == 1
