"""Channels over REST: what may be asked, what is shown, and that secrets are shown once."""

from __future__ import annotations

import pytest

from orchestrator.application.channels import deliver, notify_people
from orchestrator.domain.channel import Announcement, LineageState
from orchestrator.domain.schedule import Schedule
from tests.integration import gate_world
from tests.integration.api_context import Desk
from tests.integration.webhook_receiver import Receiver, Reply

API = "/api/v1/channels"
ONCE = ("secret", "unmatched_lineages", "present_lineages")
"""What only the answer to a new channel has."""


def made(api: Desk, url: str, **more: object) -> dict[str, object]:
    body = {"name": "room", "target": url, "allow_private": True, **more}
    answer = api.client.post(API, json=body)
    assert answer.status_code == 201, answer.text
    said: dict[str, object] = answer.json()
    return said


def tell(api: Desk, state: str, key: str, title: str = "nightly") -> None:
    notify_people(
        api.context,
        Announcement(
            lineage="nightly", state=LineageState(state), title=title, text="", url="",
            at=api.clock.now(), key=key,
        ),
    )  # fmt: skip


def test_a_channel_is_added_tested_renewed_and_removed(api: Desk, hook: Receiver) -> None:
    channel = made(api, hook.url + "?token=hush")
    secret = str(channel["secret"])
    assert secret.startswith("whsec_")
    listed = api.client.get(API)
    assert secret not in listed.text
    assert "hush" not in listed.text
    (shown,) = listed.json()["items"]
    assert shown == {key: value for key, value in channel.items() if key not in ONCE}
    assert (shown["state"], shown["target"]) == ("ok", f"http://127.0.0.1:{hook.port}/…")
    tried = api.client.post(f"{API}/room/test")
    assert (tried.status_code, tried.json()["result"]) == (200, "accepted")
    renewed = api.client.post(f"{API}/{channel['id']}/rotate", json={"overlap_hours": 1}).json()
    assert renewed["secret"] not in (secret, None)
    assert renewed["old_until"] == "2026-03-01T13:00:00Z"
    assert api.client.get(API).json()["items"][0]["signing_secrets"] == 2
    api.clock.move(hours=2)
    assert api.client.get(API).json()["items"][0]["signing_secrets"] == 1
    assert api.client.delete(f"{API}/room").status_code == 204
    assert api.client.delete(f"{API}/room").status_code == 404
    assert api.client.get(API).json() == {"items": []}


def test_a_pattern_of_no_lineage_is_said(api: Desk) -> None:
    gate_world.put(api)
    nightly = Schedule(
        name="nightly",
        cron="0 2 * * *",
        tz="UTC",
        owner="ann",
        matrix=gate_world.MATRIX,
        gate="release",
        created_at=api.clock.now(),
    )
    api.context.stores.schedules.add(nightly, next_due_at=api.clock.now())
    patterns = ["nightly*", "release", "release@*"]
    channel = made(api, "https://hooks.example.org/x", lineages=patterns)
    assert channel["unmatched_lineages"] == ["nightly*"]
    assert channel["present_lineages"] == ["release", "release@nightly"]


def test_the_log_tells_of_every_attempt(api: Desk, hook: Receiver) -> None:
    hook.replies = [Reply(503, body=b"<html>later"), Reply()]
    made(api, hook.url)
    tell(api, "fail", "k-1", "a | b\n<script>")
    deliver(api.context)
    (waiting,) = api.client.get(f"{API}/room/deliveries").json()["items"]
    assert (waiting["state"], waiting["lineage_state"], waiting["previous"]) == (
        "waiting", "fail", None,
    )  # fmt: skip
    assert waiting["due_at"] is not None
    api.clock.move(minutes=1)
    deliver(api.context)
    (done,) = api.client.get(f"{API}/room/deliveries").json()["items"]
    assert (done["state"], done["due_at"]) == ("delivered", None)
    told = [(one["number"], one["receipt"]) for one in done["attempts"]]
    assert [(n, receipt["status"], receipt["response_excerpt"]) for n, receipt in told] == [
        (1, 503, "HTTP 503: <html>later"), (2, 200, "HTTP 200"),
    ]  # fmt: skip
    tell(api, "pass", "k-2")
    assert len(api.client.get(f"{API}/room/deliveries?limit=1").json()["items"]) == 1
    figures = api.client.get("/metrics").text
    assert 'seatrial_deliveries{state="delivered"} 1.0' in figures
    assert 'seatrial_channels{state="ok"} 1.0' in figures


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"target": "http://x.example/"}, "/target"),
        ({"target": "https://u:p@x.example/"}, "/target"),
        ({"kind": "mail", "target": "https://x.example/"}, "/kind"),
        ({"kind": "github", "target": "a/b"}, "/token_from"),
        ({"kind": "github", "target": "a/b", "token_from": "env:AWS_SECRET"}, "/token_from"),
        ({"name": "a b", "target": "https://x.example/"}, "/name"),
        ({"name": "../x", "target": "https://x.example/"}, "/name"),
        ({"target": "https://x.example/", "lineages": [""]}, "/lineages/0"),
        ({"target": "https://x.example/", "secret": "whsec_mine"}, "/secret"),
        ({"target": "https://x.example/" + "x" * 3000}, "/target"),
    ],
)
def test_a_bad_channel_is_refused_and_nothing_is_stored(
    shared_api: Desk, body: dict[str, object], pointer: str
) -> None:
    answer = shared_api.client.post(API, json={"name": "room", **body})
    assert answer.status_code == 422, answer.text
    assert [error["pointer"] for error in answer.json()["errors"]] == [pointer]
    assert shared_api.client.get(API).json() == {"items": []}


def test_a_name_is_given_once(api: Desk, hook: Receiver) -> None:
    made(api, hook.url)
    again = api.client.post(API, json={"name": "room", "target": "https://x.example/"})
    assert (again.status_code, again.json()["errors"][0]["pointer"]) == (422, "/name")


def test_githubs_channels_have_no_secret_of_ours(api: Desk) -> None:
    body = {"kind": "github", "target": "acme/lib", "token_from": "env:GITHUB_TOKEN"}
    answer = api.client.post(API, json={"name": "commits", **body}).json()
    assert answer["secret"] is None
    refused = api.client.post(f"{API}/commits/rotate")
    assert refused.status_code == 422
    assert "renew the token where it is kept" in refused.json()["detail"]
    tried = api.client.post(f"{API}/commits/test", json={"git_sha": "main"})
    assert tried.status_code == 422


def test_a_receiver_inside_is_refused_by_name_when_it_is_told(api: Desk, hook: Receiver) -> None:
    body = {"name": "sneaky", "target": f"https://localhost:{hook.port}/"}
    assert api.client.post(API, json=body).status_code == 201
    said = api.client.post(f"{API}/sneaky/test").json()
    assert said["result"] == "failed"
    assert "--allow-private" in said["response_excerpt"]
    assert hook.received == []


def test_figures_count_requests_by_operation(api: Desk) -> None:
    client = api.with_token("read")
    for path in ("/api/v1/runs", "/api/v1/runs/nope", "/api/v1/runs/other", "/nowhere/x", "/"):
        client.get(path)
    lines = client.get("/metrics").text.splitlines()
    counted = [line for line in lines if line.startswith("seatrial_http_requests_total{")]
    assert sorted(counted) == [
        'seatrial_http_requests_total{method="GET",operation="",status="404"} 2.0',
        'seatrial_http_requests_total{method="GET",operation="list_runs",status="200"} 1.0',
        'seatrial_http_requests_total{method="GET",operation="show_run",status="404"} 2.0',
    ]
    assert any(
        'seatrial_http_request_duration_seconds_count{method="GET",operation="list_runs"} 1.0' in x
        for x in lines
    )
    assert any(line.startswith('seatrial_build_info{python="3.') for line in lines)
