"""What machines cost, to the hundredth of a cent."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.domain.cell import CellState, Lease, LeaseState, Transition
from orchestrator.domain.machine import Place
from orchestrator.domain.money import (
    CENT_OF_CENT,
    PHASES,
    Bill,
    billed_seconds,
    cost_by_job,
    cost_by_phase,
    lease_bill,
    machine_cost,
    machine_seconds,
    share,
    usd_per_validated_test,
    worst_usd,
)
from orchestrator.domain.outcome import Counts

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def after(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def offer(usd: str | None = "3.6", **changes: object) -> Place:
    price = None if usd is None else Decimal(usd)
    return replace(Place("here", price_usd_per_hour=price), **changes)


def lease(place: Place, **changes: object) -> Lease:
    made = Lease(
        id="l",
        attempt_id="a",
        provider="aws",
        place=place.name,
        state=LeaseState.ACTIVE,
        reserved_usd=Decimal(1),
        price_usd_per_hour=place.price_usd_per_hour,
        reserved_at=NOW,
        machine_id="m",
        launched_at=NOW,
        offer=place,
    )
    return replace(made, **changes)


def gone(place: Place, seconds: float, **changes: object) -> Lease:
    return lease(place, state=LeaseState.GONE, gone_at=after(seconds), **changes)


FULL = offer("1.006", disk_usd_per_hour=Decimal("0.0164"), address_usd_per_hour=Decimal("0.005"))


def test_the_machine_is_billed_by_the_second_that_was_begun():
    costs = [machine_cost(gone(offer(), s), NOW) for s in (0, 0.000001, 1, 1.5, 3600, 3600.1)]
    assert [str(cost) for cost in costs] == [
        "0.0000", "0.0010", "0.0010", "0.0020", "3.6000", "3.6010",
    ]  # fmt: skip


def test_a_short_lease_is_billed_the_minimum_of_its_offer_for_the_machine_alone():
    place = offer(minimum_s=60, disk_usd_per_hour=Decimal("0.36"))
    short = gone(place, 10)
    assert lease_bill(short, NOW) == Bill(Decimal("0.0600"), Decimal("0.0010"), Decimal("0.0000"))
    assert (billed_seconds(short, NOW), machine_seconds(short, NOW)) == (60, 10.0)
    assert billed_seconds(gone(place, 60.5), NOW) == 61


def test_disks_and_addresses_are_billed_by_real_seconds():
    bill = lease_bill(gone(FULL, 1800.5), NOW)
    assert bill == Bill(Decimal("0.5033"), Decimal("0.0082"), Decimal("0.0025"))
    assert bill.total_usd == Decimal("0.5140")


def test_a_machine_that_still_runs_is_billed_until_now():
    running = lease(offer())
    assert machine_cost(running, after(100)) == Decimal("0.1000")
    assert machine_cost(running, after(-5)) == 0
    assert machine_seconds(running, after(-5)) == 0


def test_a_machine_that_ended_by_itself_is_billed_until_then():
    """Preempted after 64 s, noticed and closed after 117 s."""
    ended = {"ended_at": after(64).isoformat()}
    closed = gone(offer(), 117, facts=ended)
    assert (billed_seconds(closed, NOW), machine_cost(closed, NOW)) == (64, Decimal("0.0640"))
    assert billed_seconds(lease(offer(), facts=ended), after(100)) == 64
    assert sum(cost_by_phase(WAY, closed, NOW).values()) == Decimal("0.0640")
    assert cost_by_phase(WAY, closed, NOW)[CellState.PREPARING] == 0
    late = gone(offer(), 117, facts={"ended_at": after(900).isoformat()})
    assert billed_seconds(late, NOW) == 117, "a clock that is ahead adds nothing"


def test_a_lease_that_was_gone_is_billed_the_same_for_ever():
    assert machine_cost(gone(offer(), 100), after(9_999)) == Decimal("0.1000")


@pytest.mark.parametrize(
    "one",
    [
        lease(FULL, state=LeaseState.RESERVED, launched_at=None, machine_id=""),
        gone(FULL, 50, machine_id="", refusal="capacity: none"),
        gone(FULL, 50, machine_id="", refusal="never made"),
        gone(FULL, 50, launched_at=None, machine_id=""),
        gone(FULL, 50, refusal="quota: after it had a name", cost_usd=Decimal(0)),
    ],
    ids=["reserved", "refused", "never made", "given up", "refused late"],
)
def test_what_never_ran_costs_nothing(one: Lease):
    one = replace(one, offer=replace(FULL, minimum_s=60))
    assert lease_bill(one, after(100)).total_usd == 0
    assert (machine_seconds(one, after(100)), billed_seconds(one, after(100))) == (0, 0)


def test_a_call_that_is_not_answered_yet_may_cost_money():
    asked = lease(offer(), state=LeaseState.LAUNCHING, machine_id="")
    assert machine_cost(asked, after(10)) == Decimal("0.0100")


def test_a_machine_that_turned_up_late_is_billed_from_its_launch_call():
    found = lease(offer(), state=LeaseState.RELEASING, refusal="never made")
    assert machine_cost(found, after(1000)) == Decimal("1.0000")


def test_what_was_settled_stands_and_its_parts_are_shares_of_it():
    settled = gone(FULL, 1800.5, cost_usd=Decimal("1.0280"))
    bill = lease_bill(settled, NOW)
    assert bill.total_usd == Decimal("1.0280")
    assert bill == Bill(Decimal("1.0066"), Decimal("0.0164"), Decimal("0.0050"))


def test_a_settlement_by_the_same_figures_has_the_same_parts():
    before = gone(FULL, 1800.5)
    bill = lease_bill(before, NOW)
    assert lease_bill(replace(before, cost_usd=bill.total_usd), after(1)) == bill


def test_a_lease_of_before_there_were_offers_is_billed_by_its_price():
    old = gone(offer("0.36"), 100, offer=None)
    assert lease_bill(old, NOW) == Bill(Decimal("0.0100"), Decimal("0.0000"), Decimal("0.0000"))


def test_an_unknown_price_bills_what_is_known():
    place = offer(None, disk_usd_per_hour=Decimal("3.6"))
    assert lease_bill(gone(place, 10), NOW).total_usd == Decimal("0.0100")


def test_the_worst_case_counts_begun_seconds_minimums_disks_and_addresses():
    assert worst_usd(offer(), 75) == Decimal("4.5000")
    assert worst_usd(FULL, 60) == Decimal("1.0274")
    assert worst_usd(offer(minimum_s=600), 1) == Decimal("0.6000")
    assert worst_usd(offer("0.0001"), 0.001) == CENT_OF_CENT
    assert worst_usd(offer(None), 75) is None
    assert worst_usd(offer("0"), 75) == 0


prices = st.decimals(0, 100, places=5)
seconds = st.floats(0, 400_000) | st.integers(0, 7_200)
places = st.builds(
    Place,
    name=st.just("here"),
    price_usd_per_hour=prices,
    disk_usd_per_hour=prices,
    address_usd_per_hour=prices,
    minimum_s=st.sampled_from([0, 1, 60, 600]),
)
weights = st.lists(st.decimals(0, 10**9, places=6), min_size=1, max_size=9)
amounts = st.decimals(0, 10_000, places=4)


def is_exact(part: Decimal) -> bool:
    return part >= 0 and part == part.quantize(CENT_OF_CENT)


@given(amounts, weights)
def test_shares_come_to_the_whole(total: Decimal, given_weights: list[Decimal]):
    parts = share(total, given_weights)
    assert sum(parts) == total
    assert all(map(is_exact, parts))
    whole = sum(given_weights)
    for part, weight in zip(parts, given_weights, strict=True):
        if whole:
            assert abs(part - total * weight / whole) <= CENT_OF_CENT
        if whole and not weight:
            assert part == 0


def test_what_weighs_nothing_gets_nothing_and_all_of_nothing_goes_to_the_first():
    assert share(Decimal("0.0001"), [Decimal(0), Decimal(1), Decimal(1)]) == [0, CENT_OF_CENT, 0]
    assert share(Decimal("0.5"), [Decimal(0), Decimal(0)]) == [Decimal("0.5"), 0]


@given(places, seconds, amounts | st.none())
def test_the_parts_of_a_bill_come_to_its_total(place: Place, s: float, settled: Decimal | None):
    one = gone(place, s, cost_usd=settled)
    bill = lease_bill(one, NOW)
    assert all(map(is_exact, (bill.machine_usd, bill.disk_usd, bill.address_usd)))
    assert bill.total_usd == machine_cost(one, NOW)
    if settled is not None:
        assert bill.total_usd == settled


@given(places, seconds, seconds)
def test_a_bill_never_falls_with_time(place: Place, one: float, other: float):
    early, late = sorted((one, other))
    running = lease(place)
    assert machine_cost(running, after(early)) <= machine_cost(running, after(late))


@given(places, seconds, seconds)
def test_no_bill_is_higher_than_the_worst_case(place: Place, one: float, other: float):
    ran, limit = sorted((one, other))
    worst = worst_usd(place, (limit + 0.001) / 60)
    assert worst is not None
    assert machine_cost(gone(place, ran), NOW) <= worst


def steps(*given_steps: tuple[float, str]) -> list[Transition]:
    return [Transition(after(s), 1, "", target) for s, target in given_steps]


WAY = steps(
    (-2, "placing"),
    (10, "booting"),
    (100, "preparing"),
    (200, "running"),
    (800, "collecting"),
    (820, "releasing"),
    (905, "done"),
)


def test_phases_cost_what_they_lasted_while_the_machine_was_held():
    one = gone(offer(), 900)
    assert cost_by_phase(WAY, one, NOW) == {
        CellState.PLACING: Decimal("0.0100"),
        CellState.BOOTING: Decimal("0.0900"),
        CellState.PREPARING: Decimal("0.1000"),
        CellState.RUNNING: Decimal("0.6000"),
        CellState.COLLECTING: Decimal("0.0200"),
        CellState.DIAGNOSING: Decimal("0.0000"),
        CellState.RELEASING: Decimal("0.0800"),
    }


def test_a_running_machine_costs_in_its_present_phase():
    costs = cost_by_phase(WAY[:4], lease(offer()), after(300))
    assert costs[CellState.RUNNING] == Decimal("0.1000")
    assert costs[CellState.RELEASING] == 0
    assert sum(costs.values()) == Decimal("0.3000")


def test_a_machine_that_outlived_its_attempt_was_being_released():
    costs = cost_by_phase(WAY, gone(offer(), 1000), NOW)
    assert costs[CellState.RELEASING] == Decimal("0.1800")


def test_phases_of_what_never_ran_cost_nothing():
    refused = gone(FULL, 50, machine_id="", refusal="capacity: none")
    assert set(cost_by_phase(WAY, refused, NOW).values()) == {Decimal(0)}


def test_a_minimum_without_time_is_the_placing_s():
    costs = cost_by_phase([], lease(offer(minimum_s=60)), NOW)
    assert costs[CellState.PLACING] == Decimal("0.0600")


@given(
    places,
    st.lists(st.floats(-100, 5_000), max_size=8).map(sorted),
    st.floats(-10, 5_000),
    amounts | st.none(),
)
def test_phases_come_to_the_cost_of_the_lease(
    place: Place, moments: list[float], end: float, settled: Decimal | None
):
    way = steps(*((s, state) for s, state in zip(moments, PHASES, strict=False)))
    one = gone(place, end, cost_usd=settled)
    costs = cost_by_phase(way, one, NOW)
    assert tuple(costs) == PHASES
    assert sum(costs.values()) == machine_cost(one, NOW)
    assert all(map(is_exact, costs.values()))


def test_jobs_share_what_they_ran_and_the_rest_is_overhead():
    costs = cost_by_job({"moe": 60, "demo": 30.0}, Decimal("0.1200"), machine_s=120)
    assert dict(costs.by_job) == {"moe": Decimal("0.0600"), "demo": Decimal("0.0300")}
    assert costs.overhead_usd == Decimal("0.0300")


def test_jobs_that_say_they_ran_longer_than_the_machine_share_everything():
    costs = cost_by_job({"a": 300, "b": 100}, Decimal("0.0100"), machine_s=120)
    assert dict(costs.by_job) == {"a": Decimal("0.0075"), "b": Decimal("0.0025")}
    assert costs.overhead_usd == 0


def test_without_jobs_everything_is_overhead():
    assert cost_by_job({}, Decimal("0.5"), machine_s=0).overhead_usd == Decimal("0.5")
    assert cost_by_job({"a": 0}, Decimal("0.5"), machine_s=0).overhead_usd == Decimal("0.5")


@given(st.dictionaries(st.text(max_size=3), st.floats(-5, 90_000)), amounts, st.floats(0, 90_000))
def test_jobs_and_overhead_come_to_the_whole(ran: dict[str, float], total: Decimal, held: float):
    costs = cost_by_job(ran, total, machine_s=held)
    assert sum(costs.by_job.values()) + costs.overhead_usd == total
    assert all(map(is_exact, [*costs.by_job.values(), costs.overhead_usd]))
    assert list(costs.by_job) == list(ran)


def test_a_validated_test_is_one_that_passed_or_failed():
    counts = Counts(passed=60, failed=6, error=9, skipped=9, missing=9, not_run=9)
    assert usd_per_validated_test(Decimal("0.1427"), counts) == Decimal("0.002162")
    assert usd_per_validated_test(Decimal("0.1427"), Counts(error=3, skipped=1)) is None
    assert usd_per_validated_test(Decimal(0), Counts(passed=1)) == 0


def cents(usd: Decimal) -> str:
    return str(usd.quantize(Decimal("0.01"), ROUND_HALF_UP))


def test_the_cost_table_of_the_release_comes_from_the_ledger():
    """Five minutes of a g5.xlarge and of a g2-standard-4, on demand, as of 2026-01-31.

    The release's own table said 0.08 for each and 0.16 together, from a wrong price of the second.
    """
    ledger = {
        "AWS g5.xlarge": gone(offer("1.006", minimum_s=60), 300),
        "GCP g2-standard-4": gone(offer("0.70683", minimum_s=60), 300),
    }
    costs = {name: machine_cost(one, NOW) for name, one in ledger.items()}
    assert {name: str(usd) for name, usd in costs.items()} == {
        "AWS g5.xlarge": "0.0838",
        "GCP g2-standard-4": "0.0589",
    }
    assert [cents(usd) for usd in costs.values()] == ["0.08", "0.06"]
    assert cents(sum(costs.values(), Decimal(0))) == "0.14"
