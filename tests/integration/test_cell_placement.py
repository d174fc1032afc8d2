"""Where a machine is looked for, why it ends up where it does, and what becomes of refusals."""

from __future__ import annotations

import logging
from decimal import Decimal

import pytest

from orchestrator.application.cell.environment import ExpectedShipments
from orchestrator.domain.budget import Budget, Period
from orchestrator.domain.cell import CellState, PlacementResult
from orchestrator.domain.machine import Extent
from orchestrator.domain.matrix import Limits
from orchestrator.domain.outcome import Outcome
from runners.fake import LaunchFault
from tests.databases import lease
from tests.integration.fake_world import FakeWorld


@pytest.fixture
def here(tmp_path):
    world = FakeWorld(tmp_path)
    yield world
    world.close()


def finish(world: FakeWorld, run_id: str = "run") -> None:
    for cell_id in world.launch(run_id):
        world.engine.run(cell_id)
    assert world.cloud.live() == ()


def lines(world: FakeWorld, run_id: str = "run") -> list[tuple[str, str, str]]:
    decisions = world.database.stores.leases.decisions(run_id)
    return [(d.place, d.result.value, d.reason) for found in decisions.values() for d in found]


def asked(world: FakeWorld) -> list[str]:
    return [request.place.name for request in world.cloud.requests]


def test_a_quota_of_a_region_spares_its_other_zones_the_call(here):
    here.locations = ("north-a", "north-b", "north-c", "south-a")
    here.cloud.fail("north-a", LaunchFault.QUOTA)
    here.cloud.extents[LaunchFault.QUOTA] = Extent.REGION
    finish(here)
    assert here.record().cells[0].outcome is Outcome.PASSED
    assert asked(here) == ["north-a", "south-a"]
    assert lines(here) == [
        ("north-a", "refused", "quota"),
        ("north-b", "skipped", "quota"),
        ("north-c", "skipped", "quota"),
        ("south-a", "chosen", ""),
    ]


def test_capacity_of_a_zone_leads_to_the_next_zone(here):
    here.locations = ("north-a", "north-b")
    here.cloud.fail("north-a", LaunchFault.CAPACITY)
    finish(here)
    assert asked(here) == ["north-a", "north-b"]


def test_an_order_that_is_refused_late_leads_to_the_next_place_within_the_attempt(here):
    here.cloud.is_ordered_first = True
    here.cloud.fail("north", LaunchFault.LATE_CAPACITY)
    finish(here)
    cell = here.record().cells[0]
    assert (cell.outcome, len(cell.attempts)) == (Outcome.PASSED, 1)
    assert [(x.place, x.refusal.partition(":")[0]) for x in cell.leases] == [
        ("north", "capacity"),
        ("south", ""),
    ]
    assert cell.leases[0].cost_usd == 0


def test_credentials_that_one_region_refuses_do_not_end_the_search(here):
    here.locations = ("north-a", "north-b", "south-a")
    here.cloud.fail("north-a", LaunchFault.CREDENTIALS)
    here.cloud.extents[LaunchFault.CREDENTIALS] = Extent.REGION
    finish(here)
    assert asked(here) == ["north-a", "south-a"]
    assert here.record().cells[0].outcome is Outcome.PASSED


def test_credentials_that_are_refused_altogether_end_it(here):
    here.cloud.fail("north", LaunchFault.CREDENTIALS)
    finish(here)
    cell = here.record().cells[0]
    assert (cell.outcome, cell.reason) == (Outcome.ERRORED, "auth")
    assert asked(here) == ["north"]


def test_what_another_run_was_refused_lately_is_asked_last_and_only_for_a_while(here):
    here.cloud.fail("north", LaunchFault.CAPACITY, times=1)
    finish(here)
    here.cloud.requests.clear()
    finish(here, "second")
    assert asked(here) == ["south"]
    assert ("north", "last", "capacity") in lines(here, "second")
    here.clock.step(here.world.timings.exhausted_s + 1)
    here.cloud.requests.clear()
    finish(here, "third")
    assert asked(here) == ["north"]


def test_throttling_is_answered_with_the_same_token_and_ever_longer_waits(here):
    here.cloud.fail("north", LaunchFault.UNAVAILABLE, times=6)
    finish(here)
    assert here.record().cells[0].outcome is Outcome.PASSED
    tokens = {request.token for request in here.cloud.requests}
    assert (len(tokens), len(here.cloud.requests)) == (1, 7)
    assert lines(here)[0] == ("north", "again", "unavailable")
    began = here.record().cells[0].transitions[0].at
    granted = next(t.at for t in here.record().cells[0].transitions if t.to_state == "booting")
    assert (granted - began).total_seconds() > 20


def test_a_refusal_after_a_lost_answer_keeps_the_machine_that_was_made(here):
    here.cloud.fail("north", LaunchFault.LOST_ANSWER, times=1)
    finish(here)
    cell = here.record().cells[0]
    assert (cell.outcome, here.cloud.made, len(cell.leases)) == (Outcome.PASSED, 1, 1)


def test_a_machine_that_its_cloud_does_not_show_yet_is_waited_for(here):
    here.cloud.is_ordered_first = True
    here.cloud.hidden_looks = 5
    finish(here)
    cell = here.record().cells[0]
    assert (cell.outcome, here.cloud.made, len(cell.attempts)) == (Outcome.PASSED, 1, 1)


def test_an_order_that_is_never_granted_is_withdrawn_in_time(here):
    here.cloud.is_ordered_first = True
    here.cloud.hidden_looks = 10**6
    here.cloud.fail("south", LaunchFault.CAPACITY)
    here.limits = Limits(max_usd=Decimal(10), infra_retries=0)
    finish_with_leftovers(here)
    cell = here.record().cells[0]
    assert (cell.outcome, cell.state) == (Outcome.ERRORED, CellState.DONE)
    assert cell.transitions[-1].to_state == "done"


def finish_with_leftovers(world: FakeWorld) -> None:
    for cell_id in world.launch():
        world.engine.run(cell_id)


def test_the_worst_case_that_is_reserved_covers_the_machines_own_timer(here):
    finish(here)
    (request,) = here.cloud.requests
    (lease,) = here.database.stores.leases.of_run("run")["run-0"]
    assert request.expires_at is not None
    assert lease.launched_at is not None
    hours = (request.expires_at - lease.launched_at).total_seconds() / 3600
    assert lease.reserved_usd >= Decimal(str(hours)) * Decimal("0.5") - Decimal("0.001")
    assert request.tags["seatrial-expires-at"] == str(int(request.expires_at.timestamp()))


@pytest.mark.parametrize(
    ("settles_at", "outcome"), [("0.0078", Outcome.PASSED), ("0.31", Outcome.ERRORED)]
)
def test_money_that_another_cell_has_reserved_is_waited_for(here, monkeypatch, settles_at, outcome):
    """The other machine settles below its worst case, or it does not."""
    expect, expected = ExpectedShipments.of, []

    def counted(self, plan, **more):
        expected.append(plan.id)
        return expect(self, plan, **more)

    monkeypatch.setattr(ExpectedShipments, "of", counted)
    here.platforms = ("cloudy", "other")
    here.limits = Limits(max_minutes=12, max_usd=Decimal("0.61"))
    mine, other = here.launch()
    stores, waits = here.database.stores, 20
    stores.cells.admit(other, f"{other}-1", max_parallel=9, at=here.clock.now())
    theirs = lease("other", f"{other}-1", place="south", usd="0.31")
    stores.leases.reserve(theirs, run_id="run", exclusive=False)

    def settle(world: FakeWorld) -> None:
        nonlocal waits
        waits -= 1
        if not waits:
            assert asked(world) == []
            stores.leases.gone("other", at=world.clock.now(), cost_usd=Decimal(settles_at))

    here.on_tick.append(settle)
    here.engine.run(mine)
    cell = here.record().cells[0]
    assert (waits <= 0, cell.outcome) == (True, outcome)
    assert len(expected) == 1, "an index is asked once an attempt, and not at each look"
    assert here.world.contact_log.approved_shipments == set()
    assert ("north", "skipped", "budget") in lines(here)
    told = [str(one.data.get("notice")) for one in stores.run_events.after("run", 0, limit=999)]
    waiting = [text for text in told if "waits until other machines of the run" in text]
    assert [text.partition(":")[0] for text in waiting] == ["north", "south"], "once a place"
    if outcome is Outcome.ERRORED:
        assert cell.reason == "budget"
        assert asked(here) == []


def test_a_budget_across_runs_is_reserved_before_a_launch(tmp_path, caplog):
    """What the first run spent of the day's money is too much for the second's worst case."""
    limits = Limits(max_minutes=12, max_usd=Decimal(10), infra_retries=0)
    here = FakeWorld(tmp_path, limits=limits, budgets=(Budget(Period.DAY, Decimal("0.3084")),))
    with caplog.at_level(logging.WARNING, "orchestrator.application.cell.placing"):
        finish(here, "first")
        finish(here, "second")
    (warned,) = [one.getMessage() for one in caplog.records if "budget" in one.getMessage()]
    assert warned == (
        "the day's budget, SEATRIAL_BUDGET_DAY_USD of $0.3084: $0.00 spent, $0.31 reserved: "
        "100 % or more is used"
    )
    first, second = (here.record(run).cells[0] for run in ("first", "second"))
    assert (first.outcome, second.outcome) == (Outcome.PASSED, Outcome.ERRORED)
    assert second.reason == "budget"
    assert second.detail.startswith(
        "another machine could exceed the day's budget, SEATRIAL_BUDGET_DAY_USD of $0.3084: $0.0"
    )
    assert second.detail.endswith("spent, $0.00 reserved")
    assert len(asked(here)) == 1
    here.close()


def test_a_budget_across_runs_needs_known_prices_whatever_the_matrix_allows(tmp_path):
    limits = Limits(max_usd=Decimal(10), allow_unknown_price=True, infra_retries=0)
    here = FakeWorld(tmp_path, limits=limits, budgets=(Budget(Period.MONTH, Decimal(5)),))
    here.cloud.prices.update(north=None, south=None)
    finish(here)
    cell = here.record().cells[0]
    assert (cell.outcome, cell.reason) == (Outcome.ERRORED, "price")
    assert "SEATRIAL_BUDGET_MONTH_USD can only be kept with known prices" in cell.detail
    assert asked(here) == []
    here.close()


def test_every_lease_has_keys_of_its_own_that_go_with_it(here):
    here.cloud.fail("north", LaunchFault.CAPACITY)
    finish(here)
    first, second = here.cloud.requests
    assert first.login is not None
    assert second.login is not None
    assert first.login != second.login
    assert "PRIVATE" not in repr(first)
    leases = here.database.stores.leases
    assert leases.login(first.token) is None
    assert leases.login(second.token) is None


def test_the_log_says_what_the_machine_costs_where_it_was_chosen(here):
    finish(here)
    (chosen,) = here.database.stores.leases.decisions("run")["run-0"]
    assert chosen.result is PlacementResult.CHOSEN
    assert chosen.detail.startswith("0.5000 USD per hour")
