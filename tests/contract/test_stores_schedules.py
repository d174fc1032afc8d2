"""Schedules and firings, on SQLite and on Postgres."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial

import pytest

from orchestrator.domain.document_problems import InvalidDocumentError
from orchestrator.domain.schedule import (
    SKIPPED,
    Firing,
    FiringState,
    Overlap,
    Resolved,
    Schedule,
    SubjectKind,
    SubjectSelector,
)
from orchestrator.store.schedules import DueSchedule, ScheduleTakenError
from orchestrator.store.stores import Stores
from tests.contract.test_stores_gates import OF_OTHER, POLICY
from tests.databases import ON_SQLITE, together

AT = datetime(2026, 10, 24, 0, 0, tzinfo=UTC)
DAY = timedelta(days=1)
NIGHTLY = Schedule(
    name="nightly",
    cron="0 2 * * *",
    tz="Europe/Berlin",
    owner="release team",
    matrix="kind: Matrix\n",
    subject=SubjectSelector(kind=SubjectKind.BRANCH, url="https://git.example/x", branch="main"),
    overlap=Overlap.QUEUE,
    created_at=AT - DAY,
)


@pytest.fixture
def kept(stores: Stores) -> Stores:
    stores.schedules.add(NIGHTLY, next_due_at=AT)
    return stores


def firing(due_at: datetime = AT, **more: object) -> Firing:
    return replace(Firing(schedule="nightly", due_at=due_at, claimed_at=AT), **more)


def next_due(stores: Stores) -> datetime | None:
    """When the only schedule is due; None while it is paused."""
    return next((one.next_due_at for one in stores.schedules.due(AT + 1000 * DAY)), None)


def claimed(stores: Stores, *firings: Firing) -> None:
    due = DueSchedule(NIGHTLY, AT)
    assert stores.schedules.claim(due, firings or [firing()], next_due_at=AT + 10 * DAY)


def test_a_schedule_comes_back_as_it_was_and_its_name_is_taken(kept: Stores) -> None:
    store = kept.schedules
    assert store.get("nightly") == NIGHTLY
    assert store.get("weekly") is None
    store.add(replace(NIGHTLY, created_at=AT), next_due_at=AT + DAY)
    assert store.list() == [NIGHTLY]
    assert next_due(kept) == AT
    with pytest.raises(ScheduleTakenError, match="'nightly' already"):
        store.add(replace(NIGHTLY, cron="0 3 * * *"), next_due_at=AT)


def test_a_policy_is_kept_with_its_schedule(stores: Stores) -> None:
    judged, second = replace(NIGHTLY, gate="release"), replace(POLICY, digest="d" * 64)
    stores.schedules.add(judged, next_due_at=AT, policy=POLICY)
    assert stores.gates.policy("release") == POLICY
    assert stores.schedules.replace(judged, next_due_at=AT, policy=second)
    assert stores.gates.policy("release") == second
    stores.schedules.add(judged, next_due_at=AT, policy=replace(POLICY, since=AT))
    assert stores.gates.policy("release") == replace(POLICY, since=AT)


def test_of_a_refused_schedule_and_its_policy_neither_is_kept(kept: Stores) -> None:
    store, changed = kept.schedules, replace(NIGHTLY, cron="0 3 * * *")
    with pytest.raises(ScheduleTakenError):
        store.add(changed, next_due_at=AT, policy=POLICY)
    assert not store.replace(replace(NIGHTLY, name="weekly"), next_due_at=AT, policy=POLICY)
    assert kept.gates.policies() == []
    kept.gates.put_policy(POLICY)
    for work in (store.add, store.replace):
        name = "weekly" if work == store.add else "nightly"
        with pytest.raises(InvalidDocumentError, match="keeps its product"):
            work(replace(changed, name=name), next_due_at=AT + DAY, policy=OF_OTHER)
    assert (store.list(), next_due(kept)) == ([NIGHTLY], AT)
    assert kept.gates.policy_history("release") == [POLICY]


def test_it_is_due_from_its_time_on_and_not_while_it_is_paused(kept: Stores) -> None:
    store = kept.schedules
    assert store.due(AT - timedelta(seconds=1)) == []
    assert store.due(AT) == [DueSchedule(NIGHTLY, AT)]
    paused = store.pause("nightly", at=AT)
    assert paused is not None
    assert paused.paused_at == AT
    assert store.pause("nightly", at=AT + DAY) == paused
    assert (store.due(AT + DAY), next_due(kept)) == ([], None)
    assert store.resume("nightly", next_due_at=AT + DAY) == NIGHTLY
    assert store.resume("nightly", next_due_at=AT + 2 * DAY) == NIGHTLY
    assert next_due(kept) == AT + DAY
    assert store.pause("weekly", at=AT) is None
    assert store.resume("weekly", next_due_at=AT) is None


def test_of_many_who_claim_at_once_one_does(kept: Stores) -> None:
    [due] = kept.schedules.due(AT)
    claim = partial(kept.schedules.claim, due, [firing()], next_due_at=AT + DAY)
    assert sorted(together([claim] * 8), key=bool) == [False] * 7 + [True]
    assert kept.schedules.open() == [firing()]
    assert next_due(kept) == AT + DAY


def test_a_paused_or_removed_one_cannot_be_claimed(kept: Stores) -> None:
    [due] = kept.schedules.due(AT)
    kept.schedules.pause("nightly", at=AT)
    assert not kept.schedules.claim(due, [firing()], next_due_at=AT + DAY)
    assert kept.schedules.remove("nightly")
    assert not kept.schedules.remove("nightly")
    assert not kept.schedules.claim(due, [firing()], next_due_at=AT + DAY)
    assert kept.schedules.open() == []


def test_of_many_who_take_a_firing_one_holds_it(kept: Stores) -> None:
    claimed(kept)
    names = [f"holder {n}" for n in range(8)]
    takes = [partial(kept.schedules.take, firing(), name, lease_s=60) for name in names]
    taken = together(takes)
    assert [one for one in taken if one is not None] == [firing()]
    holder = names[taken.index(firing())]
    other = names[taken.index(None)]
    assert not kept.schedules.renew(firing(), other, lease_s=60)
    assert not kept.schedules.save(firing(state=FiringState.LAUNCHED), other)
    kept.schedules.give_back(firing(), other)
    assert kept.schedules.take(firing(), other, lease_s=60) is None
    assert kept.schedules.renew(firing(), holder, lease_s=60)
    kept.schedules.give_back(firing(), holder)
    assert kept.schedules.take(firing(), other, lease_s=60) == firing()


def test_a_dead_holder_loses_it_and_can_write_no_more(kept: Stores) -> None:
    claimed(kept)
    assert kept.schedules.take(firing(), "dead", lease_s=0) == firing()
    assert kept.schedules.take(firing(), "alive", lease_s=60) == firing()
    assert not kept.schedules.save(firing(state=FiringState.LAUNCHED), "dead")
    resolved = Resolved(matrix={"kind": "Matrix", "n": [1, None]}, subject="x 1", remarks=("r",))
    moved = firing(state=FiringState.RESOLVED, resolved=resolved, deadline_at=AT + DAY, tries=2)
    assert kept.schedules.save(moved, "alive")
    assert kept.schedules.firing("nightly", AT) == moved
    over = replace(moved, state=FiringState.NOTIFIED, ended_at=AT)
    assert kept.schedules.save(over, "alive")
    kept.schedules.give_back(over, "alive")
    assert kept.schedules.open() == []
    assert kept.schedules.take(over, "late", lease_s=60) is None
    assert kept.schedules.firings("nightly") == [over]


def test_the_same_second_is_one_firing(kept: Stores) -> None:
    mine, yours = firing(by="me"), firing(by="you")
    answers = together([partial(kept.schedules.trigger, one) for one in (mine, yours)])
    assert answers[0] == answers[1]
    assert kept.schedules.firings("nightly") == [answers[0]]


def test_the_earlier_ones_are_asked_to_end_even_while_they_are_held(kept: Stores) -> None:
    days = [AT + n * DAY for n in range(4)]
    over = firing(days[0], state=FiringState.NOTIFIED)
    claimed(kept, over, *(firing(day) for day in days[1:]))
    kept.schedules.take(firing(days[1]), "holder", lease_s=60)
    kept.schedules.supersede(firing(days[3]))
    assert kept.schedules.save(firing(days[1], state=FiringState.LAUNCHED), "holder")
    known = kept.schedules.firings("nightly")
    assert [one.superseded for one in known] == [False, True, True, False]
    assert [one.due_at for one in known] == days[::-1]
    assert [one.due_at for one in kept.schedules.open()] == days[1:]


def resolved(one: Firing) -> Firing:
    return replace(one, state=FiringState.RESOLVED, resolved=Resolved(matrix={"kind": "Matrix"}))


def test_of_two_that_meet_only_one_begins(kept: Stores) -> None:
    earlier, later = firing(), firing(AT + timedelta(seconds=1), by="ada")
    claimed(kept, earlier, later)
    for one in (earlier, later):
        assert kept.schedules.take(one, "holder", lease_s=60) == one
    begin = kept.schedules.begin
    assert not begin(resolved(later), "holder")
    assert not begin(resolved(earlier), "somebody else")
    begins = [partial(begin, resolved(one), "holder") for one in (earlier, later)]
    assert together(begins * 3) == [True, False] * 3
    assert kept.schedules.open() == [resolved(earlier), later]
    over = replace(earlier, state=FiringState.NOTIFIED)
    assert kept.schedules.save(over, "holder")
    assert begin(resolved(later), "holder")


@pytest.mark.parametrize("state", [FiringState.RESOLVED, FiringState.LAUNCHED])
def test_what_has_begun_goes_before_one_that_was_due_earlier(
    kept: Stores, state: FiringState
) -> None:
    earlier, later = firing(), firing(AT + timedelta(seconds=1), by="ada")
    run = "run-1" if state is FiringState.LAUNCHED else ""
    begun = replace(resolved(later), state=state, run=run)
    claimed(kept, earlier, begun, firing(AT + DAY))
    kept.schedules.add(replace(NIGHTLY, name="weekly"), next_due_at=AT)
    kept.schedules.trigger(firing(AT - DAY, schedule="weekly"))
    kept.schedules.take(earlier, "holder", lease_s=60)
    assert not kept.schedules.begin(resolved(earlier), "holder")
    kept.schedules.supersede(earlier)
    assert [one.due_at for one in kept.schedules.open() if one.superseded] == [begun.due_at]
    kept.schedules.take(begun, "holder", lease_s=60)
    assert kept.schedules.save(replace(begun, state=FiringState.NOTIFIED), "holder")
    assert kept.schedules.begin(resolved(earlier), "holder")


@ON_SQLITE
def test_what_came_to_its_end_without_a_run_holds_nothing_up(kept: Stores) -> None:
    earlier, later = firing(), firing(AT + timedelta(seconds=1), by="ada")
    claimed(kept, earlier, replace(later, state=FiringState.EVALUATED, outcome=SKIPPED))
    kept.schedules.take(earlier, "holder", lease_s=60)
    assert kept.schedules.begin(resolved(earlier), "holder")


def test_the_latest_firings_of_every_schedule_are_read_at_once(kept: Stores) -> None:
    store = kept.schedules
    assert store.latest(limit=3) == {}
    store.add(replace(NIGHTLY, name="weekly"), next_due_at=AT)
    store.add(replace(NIGHTLY, name="never"), next_due_at=AT)
    claimed(kept, *(firing(AT + number * DAY) for number in range(5)))
    only = store.trigger(firing(AT, schedule="weekly"))
    due = [AT + number * DAY for number in (4, 3, 2)]
    latest = store.latest(limit=3)
    assert [one.due_at for one in latest["nightly"]] == due
    assert latest["weekly"] == [only]
    assert set(latest) == {"nightly", "weekly"}
    assert [one.due_at for one in store.latest(limit=1)["nightly"]] == due[:1]
