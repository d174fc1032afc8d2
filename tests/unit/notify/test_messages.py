"""What is sent: bodies, signatures and statuses, with words that are anybody's."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone

import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from orchestrator.adapters.guarded_http import GuardedResponse
from orchestrator.adapters.notification_sender import (
    delivery_answer,
    new_secret,
    signed_headers,
    slack_body,
    status_request,
    web_link,
    webhook_body,
)
from orchestrator.domain.channel import (
    Announcement,
    Channel,
    ChannelKind,
    Delivery,
    DeliveryResult,
    DeliveryState,
    LineageState,
    News,
)

NOW = datetime(2026, 3, 1, 3, 0, tzinfo=UTC)
SHA = "0123456789abcdef0123456789abcdef01234567"
HOSTILE = "<!channel> & <https://evil|click> *b* `x` \x1b[31m\u202e\x00 ${jndi} |\r\nsecond"


def delivery(
    state: str = "fail", previous: str | None = "pass", *, facts: dict[str, str] | None = None,
    **more: str,
) -> Delivery:  # fmt: skip
    told = Announcement(
        lineage="nightly",
        state=LineageState(state),
        title="The nightly says FAIL",
        text="tests/test_moe.py failed on aws-a10g",
        url="https://trials.example/gates/release",
        at=NOW,
        key="k",
        facts=facts or {},
    )
    return Delivery(
        id="01jmessage",
        channel="c",
        news=News(
            announcement=replace(told, **more),
            previous=LineageState(previous) if previous else None,
        ),
        state=DeliveryState.WAITING,
        created_at=NOW,
        attempts=0,
        due_at=NOW,
    )


def github(**more: object) -> Channel:
    return replace(
        Channel(
            id="c", name="c", kind=ChannelKind.GITHUB, target="acme/lib", created_at=NOW,
            token_from="env:GITHUB_TOKEN",
        ),
        **more,
    )  # fmt: skip


def test_a_body_for_programs() -> None:
    said = json.loads(webhook_body(delivery(facts={"verdict": "V-0001"})))
    assert said == {
        "type": "gate.state_changed",
        "timestamp": "2026-03-01T03:00:00+00:00",
        "data": {
            "lineage": "nightly", "state": "fail", "previous": "pass", "change": "broken",
            "title": "The nightly says FAIL", "text": "tests/test_moe.py failed on aws-a10g",
            "url": "https://trials.example/gates/release", "facts": {"verdict": "V-0001"},
        },
    }  # fmt: skip
    assert json.loads(webhook_body(replace(delivery(), is_test=True)))["type"] == "test"


def test_hostile_words_stay_words() -> None:
    one = delivery(title=HOSTILE, text=HOSTILE, url="javascript:alert(1)", facts={"runs": HOSTILE})
    raw = webhook_body(one)
    assert raw.isascii()
    data = json.loads(raw)["data"]
    assert "\n" not in data["title"]
    assert "second" in data["text"].splitlines()[-1]
    assert data["url"] == ""
    slack = json.loads(slack_body(one))
    assert slack["mrkdwn"] is False
    assert slack["link_names"] is False
    for sign in ("<", "\x1b", "\u202e", "\x00"):
        assert sign not in slack["text"]
    assert "&lt;!channel&gt; &amp; &lt;https://evil|click&gt;" in slack["text"]
    status = json.loads(status_request(github(), replace_sha(one), token="t", headers={}).body)
    assert "\n" not in status["description"]


def replace_sha(one: Delivery) -> Delivery:
    told = replace(one.news.announcement, facts={"git_sha": SHA, "gate": HOSTILE})
    return replace(one, news=replace(one.news, announcement=told))


def test_lengths_are_bounded() -> None:
    long = "💥" * 100_000
    one = delivery(title=long, text=long, url="https://x/" + long, facts={"a": long})
    assert len(webhook_body(one)) < 60_000
    assert len(json.loads(slack_body(one))["text"]) < 4_000
    status = json.loads(status_request(github(), replace_sha(one), token="t", headers={}).body)
    assert len(status["description"]) <= 140
    assert len(status["context"]) <= 120
    assert max(status["description"]) <= "\uffff"


@pytest.mark.parametrize(
    ("url", "kept"),
    [
        ("https://a.example/b?c=d", True), ("http://10.0.0.1:8470/x", True), ("", False),
        ("javascript:alert(1)", False), ("/gates/release", False), ("https://a b", False),
        ("https://ä.example/", False), ("https://a\n.example", False),
    ],
)  # fmt: skip
def test_links(url: str, kept: bool) -> None:
    assert web_link(url) == (url if kept else "")


def test_two_secrets_sign_while_one_replaces_the_other() -> None:
    old, new, other = new_secret(), new_secret(), new_secret()
    body = webhook_body(delivery())
    at = datetime.now(UTC)
    headers = signed_headers("01jx", body, keys=(new, old), now=at)
    for known in (old, new):
        assert Webhook(known).verify(body, headers)["type"] == "gate.state_changed"
    with pytest.raises(WebhookVerificationError):
        Webhook(other).verify(body, headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(new).verify(body + " ", headers)
    assert headers["webhook-id"] == "01jx"


def test_a_time_of_another_zone_signs_the_same() -> None:
    secret = new_secret()
    there = NOW.astimezone(timezone(timedelta(hours=-7)))
    here = signed_headers("m", "{}", keys=(secret,), now=NOW)
    assert signed_headers("m", "{}", keys=(secret,), now=there) == here


@pytest.mark.parametrize(
    ("state", "facts", "word", "begins"),
    [
        ("pass", {}, "success", "PASS: "),
        ("pass_with_exceptions", {}, "success", "PASS with exceptions: "),
        ("fail", {}, "failure", "FAIL: "),
        ("inconclusive", {}, "error", "INCONCLUSIVE: "),
        ("inconclusive", {"retryable": "true"}, "pending", "INCONCLUSIVE: "),
        ("late", {}, "pending", "no verdict by the deadline: "),
        ("errored", {}, "error", "the firing failed: "),
    ],
)
def test_states_of_commits(state: str, facts: dict[str, str], word: str, begins: str) -> None:
    one = delivery(state, facts={"git_sha": SHA, "gate": "release", **facts})
    request = status_request(github(), one, token="t0ken", headers={})
    assert (request.method, request.url) == (
        "POST",
        f"https://api.github.com/repos/acme/lib/statuses/{SHA}",
    )
    said = json.loads(request.body)
    assert said["state"] == word
    assert said["description"].startswith(begins)
    assert said["context"] == "seatrial/release"
    assert said["target_url"] == "https://trials.example/gates/release"
    assert request.headers["Authorization"] == "Bearer t0ken"
    assert "t0ken" not in repr(request.body)


def test_a_github_of_ones_own() -> None:
    ours = github(api_base="https://github.example.org/api/v3/")
    request = status_request(ours, delivery(facts={}), token="t", headers={})
    assert (request.method, request.url) == (
        "GET",
        "https://github.example.org/api/v3/repos/acme/lib",
    )


@pytest.mark.parametrize(
    ("status", "headers", "result", "retry_after_s"),
    [
        (200, {}, "accepted", None), (204, {}, "accepted", None), (410, {}, "gone", None),
        (301, {"location": "http://169.254.169.254/"}, "failed", None),
        (404, {}, "failed", None), (500, {}, "failed", None), (422, {}, "refused", None),
        (429, {"retry-after": "120"}, "failed", 120.0),
        (503, {"retry-after": "Sun, 01 Mar 2026 03:05:00 GMT"}, "failed", 300.0),
        (503, {"retry-after": "Sun, 01 Mar 2020 03:05:00 GMT"}, "failed", 0.0),
        (503, {"retry-after": "soon"}, "failed", None),
        (503, {"retry-after": f"Sun, 01 Mar {9**40} 03:05:00 GMT"}, "failed", None),
        (503, {"retry-after": "9" * 400}, "failed", 999_999_999.0),
        (403, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "1772334060"}, "failed", 60.0),
        (403, {"x-ratelimit-remaining": "0", "x-ratelimit-reset": "x"}, "failed", None),
    ],
)  # fmt: skip
def test_answers(
    status: int, headers: dict[str, str], result: str, retry_after_s: float | None
) -> None:
    answer = GuardedResponse(status, headers, b"<b>no\x1b[2J\nmore</b>")
    receipt = delivery_answer(answer, now=NOW, refused=frozenset({422}))
    assert receipt.result == DeliveryResult(result)
    assert receipt.retry_after_s == retry_after_s
    assert "\n" not in receipt.response_excerpt
    assert "\x1b" not in receipt.response_excerpt
    assert receipt.response_excerpt.startswith(f"HTTP {status}")
