"""Channels: what one may be, and when a delivery is tried again."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from orchestrator.domain.channel import (
    GIVE_UP_AFTER,
    Announcement,
    Channel,
    ChannelKind,
    ChannelSecret,
    Delivery,
    DeliveryReceipt,
    DeliveryResult,
    DeliveryState,
    LineageState,
    News,
    next_look,
    problems_of,
)
from orchestrator.domain.gate.verdict import Decision

NOW = datetime(2026, 3, 1, 3, 0, tzinfo=UTC)
FAILED = DeliveryReceipt(result=DeliveryResult.FAILED, response_excerpt="no answer")


def channel(target: str, kind: str = "webhook", **more: object) -> Channel:
    one = Channel(id="c", name="c", kind=ChannelKind(kind), target=target, created_at=NOW)
    return replace(one, **more)


def delivery(number: int, attempts: int, *, age_s: float = 0) -> Delivery:
    told = Announcement(
        lineage="l", state=LineageState.FAIL, title="t", text="", url="", at=NOW, key="k"
    )
    return Delivery(
        id=f"d-{number}", channel="c", news=News(announcement=told, previous=None),
        state=DeliveryState.WAITING, created_at=NOW - timedelta(seconds=age_s), attempts=attempts,
        due_at=NOW,
    )  # fmt: skip


def wait_s(one: Delivery, receipt: DeliveryReceipt = FAILED) -> float:
    look = next_look(one, receipt, NOW)
    assert look is not None
    return (look - NOW).total_seconds()


def test_every_decision_is_a_state() -> None:
    assert {LineageState.from_decision(one) for one in Decision} == {
        LineageState.PASS, LineageState.PASS_WITH_EXCEPTIONS, LineageState.FAIL,
        LineageState.INCONCLUSIVE,
    }  # fmt: skip


@pytest.mark.parametrize(
    "good",
    [
        channel("https://hooks.example.org/x?token=1"),
        channel("http://10.0.0.5:9000/x", allow_private=True),
        channel("https://hooks.slack.com/services/T0/B0/x", "slack"),
        channel("acme/lib.git-2", "github", token_from="env:GITHUB_TOKEN"),
        channel("acme/lib", "github", token_from="file:github-token"),
        channel("acme/lib", "github", token_from="env:SEATRIAL_GITHUB_TOKEN"),
    ],
)
def test_a_good_channel(good: Channel) -> None:
    assert list(problems_of(good)) == []


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        (channel("ftp://x/"), "target"), (channel("https://"), "target"), (channel("x"), "target"),
        (channel("https://a:b@x/"), "target"), (channel("https://x\\@y/"), "target"),
        (channel("https://x/#y"), "target"), (channel("https://x:0/"), "target"),
        (channel("https://x:99999/"), "target"), (channel("https://[::1/"), "target"),
        (channel("http://hooks.example.org/x"), "target"), (channel("https://ä/"), "target"),
        (channel("https://x/", token_from="env:GITHUB_TOKEN"), "token_from"),
        (channel("acme", "github", token_from="env:GITHUB_TOKEN"), "target"),
        (channel("acme/../x", "github", token_from="env:GITHUB_TOKEN"), "target"),
        (channel("acme/lib", "github"), "token_from"),
        (channel("acme/lib", "github", token_from="env:AWS_SECRET_ACCESS_KEY"), "token_from"),
        (channel("acme/lib", "github", token_from="env:SEATRIAL_DATABASE_URL"), "token_from"),
        (channel("acme/lib", "github", token_from="file:../token"), "token_from"),
        (channel("acme/lib", "github", token_from="file:/etc/passwd"), "token_from"),
        (channel("acme/lib", "github", token_from="ghp_secret"), "token_from"),
        (
            channel("acme/lib", "github", token_from="env:GH_TOKEN", api_base="http://gh.example"),
            "api_base",
        ),
    ],
)  # fmt: skip
def test_a_bad_channel(bad: Channel, field: str) -> None:
    assert [name for name, _ in problems_of(bad)] == [field]


def test_what_follows_the_host_is_not_shown() -> None:
    assert channel("https://hooks.slack.com/services/T/B/x", "slack").shown_target == (
        "https://hooks.slack.com/…"
    )
    assert "secret" not in channel("https://x.example:8/secret?secret=1").shown_target


def test_waits_grow_to_hours_and_are_spread() -> None:
    waits = [wait_s(delivery(1, attempts)) for attempts in range(30)]
    assert 4 <= waits[0] <= 6
    assert all(a < b for a, b in pairwise(waits[:8]))
    assert max(waits) <= 6 * 3600 * 1.2
    assert wait_s(delivery(1, 4)) == waits[4]
    spread = {wait_s(delivery(number, 3)) for number in range(50)}
    assert len(spread) == 50
    assert max(spread) / min(spread) < 1.51


def test_a_receivers_wish_counts_where_it_is_longer() -> None:
    assert wait_s(delivery(1, 0), replace(FAILED, retry_after_s=120.0)) == 120
    assert wait_s(delivery(1, 0), replace(FAILED, retry_after_s=1e12)) == 6 * 3600
    assert wait_s(delivery(1, 5), replace(FAILED, retry_after_s=1.0)) > 900


def test_what_is_not_tried_again() -> None:
    for result in ("accepted", "refused", "gone"):
        receipt = DeliveryReceipt(result=DeliveryResult(result), response_excerpt="")
        assert next_look(delivery(1, 0), receipt, NOW) is None
    old = delivery(1, 3, age_s=GIVE_UP_AFTER.total_seconds())
    assert next_look(old, FAILED, NOW) is None


def test_secrets_end() -> None:
    one = channel("https://x/", secrets=(ChannelSecret("new"), ChannelSecret("old", NOW)))
    assert one.signing(NOW - timedelta(seconds=1)) == ("new", "old")
    assert one.signing(NOW) == ("new",)
