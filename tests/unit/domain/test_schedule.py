"""What becomes of due times, and what a schedule may say."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from orchestrator.domain.schedule import (
    MISSED_KEPT,
    CatchUp,
    Firing,
    FiringState,
    Overlap,
    Schedule,
    faults,
    pause_after,
    sort_out,
)

NOW = datetime(2026, 10, 24, 9, 0, tzinfo=UTC)
NIGHTLY = Schedule(
    name="nightly",
    cron="0 2 * * *",
    tz="Europe/Berlin",
    owner="release team",
    matrix="",
    created_at=NOW,
)


def hours_ago(*hours: float) -> list[datetime]:
    return [NOW - timedelta(hours=h) for h in hours]


@pytest.mark.parametrize(
    ("catch_up", "ago", "fire", "missed"),
    [
        (CatchUp.NONE, [0.01], [0.01], []),
        (CatchUp.NONE, [1], [], [1]),
        (CatchUp.NONE, [48, 24, 0], [0], [48, 24]),
        (CatchUp.LATEST, [31, 7], [7], [31]),
        (CatchUp.LATEST, [24, 0], [0], [24]),
        (CatchUp.LATEST, [25], [], [25]),
        (CatchUp.ALL, [25, 24, 12, 0], [24, 12, 0], [25]),
        (CatchUp.ALL, [], [], []),
    ],
)
def test_what_nobody_was_there_for(
    catch_up: CatchUp, ago: list[float], fire: list[float], missed: list[float]
) -> None:
    found = sort_out(hours_ago(*ago), replace(NIGHTLY, catch_up=catch_up), NOW)
    assert (list(found.fire), list(found.missed)) == (hours_ago(*fire), hours_ago(*missed))


def test_a_long_downtime_writes_a_bounded_number_down() -> None:
    due = hours_ago(*(n / 60 for n in range(9000, 0, -1)))
    found = sort_out(due, replace(NIGHTLY, catch_up=CatchUp.ALL, overlap=Overlap.QUEUE), NOW)
    assert len(found.fire) <= 100
    assert len(found.missed) == MISSED_KEPT


@pytest.mark.parametrize(
    ("field", "value", "at"),
    [
        ("name", "../x", "name"), ("name", "", "name"), ("owner", " ", "owner"),
        ("deadline", "6:00", "deadline"), ("deadline", "24:00", "deadline"),
        ("deadline", "0m", "deadline"), ("catch_up_hours", 0, "catch_up_hours"),
        ("catch_up_hours", 1000, "catch_up_hours"), ("catch_up", CatchUp.ALL, "catch_up"),
        ("last_passed_baseline", True, "baseline"), ("reuse_max_age_s", 0.0, "reuse_hours"),
    ],
)  # fmt: skip
def test_what_cannot_be_meant_is_refused(field: str, value: object, at: str) -> None:
    assert [where for where, _ in faults(replace(NIGHTLY, **{field: value}))] == [at]


def test_a_sensible_one_has_no_fault() -> None:
    asked = replace(NIGHTLY, deadline="06:00", gate="release", last_passed_baseline=True)
    assert list(faults(asked)) == []
    assert list(faults(replace(asked, deadline="90m", reuse_max_age_s=3600.0))) == []


def test_states_have_an_order_and_keys_are_exact() -> None:
    firing = Firing(schedule="n", due_at=NOW, claimed_at=NOW, state=FiringState.LAUNCHED)
    assert firing.has_reached(FiringState.RESOLVED)
    assert not firing.has_reached(FiringState.EVALUATED)
    assert firing.key == "schedule:n:2026-10-24T09:00:00Z"


def test_pauses_grow_and_then_stay() -> None:
    assert [pause_after(n).total_seconds() for n in (1, 2, 5, 9)] == [30, 60, 600, 600]
