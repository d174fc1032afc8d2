"""Cron with time zones: never twice, never lost."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.adapters.clock import CronsimCron
from orchestrator.application.ports.clock import CronError

CRON = CronsimCron()
BERLIN = "Europe/Berlin"


def times(expression: str, tz: str, after: datetime, count: int) -> list[str]:
    found = []
    for _ in range(count):
        after = CRON.next_after(expression, tz, after)
        found.append(f"{after:%m-%dT%H:%M}")
    return found


def test_the_night_that_has_no_half_past_two() -> None:
    before = datetime(2026, 3, 27, 12, tzinfo=UTC)
    expected = ["03-28T01:30", "03-29T01:00", "03-30T00:30"]
    assert times("30 2 * * *", BERLIN, before, 3) == expected


def test_the_night_that_has_half_past_two_twice() -> None:
    before = datetime(2026, 10, 23, 12, tzinfo=UTC)
    expected = ["10-24T00:30", "10-25T00:30", "10-26T01:30"]
    assert times("30 2 * * *", BERLIN, before, 3) == expected
    between = datetime(2026, 10, 25, 1, 15, tzinfo=UTC)
    assert times("30 2 * * *", BERLIN, between, 1) == ["10-26T01:30"]


def test_every_half_hour_goes_on_through_both() -> None:
    for day in (datetime(2026, 3, 29, tzinfo=UTC), datetime(2026, 10, 25, tzinfo=UTC)):
        at = day
        for n in range(1, 8):
            at = CRON.next_after("*/30 * * * *", BERLIN, at)
            assert at == day + n * timedelta(minutes=30)


@given(
    minute=st.integers(0, 59),
    hour=st.integers(0, 23),
    tz=st.sampled_from([BERLIN, "America/New_York", "Australia/Lord_Howe", "UTC"]),
    day=st.integers(0, 364),
    second=st.integers(0, 86_399),
)
def test_a_daily_time_comes_once_on_every_day(
    minute: int, hour: int, tz: str, day: int, second: int
) -> None:
    from zoneinfo import ZoneInfo

    after = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=day, seconds=second)
    found = []
    at = after
    for _ in range(5):
        at = CRON.next_after(f"{minute} {hour} * * *", tz, at)
        found.append(at)
    assert found == sorted(set(found))
    assert found[0] > after
    days = [at.astimezone(ZoneInfo(tz)).date() for at in found]
    assert days == [days[0] + timedelta(days=n) for n in range(5)]


@pytest.mark.parametrize(
    ("expression", "tz", "said"),
    [
        ("61 2 * * *", "UTC", "Bad minute"),
        ("* * * *", "UTC", "has 4 fields, and cron has five"),
        ("* * * * * *", "UTC", "has 6 fields"),
        ("@daily", "UTC", "has 1 fields"),
        ("0 0 30 2 *", "UTC", "Bad day-of-month"),
        ("0 2 * * *", "Europe/Berln", "did you mean 'Europe/Berlin'"),
        ("0 2 * * *", "../../etc/passwd", "is no time zone; they look like Europe/Berlin or UTC$"),
        ("0 2 * * *", "", "is no time zone"),
    ],
)
def test_what_is_impossible_is_refused(expression: str, tz: str, said: str) -> None:
    with pytest.raises(CronError, match=said):
        CRON.next_after(expression, tz, datetime(2026, 1, 1, tzinfo=UTC))
