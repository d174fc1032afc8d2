"""Whether all that runs at the same time fits."""

from __future__ import annotations

import pytest

from orchestrator.domain.quota import Demand, Headroom, Quota, QuotaLevel, QuotaStatus, headroom

SPOT = Quota("aws", "us-east-1", "L-3819A6DF", "G/VT spot", "vCPU")
ON_DEMAND = Quota("aws", "us-east-1", "L-DB2E81BA", "G/VT on-demand", "vCPU")
PROJECT = Quota("gcp", "my-project", "GPUS_ALL_REGIONS", "GPUs in all regions", "GPU")


def one(needed: int, level: QuotaLevel, *, each: int = 4) -> Headroom:
    demands = [Demand(SPOT, each)] * (needed // each)
    (found,) = headroom(demands, {SPOT: level}, at_once=100)
    return found


def test_what_does_not_fit_says_what_to_ask_for():
    found = one(8, QuotaLevel(limit=4, used=0))
    assert found.status is QuotaStatus.SHORT
    assert found.sentence == (
        "needs 8 vCPU of G/VT spot in us-east-1, 4 free; ask L-3819A6DF for >= 8"
    )


def test_what_is_in_use_is_not_free_and_is_asked_for_too():
    found = one(8, QuotaLevel(limit=16, used=12))
    assert found.status is QuotaStatus.SHORT
    assert found.sentence.endswith("4 free; ask L-3819A6DF for >= 20")


@pytest.mark.parametrize(
    ("limit", "used", "room"),
    [
        (8, 0, QuotaStatus.OK),
        (12, 4, QuotaStatus.OK),
        (11, 4, QuotaStatus.SHORT),
        (0, 0, QuotaStatus.SHORT),
    ],
)
def test_exactly_enough_is_enough(limit: int, used: int, room: QuotaStatus):
    assert one(8, QuotaLevel(limit, used)).status is room


def test_what_fits_is_said_in_one_line():
    assert one(8, QuotaLevel(96, 4)).sentence == "needs 8 vCPU of G/VT spot in us-east-1, 92 free"


def test_more_in_use_than_the_limit_is_nothing_free():
    found = one(4, QuotaLevel(limit=4, used=8))
    assert found.sentence.endswith("0 free; ask L-3819A6DF for >= 12")


@pytest.mark.parametrize(
    "level", [QuotaLevel(None, 0), QuotaLevel(64, None), QuotaLevel(None, None)]
)
def test_unknown_is_never_enough(level: QuotaLevel):
    found = one(4, level)
    assert found.status is QuotaStatus.UNKNOWN
    assert found.sentence == (
        "needs 4 vCPU of G/VT spot in us-east-1, unknown how much is free: it was not told"
    )


def test_why_it_is_unknown_is_told():
    assert one(4, QuotaLevel(None, None, "AccessDenied")).sentence.endswith(": AccessDenied")


def test_demands_are_added_up_quota_by_quota_in_their_order():
    demands = [Demand(PROJECT, 1), Demand(SPOT, 4), Demand(PROJECT, 1), Demand(ON_DEMAND, 8)]
    levels = {q: QuotaLevel(4, 0) for q in (SPOT, ON_DEMAND, PROJECT)}
    found = headroom(iter(demands), levels, at_once=9)
    assert [(x.quota, x.needed, x.status) for x in found] == [
        (PROJECT, 2, QuotaStatus.OK),
        (SPOT, 4, QuotaStatus.OK),
        (ON_DEMAND, 8, QuotaStatus.SHORT),
    ]


def test_of_machines_that_take_turns_the_largest_are_counted():
    demands = [Demand(SPOT, amount) for amount in (4, 32, 8, 16)]
    (found,) = headroom(demands, {SPOT: QuotaLevel(48, 0)}, at_once=2)
    assert (found.needed, found.status) == (48, QuotaStatus.OK)


def test_nothing_asked_is_nothing_needed():
    assert headroom([], {SPOT: QuotaLevel(0, 0)}, at_once=1) == ()
