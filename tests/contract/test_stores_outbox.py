"""The outbox: what is news, who is told of it, and that it is sent in order and never lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import count
from typing import Any

import pytest

from orchestrator.adapters.db.database import Database, open_database
from orchestrator.application.ports.stores import Stores
from orchestrator.domain.announcement import Announcement, LineageState
from orchestrator.domain.channel import (
    GIVE_UP_AFTER,
    Channel,
    ChannelKind,
    Delivery,
    DeliveryState,
    Receipt,
    Reception,
    Secret,
)
from tests.databases import NOW, after, together

SHA = "a" * 40
LAST = NOW + timedelta(days=400)


def ids(prefix: str = "d") -> Callable[[], str]:
    numbers = count(1)
    return lambda: f"{prefix}-{next(numbers):04d}"


def told(
    state: str,
    key: str,
    *,
    lineage: str = "nightly",
    judged_at: datetime | None = None,
    **facts: str,
) -> Announcement:
    return Announcement(
        lineage=lineage,
        state=LineageState(state),
        title=f"{lineage} {state}",
        text="why",
        url="",
        at=NOW,
        key=key,
        judged_at=judged_at,
        facts=facts,
    )


def channel(number: int = 1, kind: ChannelKind = ChannelKind.WEBHOOK, **more: object) -> Channel:
    target = "acme/lib" if kind is ChannelKind.GITHUB else "https://hooks.example/x"
    return replace(
        Channel(
            id=f"c-{number}",
            name=f"channel {number}",
            kind=kind,
            target=target,
            created_at=after(number),
            secrets=(Secret("whsec_b25l"),),
        ),
        **more,
    )


def receipt(reception: str, **more: object) -> Receipt:
    return replace(Receipt(reception=Reception(reception), said="HTTP 500", status=500), **more)


@pytest.fixture
def put(stores: Stores) -> Callable[..., bool]:
    new_id = ids()

    def put(state: str, key: str, *, at: datetime = NOW, **more: Any) -> bool:
        return stores.outbox.put(told(state, key, **more), new_id=new_id, at=at)

    return put


def claimed(stores: Stores, *, at: datetime = LAST, **more: object) -> Delivery | None:
    found = stores.outbox.claim(at=at, **more)
    return found[1] if found else None


def sent(stores: Stores, *, at: datetime = LAST) -> list[str]:
    """Deliver everything that is due; what was told, in its order."""
    said = []
    while (delivery := claimed(stores, at=at)) is not None:
        said.append(delivery.news.announcement.key)
        stores.outbox.settle(delivery.id, receipt("taken"), at=at)
    return said


def test_only_a_change_of_a_lines_state_is_news(stores: Stores, put) -> None:
    stores.outbox.add(channel())
    story = [
        ("pass", True), ("pass", False), ("fail", True), ("fail", False), ("late", True),
        ("pass", True), ("pass_with_exceptions", True), ("errored", True), ("errored", False),
        ("inconclusive", True),
    ]  # fmt: skip
    for number, (state, is_news) in enumerate(story):
        assert put(state, f"k-{number}") is is_news, number
    assert sent(stores) == ["k-0", "k-2", "k-4", "k-5", "k-6", "k-7", "k-9"]


def test_lines_stand_for_themselves(stores: Stores, put) -> None:
    assert put("fail", "a", lineage="one")
    assert put("fail", "b", lineage="two")
    assert not put("fail", "c", lineage="one")


def test_a_verdict_that_is_told_after_a_newer_one_is_no_news(stores: Stores, put) -> None:
    stores.outbox.add(channel())
    assert put("pass", "newer", judged_at=after(60))
    assert not put("fail", "older", judged_at=after(30))
    assert not put("pass", "newest", judged_at=after(90)), "it never stood at FAIL"
    assert not put("fail", "older than the newest", judged_at=after(75))
    assert put("fail", "of its moment", judged_at=after(90))
    assert sent(stores) == ["newer", "of its moment"]


def test_what_tells_of_no_verdict_is_news_whenever_it_comes(stores: Stores, put) -> None:
    assert put("pass", "verdict", judged_at=after(60))
    assert put("late", "deadline")
    assert put("pass", "told after its own deadline", judged_at=after(60))
    assert put("errored", "firing")
    assert not put("fail", "older", judged_at=after(30))


def test_an_older_verdict_does_not_change_the_status_of_its_commit(stores: Stores, put) -> None:
    stores.outbox.add(channel(kind=ChannelKind.GITHUB))
    assert put("pass", "newer", judged_at=after(60), git_sha=SHA)
    assert not put("fail", "older", judged_at=after(30), git_sha=SHA)
    put("fail", "older, of another commit", judged_at=after(30), git_sha="b" * 40)
    assert sent(stores) == ["newer", "older, of another commit"]


def test_news_knows_what_it_was_before(stores: Stores, put) -> None:
    stores.outbox.add(channel())
    for number, state in enumerate(("late", "pass", "fail")):
        put(state, f"k-{number}")
    changes = []
    while (delivery := claimed(stores)) is not None:
        changes.append((delivery.news.change, delivery.news.headline))
        stores.outbox.settle(delivery.id, receipt("taken"), at=NOW)
    assert changes == [
        ("first", "nightly late"),
        ("recovered", "nightly pass (recovered; it was no verdict by the deadline)"),
        ("broken", "nightly fail (it was PASS)"),
    ]


def test_a_key_is_told_once_even_when_it_would_be_news_again(stores: Stores, put) -> None:
    stores.outbox.add(channel())
    assert put("fail", "k-1")
    assert not put("fail", "k-1")
    assert put("pass", "k-2")
    assert not put("fail", "k-1")
    assert sent(stores) == ["k-1", "k-2"]


def test_a_key_longer_than_an_index_takes_is_still_one_key(stores: Stores, put) -> None:
    key = "schedule:" + "ü" * 5000
    assert put("fail", key + "1")
    assert not put("fail", key + "1")
    assert put("pass", key + "2")


def test_many_at_once_with_one_key_tell_it_once(database: Database, database_url: str) -> None:
    database.stores.outbox.add(channel())
    others = [open_database(database_url) for _ in range(3)]
    doors = [database, *others]
    work = [
        lambda one=one, n=n: one.stores.outbox.put(told("fail", "k"), new_id=ids(f"d{n}"), at=NOW)
        for n, one in enumerate(doors)
    ]
    assert sorted(together(work)) == [False] * 3 + [True]
    assert sent(database.stores) == ["k"]
    for one in others:
        one.close()


def test_many_at_once_with_keys_of_their_own_tell_one_change(
    database: Database, database_url: str
) -> None:
    database.stores.outbox.add(channel())
    other = open_database(database_url)
    work = [
        lambda n=n: (database, other)[n % 2].stores.outbox.put(
            told("fail", f"k-{n}"), new_id=ids(f"d{n}"), at=NOW
        )
        for n in range(6)
    ]
    assert sorted(together(work)) == [False] * 5 + [True]
    assert len(sent(database.stores)) == 1
    other.close()


def test_a_name_is_given_once(stores: Stores) -> None:
    assert stores.outbox.add(channel(1))
    assert not stores.outbox.add(channel(2, name="channel 1"))
    assert [one.id for one, _ in stores.outbox.channels()] == ["c-1"]


def test_channels_take_the_lines_that_they_name(stores: Stores, put) -> None:
    stores.outbox.add(channel(1, lineages=("nightly*", "main")))
    stores.outbox.add(channel(2))
    put("fail", "a", lineage="nightly-tpu")
    put("fail", "b", lineage="release")
    got: dict[str, list[str]] = {}
    while (found := stores.outbox.claim(at=LAST)) is not None:
        got.setdefault(found[0].id, []).append(found[1].news.announcement.key)
        stores.outbox.settle(found[1].id, receipt("taken"), at=NOW)
    assert got == {"c-1": ["a"], "c-2": ["a", "b"]}


def test_a_commits_status_is_told_for_every_commit(stores: Stores, put) -> None:
    stores.outbox.add(channel(1, ChannelKind.GITHUB, token_from="env:GITHUB_TOKEN"))
    other = "b" * 40
    assert put("fail", "a", git_sha=SHA, gate="release")
    assert not put("fail", "b", git_sha=SHA, gate="release")
    assert not put("fail", "c", git_sha=other, gate="release")
    assert put("pass", "d", git_sha=other, gate="release")
    assert put("pass", "e", lineage="manual", git_sha=other, gate="release")
    assert put("fail", "f", gate="release")
    assert put("pass", "g", git_sha="main", gate="release")
    assert not put("pass", "h", git_sha="c" * 40, repository="https://github.com/else/lib.git")
    assert not put("pass", "i", git_sha="c" * 40, repository="git@github.com:ACME/lib.git")
    assert sent(stores) == ["a", "c", "d", "i"]


def test_pending_becomes_error_once_nobody_tries_again(stores: Stores, put) -> None:
    stores.outbox.add(channel(1, ChannelKind.GITHUB, token_from="env:GITHUB_TOKEN"))
    assert put("inconclusive", "a", git_sha=SHA, retryable="true")
    assert not put("inconclusive", "b", git_sha=SHA)
    assert sent(stores) == ["a", "b"]


def test_a_claimed_delivery_is_nobody_elses_until_the_lease_is_over(stores: Stores, put) -> None:
    stores.outbox.add(channel())
    put("fail", "k")
    first = claimed(stores)
    assert first is not None
    assert claimed(stores) is None
    stores.outbox.settle(first.id, receipt("failed"), at=NOW)
    assert claimed(stores, at=NOW) is None
    again = claimed(stores, lease_s=0)
    assert again is not None
    assert (again.id, again.attempts) == (first.id, 1)
    taken_over = claimed(stores)
    assert taken_over is not None
    assert taken_over.id == first.id


def test_the_lease_does_not_ask_the_callers_clock(stores: Stores, put) -> None:
    stores.outbox.add(channel())
    put("fail", "k")
    assert claimed(stores, at=NOW) is not None
    for skew_s in (-3600, 600, 86_400):
        assert claimed(stores, at=after(skew_s)) is None


def test_two_who_claim_at_once_get_different_deliveries(
    database: Database, database_url: str, put
) -> None:
    other = open_database(database_url)
    database.stores.outbox.add(channel())
    for number in range(4):
        put("fail", f"k-{number}", lineage=f"l-{number}")
    work = [lambda n=n: claimed((database, other)[n % 2].stores) for n in range(4)]
    got = [one.id for one in together(work) if isinstance(one, Delivery)]
    assert len(got) == len(set(got))
    assert len(got) >= 1
    other.close()


def test_news_of_one_line_come_in_order_and_hold_up_no_other(stores: Stores, put) -> None:
    stores.outbox.add(channel())
    put("fail", "k-1")
    put("pass", "k-2")
    put("fail", "other", lineage="else")
    first = claimed(stores, at=NOW)
    assert first is not None
    stores.outbox.settle(first.id, receipt("failed"), at=NOW)
    second = claimed(stores, at=NOW)
    assert second is not None
    assert second.news.announcement.key == "other"
    stores.outbox.settle(second.id, receipt("taken"), at=NOW)
    assert claimed(stores, at=NOW) is None
    assert sent(stores, at=after(60)) == ["k-1", "k-2"]


def test_it_is_given_up_after_days_and_the_channel_shown_as_failing(stores: Stores, put) -> None:
    stores.outbox.add(channel())
    put("fail", "k")
    at, looks = NOW, 0
    while (delivery := claimed(stores, at=at)) is not None:
        looks += 1
        stores.outbox.settle(delivery.id, receipt("failed"), at=at)
        [(waiting, _)] = stores.outbox.log("c-1", limit=9)
        at = waiting.due_at if waiting.state is DeliveryState.WAITING else at
        if waiting.state is not DeliveryState.WAITING:
            break
    [(given_up, attempts)] = stores.outbox.log("c-1", limit=9)
    assert given_up.state is DeliveryState.GIVEN_UP
    assert [one.number for one in attempts] == list(range(1, looks + 1))
    assert GIVE_UP_AFTER <= at - NOW < GIVE_UP_AFTER + timedelta(hours=8)
    assert 15 <= looks <= 25
    [(_, health)] = stores.outbox.channels()
    assert (health.state, health.failing_since, health.waiting) == ("failing", NOW, 0)
    put("pass", "k-2")
    assert sent(stores) == ["k-2"]
    [(_, health)] = stores.outbox.channels()
    assert (health.state, health.last_ok_at) == ("ok", LAST)


def test_who_is_gone_is_told_nothing_more_until_a_test_gets_through(stores: Stores, put) -> None:
    stores.outbox.add(channel())
    put("fail", "k-1")
    put("fail", "k-2", lineage="else")
    gone = claimed(stores)
    assert gone is not None
    stores.outbox.settle(gone.id, receipt("gone", said="HTTP 410"), at=after(5))
    [(_, health)] = stores.outbox.channels()
    assert (health.state, health.disabled_why, health.waiting) == ("disabled", "HTTP 410", 0)
    assert {one.state for one, _ in stores.outbox.log("c-1", limit=9)} == {DeliveryState.DROPPED}
    assert put("pass", "k-3")
    assert claimed(stores) is None
    test = replace(gone, id="test-1", is_test=True)
    stores.outbox.record_test(test, receipt("failed"), at=after(6))
    assert stores.outbox.channels()[0][1].state == "disabled"
    stores.outbox.record_test(replace(test, id="test-2"), receipt("taken"), at=after(7))
    assert stores.outbox.channels()[0][1].state == "ok"
    assert put("fail", "k-4")
    assert sent(stores) == ["k-4"]


def test_what_is_refused_is_not_tried_again(stores: Stores, put) -> None:
    stores.outbox.add(channel())
    put("fail", "k")
    delivery = claimed(stores)
    assert delivery is not None
    stores.outbox.settle(delivery.id, receipt("refused"), at=NOW)
    assert claimed(stores) is None


def test_a_late_answer_changes_nothing_that_is_done(stores: Stores, put) -> None:
    stores.outbox.add(channel())
    put("fail", "k")
    delivery = claimed(stores)
    assert delivery is not None
    stores.outbox.settle(delivery.id, receipt("taken"), at=NOW)
    stores.outbox.settle(delivery.id, receipt("failed"), at=after(1))
    stores.outbox.settle("unknown", receipt("failed"), at=after(1))
    [(known, attempts)] = stores.outbox.log("c-1", limit=9)
    assert (known.state, len(attempts)) == (DeliveryState.DELIVERED, 2)


def test_a_channel_that_fails_can_be_left_alone(stores: Stores, put) -> None:
    for number in (1, 2):
        stores.outbox.add(channel(number))
    put("fail", "k")
    found = stores.outbox.claim(at=LAST, but_not={"c-1"})
    assert found is not None
    assert found[0].id == "c-2"


def test_secrets_overlap(stores: Stores) -> None:
    stores.outbox.add(channel())
    for name, until in (("dHdv", after(100)), ("dGhyZWU=", after(200))):
        stores.outbox.renew("c-1", Secret(f"whsec_{name}"), until=until)
    kept = stores.outbox.channel("c-1")
    assert kept is not None
    assert kept.signing(after(150)) == ("whsec_dGhyZWU=", "whsec_dHdv")
    assert kept.signing(after(200)) == ("whsec_dGhyZWU=",)
    assert stores.outbox.renew("none", Secret("whsec_"), until=NOW) is None


def test_a_channel_is_forgotten_with_all_that_is_its(stores: Stores, put) -> None:
    for number in (1, 2):
        stores.outbox.add(channel(number))
    put("fail", "k")
    delivery = claimed(stores)
    assert delivery is not None
    stores.outbox.settle(delivery.id, receipt("failed"), at=NOW)
    assert stores.outbox.remove("c-1")
    assert not stores.outbox.remove("c-1")
    assert stores.outbox.channel("c-1") is None
    assert stores.outbox.log("c-1", limit=9) == []
    stores.outbox.settle(delivery.id, receipt("taken"), at=NOW)
    assert [one.id for one, _ in stores.outbox.channels()] == ["c-2"]


def test_hostile_words_are_kept(stores: Stores) -> None:
    stores.outbox.add(channel())
    words = "test_[\x00\ud800\u202e<script>|`]"
    hostile = replace(told("fail", "k\x00\ud800"), title=words, text=words, facts={"a": words})
    assert stores.outbox.put(hostile, new_id=ids(), at=NOW)
    delivery = claimed(stores)
    assert delivery is not None
    assert "\x00" not in delivery.news.announcement.title
    assert "<script>" in delivery.news.announcement.title
