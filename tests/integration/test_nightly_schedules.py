"""Forty-three nights of a release gate: every verdict, and every word to people.

Over the night that has half past two twice; and six over the one that does not have it.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from orchestrator.application.schedules import pause_schedule, resume_schedule
from tests.databases import make_database
from tests.integration.api_context import desk
from tests.integration.nightly_world import BERLIN, Night, Nights

LATE = time(8)
NEVER = time(23)
NIGHTS = {
    1: Night(told=("pass",)),
    3: Night(west="failed", outcome="FAIL", told=("fail",)),
    4: Night(west="failed", outcome="FAIL"),
    5: Night(told=("pass",)),
    6: Night(west="capacity", outcome="INCONCLUSIVE", told=("inconclusive",)),
    7: Night(west="capacity", outcome="INCONCLUSIVE"),
    8: Night(told=("pass",)),
    9: Night(west="flaky", outcome="PASS_WITH_EXCEPTIONS", told=("pass_with_exceptions",)),
    10: Night(told=("pass",)),
    12: Night(west="failed", outcome="FAIL", told=("fail",)),
    # A waiver is given at noon of day 12, for three days.
    13: Night(west="failed", outcome="PASS_WITH_EXCEPTIONS", told=("pass_with_exceptions",)),
    14: Night(west="failed", outcome="PASS_WITH_EXCEPTIONS"),
    15: Night(west="failed", outcome="PASS_WITH_EXCEPTIONS"),
    16: Night(west="failed", outcome="FAIL", told=("fail",)),
    17: Night(told=("pass",)),
    18: Night(how="worker dies launching"),
    19: Night(how="worker dies building"),
    21: Night(ends=LATE, told=("late", "pass")),
    22: Night(how="nobody is there", outcome="none"),
    23: Night(told=("late", "pass"), ends=time(10), how="nobody is there at two"),
    24: Night(how="branch is gone", outcome="errored", told=("errored",)),
    25: Night(told=("pass",)),
    26: Night(how="repository is away"),
    28: Night(west="missing", outcome="FAIL", told=("fail",)),
    29: Night(told=("pass",)),
    30: Night(west="lost", outcome="INCONCLUSIVE", told=("inconclusive",)),
    31: Night(told=("pass",)),
    32: Night(how="hangs until tomorrow", ends=NEVER, outcome="", told=("late",)),
    33: Night(outcome="skipped", told=("pass",)),
    34: Night(how="worker dies judging"),
    35: Night(how="worker dies telling", west="failed", outcome="FAIL", told=("fail",)),
    36: Night(how="worker dies telling", told=("pass",)),
    37: Night(west="unattested", outcome="INCONCLUSIVE", told=("inconclusive",)),
    38: Night(told=("pass",)),
    39: Night(how="two controllers"),
    41: Night(how="paused", outcome="none"),
}
"""What is not here is an ordinary night: PASS, and nobody is told anything."""


@pytest.fixture
def nights(request: pytest.FixtureRequest) -> Iterator[Nights]:
    in_memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with (
        TemporaryDirectory(dir=in_memory) as folder,
        desk(Path(folder), make_database(Path(folder))) as opened,
    ):
        yield Nights(opened, *request.param)


@pytest.mark.parametrize(
    "nights",
    [
        pytest.param((date(2026, 9, 28), 43), id="autumn: two of them on October 25"),
        pytest.param((date(2026, 3, 26), 6), id="spring: no half past two on March 29"),
    ],
    indirect=True,
)
def test_every_night_has_its_verdict_and_every_change_is_told(nights: Nights) -> None:
    told, expected = {}, {}
    for number in nights.numbers:
        night = NIGHTS.get(number, Night())
        live(nights, number, night)
        told[number] = (nights.told(), outcome_of(nights, number))
        expected[number] = (night.told, night.outcome)
    assert told == expected
    firings = nights.firings()
    days = [x.due_at.astimezone(BERLIN).date() for x in firings]
    assert days == [nights.first + timedelta(days=n) for n in nights.numbers if n != 41]
    missed = [x.due_at.astimezone(BERLIN).date() for x in firings if x.outcome == "missed"]
    assert missed == [nights.first + timedelta(days=n) for n in nights.numbers if n == 22]
    runs = [x.run for x in firings if x.run]
    without = sum(x.outcome in ("missed", "errored", "skipped") for x in firings)
    assert len(set(runs)) == len(runs) == len(firings) - without
    stored, _ = nights.context.stores.runs.page(limit=1000, before=None)
    assert sorted(run.id for run in stored) == sorted(runs)
    verdicts = nights.context.stores.gates.verdicts(gate="release", limit=1000)
    assert Counter(one.runs[0] for one in verdicts) == Counter(runs)
    assert {one.lineage for one in verdicts} == {"release@nightly"}


def live(nights: Nights, number: int, night: Night) -> None:
    """The night, and what people do at noon."""
    if night.how == "nobody is there at two":
        # The controller is back at nine, after two nights.
        nights.desk.clock.time = datetime.combine(
            nights.first + timedelta(days=number), time(9), tzinfo=BERLIN
        )
    nights.live(number, night)
    if number == 12:
        nights.request_waiver(days=3)
    if number == 40:
        pause_schedule(nights.context, "nightly")
    if number == 41:
        resume_schedule(nights.context, "nightly")


def outcome_of(nights: Nights, number: int) -> str:
    """Of the firing of that day, as it stands."""
    day = nights.first + timedelta(days=number)
    found = [x for x in nights.firings() if x.due_at.astimezone(BERLIN).date() == day]
    assert len(found) <= 1
    return found[0].outcome if found else "none"
