"""Reports and bills of runs that the flow itself made, over a cloud in memory."""

from __future__ import annotations

from decimal import Decimal

import pytest

from orchestrator.application.describe_run import evidence_of
from orchestrator.assets import asset_dir
from orchestrator.domain.cost_response import run_cost_answer
from orchestrator.domain.matrix import Limits
from reports.registry import render
from runners.fake import LaunchFault
from tests.integration.fake_world import FakeWorld


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
