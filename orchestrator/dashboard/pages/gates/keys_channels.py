"""Who signs, and who is told: keys, channels, and a message that tries one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Response

from orchestrator.application.manage_channels import call_channel, find_channel
from orchestrator.application.ports.signer import PublicKey
from orchestrator.application.ports.stores import Scope
from orchestrator.dashboard import urls
from orchestrator.dashboard.disclosure import Fact, Folded
from orchestrator.dashboard.labels import age
from orchestrator.dashboard.responses import Asked, AskedDep, PageMissingError
from orchestrator.dashboard.session import Viewer, needs
from orchestrator.dashboard.table import Act, Badge, Column, Moment, Number, Row, Table, Text
from orchestrator.domain.channel import Channel, Health, LoggedAttempt, Reception

router = APIRouter()
SHOWN = 50
_SOON = timedelta(days=30)
_KEYS = (
    Column("key", "Key"),
    Column("state", "State"),
    Column("made", "Made"),
    Column("ends", "Ends"),
    Column("retired", "Retired"),
)
_CHANNELS = (
    Column("channel", "Channel"),
    Column("state", "State"),
    Column("target", "Sends to"),
    Column("lines", "Events"),
    Column("last_ok", "Last success"),
    Column("waiting", "Waiting", is_number=True),
)
_TRY = Column("try", "Try it", is_title_hidden=True)


@dataclass(frozen=True, slots=True)
class Try:
    """What became of the last test of a channel."""

    name: str
    has_arrived: bool
    said: str


def key_table(asked: Asked) -> Table:
    """Keys that verdicts were and are signed with, the newest first."""
    keys = asked.context.stores.gates.signing_keys()
    return Table(
        id="signing",
        caption="Keys that verdicts are signed with",
        columns=_KEYS,
        rows=[_key(asked, one) for one in reversed(keys)][:SHOWN],
        empty="No verdict was signed yet: a key is made when the first one is.",
        total=len(keys),
        is_caption_hidden=True,
    )


def channel_table(asked: Asked) -> Table:
    """Channels, the oldest first; who may try them has a button for each."""
    channels = asked.context.stores.outbox.channels()
    return Table(
        id="channels",
        caption="Channels",
        columns=(*_CHANNELS, _TRY) if asked.viewer.may(Scope.ADMIN) else _CHANNELS,
        rows=[_channel(asked, *one) for one in channels],
        empty="Nobody is told of verdicts yet.",
        command="seatrial notify add NAME URL",
        is_caption_hidden=True,
    )


def last_try(asked: Asked, channel_id: str) -> Try | None:
    """What became of the last test of a channel; None where it was not tried."""
    channel = find_channel(asked.context, channel_id) if channel_id else None
    log = asked.context.stores.outbox.log(channel.id, limit=10) if channel else []
    tests = [attempts for delivery, attempts in log if delivery.is_test and attempts]
    if channel is None or not tests:
        return None
    last: LoggedAttempt = tests[0][-1]
    return Try(channel.name, last.receipt.reception is Reception.TAKEN, last.receipt.said)


@router.post(urls.CHANNEL_TEST)
def try_channel(
    asked: AskedDep, channel: str, _viewer: Annotated[Viewer, needs(Scope.ADMIN)]
) -> Response:
    """Send a test message now; one that gets through ends the disabling of a channel."""
    found = find_channel(asked.context, channel)
    if found is None:
        raise PageMissingError(f"there is no channel {channel!r}; it may have been removed")
    call_channel(asked.context, found)
    return asked.go(urls.with_query(urls.GATES, tried=found.id) + "#channels-title")


def _key(asked: Asked, key: PublicKey) -> Row:
    ends = key.ends_at
    is_over = ends is not None and asked.now >= ends
    state = "retired" if key.retired_at else "expired" if is_over else "active"
    is_soon = ends is not None and not is_over and ends - asked.now < _SOON
    note = f"ends in {age(asked.now, ends)}" if ends is not None and is_soon else ""
    return Row(
        (
            Folded(key.id[:16], (Fact("id", key.id), Fact("public", key.public))),
            Badge(state, note=note),
            Moment(key.created_at),
            Moment(key.not_after),
            Moment(key.retired_at),
        ),
        tone="warn" if is_soon else "",
    )


def _channel(asked: Asked, channel: Channel, health: Health) -> Row:
    since = health.disabled_at or health.failing_since
    why = health.disabled_why or (f"for {age(since, asked.now)}" if since else "")
    return Row(
        (
            Text(channel.name, note=channel.kind.value),
            Badge(health.state, note=why),
            Text(channel.shown_target),
            Text(", ".join(channel.lineages) or "everything"),
            Moment(health.last_ok_at, asked.now),
            Number(health.waiting),
            *_button(asked, channel),
        ),
        tone={"failing": "bad", "disabled": "warn"}.get(health.state, ""),
    )


def _button(asked: Asked, channel: Channel) -> Sequence[Act]:
    if not asked.viewer.may(Scope.ADMIN):
        return ()
    href, csrf = urls.channel_test_url(channel.id), asked.viewer.csrf()
    return (Act("Send a test", href, csrf, about=f"to {channel.name}"),)
