"""Reports and bills of runs that the flow itself made, over a cloud in memory."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from orchestrator.application.describe_run import evidence_of
from orchestrator.assets import asset_dir
from orchestrator.domain.cost_response import run_cost_answer
from orchestrator.domain.matrix import Limits
from reports.registry import render
from runners.fake import LaunchFault
from tests.integration.fake_world import FakeWorld
from tests.unit.reports.stories import release, story


@pytest.fixture
def here(tmp_path):
    world = FakeWorld(tmp_path)
    yield world
    world.close()


@pytest.mark.parametrize("kind", ["platform", "summary"])
def test_the_ledger_of_a_run_with_refusals_is_published(here, kind):
    here.locations = ("north", "south")
    here.cloud.prices["south"] = Decimal("60.006")
    here.limits = Limits(max_usd=Decimal(1000))
    here.cloud.fail("north", LaunchFault.CAPACITY)
    for cell_id in here.launch():
        here.engine.run(cell_id)
    evidence = evidence_of(here.database.stores, "run", at=here.clock.now())
    text = render(kind, evidence, format="md", templates=asset_dir("templates") / "reports")
    assert "SIMULATED: no gate accepts this" in text.splitlines()[0]
    assert "| refused | capacity: " in text
    assert "$60.006" in text
    bill = run_cost_answer(evidence.record, None)
    total = bill.bill.total_usd
    assert total > 0
    assert sum(bill.phases.values()) == total
    assert sum(bill.jobs.values()) + bill.overhead_usd == total
    assert f"**${total:.2f}**" in text


def test_what_is_not_offered_is_published_with_the_answer(here):
    for place in here.locations:
        here.cloud.fail(place, LaunchFault.NOT_OFFERED)
    for cell_id in here.launch():
        here.engine.run(cell_id)
    evidence = evidence_of(here.database.stores, "run", at=here.clock.now())
    text = render("summary", evidence, templates=asset_dir("templates") / "reports")
    assert "NOT AVAILABLE (not offered)" in text
    assert "scripted to answer north with: not offered" in text
    assert run_cost_answer(evidence.record, None).bill.total_usd == 0


def test_a_bill_has_no_cost_where_the_cost_report_has_a_dash():
    """Own machines have no price: their bill is absent, and no part of the run's."""
    evidence = release()
    bills = {one.cell: one.bill for one in run_cost_answer(evidence.record, None).platforms}
    assert bills["local-cpu"] is None
    assert bills["aws-a10g"].total_usd == Decimal("0.1823")
    own = replace(evidence.record, cells=evidence.record.cells[:1])
    free = run_cost_answer(own, None)
    assert (free.bill, free.usd_per_validated_test, free.jobs) == (None, None, {})
    unknown = [replace(x, provider="aws", price_usd_per_hour=None) for x in own.cells[0].leases]
    cell = replace(own.cells[0], leases=tuple(unknown))
    assert run_cost_answer(replace(own, cells=(cell,)), None).bill is None
    charged = [replace(x, cost_usd=Decimal(1)) for x in unknown]
    cell = replace(own.cells[0], leases=tuple(charged))
    assert run_cost_answer(replace(own, cells=(cell,)), None).bill is not None


def test_validated_tests_are_counted_where_nothing_has_a_price():
    text = render("cost", story("local"), templates=asset_dir("templates") / "reports")
    (total,) = (line for line in text.splitlines() if line.startswith("| **Total**"))
    assert [part.strip() for part in total.split("|")][-3:-1] == ["**46**", "—"]
