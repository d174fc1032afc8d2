"""The table of notification channels, and the test of one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Response

from orchestrator.application.channels import call_channel, find_channel
from orchestrator.dashboard import urls
from orchestrator.dashboard.labels import age
from orchestrator.dashboard.responses import PageMissingError, PageRequest, PageRequestDep
from orchestrator.dashboard.session import Viewer, needs
from orchestrator.dashboard.table import Act, Badge, Column, Moment, Number, Row, Table, Text
from orchestrator.domain.caller_identity import Scope
from orchestrator.domain.channel import Channel, ChannelHealth, DeliveryReceipt, DeliveryResult

router = APIRouter()
_CHANNELS = (
    Column("channel", "Channel"),
    Column("state", "State"),
    Column("target", "Sends to"),
    Column("lines", "Events"),
    Column("last_ok", "Last success"),
    Column("waiting", "Waiting", is_number=True),
)
_TEST = Column("test", "Test", is_title_hidden=True)


@dataclass(frozen=True, slots=True)
class ChannelTest:
    """The result of the last test of a channel."""

    name: str
    has_arrived: bool
    response_excerpt: str


def channel_table(request: PageRequest) -> Table:
    """Return the table of channels, oldest first; admins have a test button for each."""
    channels = request.context.stores.outbox.channels()
    return Table(
        id="channels",
        caption="Channels",
        columns=(*_CHANNELS, _TEST) if request.viewer.may(Scope.ADMIN) else _CHANNELS,
        rows=[_channel(request, *one) for one in channels],
        empty="No channel exists yet: no verdict is announced.",
        command="seatrial channel add NAME URL",
        is_caption_hidden=True,
    )


def last_test(request: PageRequest, channel_id: str) -> ChannelTest | None:
    """Return the result of a channel's last test; None if it was never tested."""
    channel = find_channel(request.context, channel_id) if channel_id else None
    if channel is None:
        return None
    tests = request.context.stores.outbox.log(channel.id, limit=1, only_tests=True)
    receipts = [attempts[-1].receipt for _, attempts in tests]
    return next((_test(channel, receipt) for receipt in receipts), None)


def _test(channel: Channel, receipt: DeliveryReceipt) -> ChannelTest:
    has_arrived = receipt.result is DeliveryResult.ACCEPTED
    return ChannelTest(channel.name, has_arrived, receipt.response_excerpt)


@router.post(urls.CHANNEL_TEST)
def send_test(
    request: PageRequestDep, channel: str, _viewer: Annotated[Viewer, needs(Scope.ADMIN)]
) -> Response:
    """Send a test message now; one that gets through ends the disabling of a channel."""
    found = find_channel(request.context, channel)
    if found is None:
        raise PageMissingError(f"there is no channel {channel!r}; it may have been removed")
    call_channel(request.context, found)
    return request.go(urls.with_query(urls.GATES, tested=found.id) + "#channels-title")


def _channel(request: PageRequest, channel: Channel, health: ChannelHealth) -> Row:
    since = health.disabled_at or health.failing_since
    why = health.disabled_reason or (f"for {age(since, request.now)}" if since else "")
    return Row(
        (
            Text(channel.name, note=channel.kind.value),
            Badge(health.state, note=why),
            Text(channel.shown_target),
            Text(", ".join(channel.lineages) or "everything"),
            Moment(health.last_success_at, request.now),
            Number(health.waiting),
            *_button(request, channel),
        ),
        tone={"failing": "bad", "disabled": "warn"}.get(health.state, ""),
    )


def _button(request: PageRequest, channel: Channel) -> Sequence[Act]:
    if not request.viewer.may(Scope.ADMIN):
        return ()
    href, csrf = urls.channel_test_url(channel.id), request.viewer.csrf()
    return (Act("Send a test", href, csrf, about=f"to {channel.name}"),)
