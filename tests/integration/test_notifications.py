"""News on its way: from an announcement to a real receiver, and what is done when it fails."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import cast

import pytest
from standardwebhooks.webhooks import WebhookVerificationError

from orchestrator.adapters.clock import new_id
from orchestrator.adapters.guarded_http import GuardedHttp
from orchestrator.adapters.notification_sender import HttpSender
from orchestrator.application.channels import (
    NewChannel,
    add_channel,
    call_channel,
    deliver,
    notify_people,
    renew_secret,
)
from orchestrator.application.context import Context, GatePorts
from orchestrator.domain.channel import (
    Announcement,
    Channel,
    ChannelKind,
    DeliveryResult,
    DeliveryState,
    LineageState,
)
from orchestrator.domain.document_problems import InvalidDocumentError
from orchestrator.store.database import Database
from tests.databases import ON_SQLITE
from tests.integration.webhook_receiver import Receiver, Reply, receiver
from tests.ssh_hosts import free_port

ROOT = Path(__file__).parents[2]
SHA = "f" * 40
pytestmark = ON_SQLITE  # the outbox is asked of both by its own tests
TOKEN = "ghp_of_the_tests"


@dataclass(slots=True)
class Movable:
    """The real time, as receivers check it, and a little of it at a time."""

    ahead: timedelta = timedelta(0)

    def now(self) -> datetime:
        return datetime.now(UTC) + self.ahead


@dataclass(frozen=True, slots=True)
class Ports:
    """What telling people needs of a context."""

    stores: object
    clock: Movable
    new_id: object
    gate: object


@dataclass(frozen=True, slots=True)
class Gate:
    sender: HttpSender


def context_of(
    database: Database, keys: Path | None = None, wire: GuardedHttp | None = None
) -> Context:
    secret = {"GITHUB_TOKEN": TOKEN}.get
    sender = HttpSender(secret=secret, keys=keys, wire=wire or GuardedHttp())
    gate = cast(GatePorts, Gate(sender))
    return cast(Context, Ports(database.stores, Movable(), new_id, gate))


@pytest.fixture
def context(database: Database, tmp_path: Path) -> Context:
    return context_of(database, tmp_path)


def add(context: Context, url: str, kind: str = "webhook", **more: object) -> tuple[Channel, str]:
    given = {"name": "room", "allow_private": True, **more}
    new = NewChannel(kind=ChannelKind(kind), target=url, **given)
    channel, secret = add_channel(context, new)
    return channel, secret or ""


def tell(context: Context, state: str, key: str, lineage: str = "nightly", **facts: str) -> bool:
    return notify_people(
        context,
        Announcement(
            lineage=lineage, state=LineageState(state), title=f"{lineage}: {state}", text="why",
            url="https://trials.example/", at=context.clock.now(), key=key, facts=facts,
        ),
    )  # fmt: skip


def later(context: Context, **by: float) -> None:
    cast(Movable, context.clock).ahead += timedelta(**by)


def log(context: Context, channel: Channel) -> list[tuple[str, list[str]]]:
    found = context.stores.outbox.log(channel.id, limit=50)
    return [(one.state.value, [a.receipt.result.value for a in tried]) for one, tried in found]


def test_a_receiver_can_prove_who_told_it(context: Context, hook: Receiver) -> None:
    channel, secret = add(context, hook.url)
    assert tell(context, "fail", "k-1", verdict="V-0001")
    assert not tell(context, "fail", "k-1b")
    assert tell(context, "pass", "k-2")
    deliver(context)
    first, second = (cast(dict, one.verified(secret)) for one in hook.received)
    assert (first["data"]["state"], first["data"]["change"]) == ("fail", "first")
    assert first["data"]["facts"] == {"verdict": "V-0001"}
    assert (second["data"]["previous"], second["data"]["change"]) == ("fail", "recovered")
    assert [one.headers["content-type"] for one in hook.received] == ["application/json"] * 2
    assert hook.received[0].headers["user-agent"].startswith("seatrial/")
    with pytest.raises(WebhookVerificationError):
        hook.received[0].verified("whsec_b3RoZXI=")
    assert log(context, channel) == [("delivered", ["accepted"])] * 2
    deliver(context)
    assert len(hook.received) == 2


def test_it_is_tried_again_with_the_same_id(context: Context, hook: Receiver) -> None:
    hook.replies = [Reply(500, body=b"\x1b[31mdown"), Reply(429, {"Retry-After": "90"}), Reply()]
    channel, _ = add(context, hook.url)
    tell(context, "fail", "k")
    for seconds, sent in ((0, 1), (2, 1), (5, 2), (60, 2), (31, 3)):
        later(context, seconds=seconds)
        deliver(context)
        assert len(hook.received) == sent, seconds
    assert len({one.headers["webhook-id"] for one in hook.received}) == 1
    assert log(context, channel) == [("delivered", ["failed", "failed", "accepted"])]
    [(_, tried)] = context.stores.outbox.log(channel.id, limit=1)
    assert [one.receipt.response_excerpt for one in tried] == [
        "HTTP 500: \ufffd[31mdown",
        "HTTP 429",
        "HTTP 200",
    ]
    times = [int(one.headers["webhook-timestamp"]) for one in hook.received]
    assert times[2] - times[0] >= 98


def test_410_disables_until_a_test_gets_through(context: Context, hook: Receiver) -> None:
    hook.replies = [Reply(410), Reply()]
    channel, _ = add(context, hook.url)
    tell(context, "fail", "k-1")
    deliver(context)
    tell(context, "pass", "k-2")
    later(context, days=1)
    deliver(context)
    assert len(hook.received) == 1
    [(_, health)] = context.stores.outbox.channels()
    assert (health.state, health.disabled_reason) == ("disabled", "HTTP 410")
    assert call_channel(context, channel).result is DeliveryResult.ACCEPTED
    assert hook.received[-1].json["type"] == "test"
    tell(context, "fail", "k-3")
    deliver(context)
    assert [one.json["type"] for one in hook.received] == [
        "gate.state_changed", "test", "gate.state_changed",
    ]  # fmt: skip


def test_redirects_are_not_followed(context: Context, hook: Receiver) -> None:
    with receiver() as other:
        hook.replies = [Reply(307, {"Location": other.url})]
        channel, _ = add(context, hook.url)
        tell(context, "fail", "k")
        deliver(context)
        assert other.received == []
    [(_, [tried])] = context.stores.outbox.log(channel.id, limit=1)
    assert "redirects are not followed" in tried.receipt.response_excerpt


def test_an_answer_without_end_is_not_read_to_its_end(context: Context, hook: Receiver) -> None:
    hook.replies = [Reply(500, body=b"x" * 5_000_000)]
    channel, _ = add(context, hook.url)
    assert len(call_channel(context, channel).response_excerpt) < 300


def test_a_name_that_nobody_knows_and_a_port_that_nobody_holds(context: Context) -> None:
    channel, _ = add(context, f"http://127.0.0.1:{free_port()}/")
    receipt = call_channel(context, channel)
    assert receipt.result is DeliveryResult.FAILED
    assert receipt.response_excerpt.startswith("no answer")
    other, _ = add(context, "https://nowhere.invalid/x", name="other")
    assert "cannot be resolved" in call_channel(context, other).response_excerpt


def test_a_dead_receiver_does_not_keep_the_others_waiting(context: Context, hook: Receiver) -> None:
    with receiver(Reply(500)) as dead:
        add(context, dead.url, name="dead")
        add(context, hook.url, name="alive")
        for number in range(5):
            tell(context, "fail", f"k-{number}", lineage=f"line-{number}")
        deliver(context)
        assert len(dead.received) == 1
        assert len(hook.received) == 5


def test_a_room_reads_plain_words(context: Context, hook: Receiver) -> None:
    add(context, hook.url, "slack")
    tell(context, "late", "k-1")
    tell(context, "pass", "k-2")
    deliver(context)
    texts = [str(one.json["text"]).splitlines() for one in hook.received]
    assert texts == [
        ["nightly: late", "why", "https://trials.example/"],
        ["nightly: pass (recovered; it was no verdict by the deadline)", "why",
         "https://trials.example/"],
    ]  # fmt: skip


def test_commits_get_their_statuses(context: Context, hook: Receiver, tmp_path: Path) -> None:
    base = f"http://127.0.0.1:{hook.port}/api/v3"
    channel, secret = add(
        context, "acme/lib", "github", token_from="env:GITHUB_TOKEN", api_base=base
    )
    assert secret == ""
    for number, (state, sha) in enumerate((("pass", SHA), ("pass", "e" * 40), ("fail", "e" * 40))):
        tell(context, state, f"k-{number}", git_sha=sha, gate="release")
    tell(context, "pass", "no commit")
    deliver(context)
    assert [(one.path.rpartition("/")[2][0], one.json["state"]) for one in hook.received] == [
        ("f", "success"), ("e", "success"), ("e", "failure"),
    ]  # fmt: skip
    assert hook.received[0].path == f"/api/v3/repos/acme/lib/statuses/{SHA}"
    assert hook.received[0].headers["authorization"] == f"Bearer {TOKEN}"
    assert "webhook-signature" not in hook.received[0].headers
    hook.replies = [Reply(422, body=b'{"message": "No commit found for SHA"}'), Reply()]
    tell(context, "fail", "k-9", git_sha="d" * 40)
    deliver(context)
    assert log(context, channel)[0] == ("failed", ["refused"])
    assert call_channel(context, channel).result is DeliveryResult.ACCEPTED
    assert (hook.received[-1].method, hook.received[-1].path) == ("GET", "/api/v3/repos/acme/lib")
    call_channel(context, channel, git_sha=SHA)
    assert hook.received[-1].json["context"] == "seatrial/test"


def test_a_token_is_read_where_it_is_kept_each_time(
    context: Context, hook: Receiver, tmp_path
) -> None:
    base = f"http://127.0.0.1:{hook.port}"
    channel, _ = add(context, "acme/lib", "github", token_from="file:gh", api_base=base)
    assert "no usable token in file:gh" in call_channel(context, channel).response_excerpt
    for token in ("one\n", "two"):
        (tmp_path / "gh").write_text(token)
        assert call_channel(context, channel).status == 200
    sent = [one.headers["authorization"] for one in hook.received]
    assert sent == ["Bearer one", "Bearer two"]
    (tmp_path / "gh").write_text("-----BEGIN KEY-----\nlines\n")
    assert call_channel(context, channel).result is DeliveryResult.FAILED
    kept = str(context.stores.outbox.channels()) + str(
        context.stores.outbox.log(channel.id, limit=9)
    )
    assert "Bearer" not in kept
    assert len(hook.received) == 2


def test_both_secrets_sign_until_the_old_one_is_over(context: Context, hook: Receiver) -> None:
    channel, old = add(context, hook.url)
    renewed, new = renew_secret(context, channel, overlap=timedelta(hours=1))
    assert old != new
    call_channel(context, renewed)
    for known in (old, new):
        hook.received[0].verified(known)
    later(context, hours=1)
    call_channel(context, renewed)
    assert len(hook.received[1].headers["webhook-signature"].split()) == 1


def test_a_second_channel_of_a_name_is_refused(context: Context, hook: Receiver) -> None:
    add(context, hook.url)
    with pytest.raises(InvalidDocumentError, match="there is a channel 'room' already"):
        add(context, hook.url)


def test_clocks_that_differ_send_once(context: Context, database: Database, hook: Receiver) -> None:
    channel, _ = add(context, hook.url)
    fast = context_of(database)
    later(fast, hours=3)
    seen: list[object] = []
    hook.replies = [
        Reply(before=lambda: seen.append(database.stores.outbox.claim(at=fast.clock.now())))
    ]
    tell(context, "fail", "k-1")
    deliver(context)
    tell(fast, "pass", "k-2")
    deliver(context)
    deliver(fast)
    assert seen == [None, None]
    assert [one.json["data"]["state"] for one in hook.received] == ["fail", "pass"]
    assert log(context, channel) == [("delivered", ["accepted"])] * 2


KILLED = """
    import os, signal, sys
    from datetime import UTC, datetime
    from orchestrator.store.database import open_database
    outbox = open_database(sys.argv[1]).stores.outbox
    claimed = outbox.claim(at=datetime.now(UTC), lease_s=float(sys.argv[2]))
    print(claimed[1].id, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("lease_s", ["0", "3600"])
def test_whoever_dies_between_claim_and_sending_leaves_it_to_the_next(
    context: Context, database_url: str, hook: Receiver, lease_s: str
) -> None:
    add(context, hook.url)
    tell(context, "fail", "k")
    dead = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(KILLED), database_url, lease_s],
        capture_output=True, text=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert dead.returncode == -signal.SIGKILL, dead.stderr
    deliver(context)
    later(context, hours=2)  # a lease is over by the database's clock, not by ours
    deliver(context)
    sent = [dead.stdout.strip()] if lease_s == "0" else []
    assert [one.headers["webhook-id"] for one in hook.received] == sent


def test_a_bug_of_ours_is_a_failed_attempt_and_no_end(context: Context) -> None:
    channel, _ = add(context, "https://x.example/")

    def broken(_host: str, _port: int) -> list[str]:
        raise RuntimeError("secret detail")

    ports = replace(cast(Ports, context), gate=Gate(HttpSender(wire=GuardedHttp(resolve=broken))))
    other = cast(Context, ports)
    tell(other, "fail", "k")
    deliver(other)
    [(one, [tried])] = context.stores.outbox.log(channel.id, limit=1)
    assert one.state is DeliveryState.WAITING
    assert (
        tried.receipt.response_excerpt == "the controller failed (RuntimeError); its log says more"
    )
