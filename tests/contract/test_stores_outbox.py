"""The outbox: who is told of news, in order, and that it is never lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from orchestrator.domain.channel import GIVE_UP_AFTER, ChannelSecret, Delivery, DeliveryState
from orchestrator.store.database import Database, open_database
from orchestrator.store.stores import Stores
from tests.contract.outbox_cases import LAST, channel, claimed, ids, putting, receipt, sent, told
from tests.databases import NOW, after, together


@pytest.fixture
def put(stores: Stores) -> Callable[..., bool]:
    return putting(stores)


def test_a_name_is_given_once(stores: Stores) -> None:
    assert stores.outbox.add(channel(1))
    assert not stores.outbox.add(channel(2, name="channel 1"))
    assert [one.id for one, _ in stores.outbox.channels()] == ["c-1"]


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
    stores.outbox.settle(second.id, receipt("accepted"), at=NOW)
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
    assert given_up.state is DeliveryState.FAILED
    assert [one.number for one in attempts] == list(range(1, looks + 1))
    assert GIVE_UP_AFTER <= at - NOW < GIVE_UP_AFTER + timedelta(hours=8)
    assert 15 <= looks <= 25
    [(_, health)] = stores.outbox.channels()
    assert (health.state, health.failing_since, health.waiting) == ("failing", NOW, 0)
    put("pass", "k-2")
    assert sent(stores) == ["k-2"]
    [(_, health)] = stores.outbox.channels()
    assert (health.state, health.last_success_at) == ("ok", LAST)


def test_who_is_gone_is_told_nothing_more_until_a_test_gets_through(stores: Stores, put) -> None:
    stores.outbox.add(channel())
    put("fail", "k-1")
    put("fail", "k-2", lineage="else")
    gone = claimed(stores)
    assert gone is not None
    stores.outbox.settle(gone.id, receipt("gone", response_excerpt="HTTP 410"), at=after(5))
    [(_, health)] = stores.outbox.channels()
    assert (health.state, health.disabled_reason, health.waiting) == ("disabled", "HTTP 410", 0)
    assert {one.state for one, _ in stores.outbox.log("c-1", limit=9)} == {DeliveryState.DISCARDED}
    assert put("pass", "k-3")
    assert claimed(stores) is None
    test = replace(gone, id="test-1", is_test=True)
    stores.outbox.record_test(test, receipt("failed"), at=after(6))
    assert stores.outbox.channels()[0][1].state == "disabled"
    stores.outbox.record_test(replace(test, id="test-2"), receipt("accepted"), at=after(7))
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
    stores.outbox.settle(delivery.id, receipt("accepted"), at=NOW)
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
        stores.outbox.renew("c-1", ChannelSecret(f"whsec_{name}"), until=until)
    kept = stores.outbox.channel("c-1")
    assert kept is not None
    assert kept.signing(after(150)) == ("whsec_dGhyZWU=", "whsec_dHdv")
    assert kept.signing(after(200)) == ("whsec_dGhyZWU=",)
    assert stores.outbox.renew("none", ChannelSecret("whsec_"), until=NOW) is None


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
    stores.outbox.settle(delivery.id, receipt("accepted"), at=NOW)
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
