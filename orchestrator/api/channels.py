"""Channels: where people are told, whether it gets through, and a call to try it."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Response, Security

from orchestrator.api.channel_requests import NewWebhook, Rotate, Try
from orchestrator.api.channel_responses import (
    ChannelListResponse,
    ChannelResponse,
    DeliveryAttemptResponse,
    DeliveryListResponse,
    DeliveryResponse,
    NewChannelResponse,
    ReceiptResponse,
    RenewedResponse,
)
from orchestrator.api.dependencies import ContextDep
from orchestrator.api.errors import NotFoundError
from orchestrator.api.security import bearer, secured
from orchestrator.application.manage_channels import (
    add_channel,
    call_channel,
    find_channel,
    renew_secret,
)
from orchestrator.application.ports.stores import Scope
from orchestrator.domain.channel import Channel, Delivery, Health, LoggedAttempt, Receipt

_ASKED = [Security(bearer)]
reading = APIRouter(tags=["webhooks"], route_class=secured(Scope.READ), dependencies=_ASKED)
writing = APIRouter(tags=["webhooks"], route_class=secured(Scope.ADMIN), dependencies=_ASKED)


def _channel(
    context: ContextDep,
    channel: Annotated[str, Path(description="A channel's id or name", examples=["release-room"])],
) -> Channel:
    found = find_channel(context, channel)
    if found is None:
        raise NotFoundError(f"there is no channel {channel!r}; GET /api/v1/webhooks lists them")
    return found


ChannelDep = Annotated[Channel, Depends(_channel)]


@reading.get("/webhooks")
def list_webhooks(context: ContextDep) -> ChannelListResponse:
    """Every channel, and whether what is sent to it gets through."""
    channels = context.stores.outbox.channels()
    return ChannelListResponse(items=[_tell(context, one, health) for one, health in channels])


@writing.post("/webhooks", status_code=201)
def add_webhook(context: ContextDep, body: NewWebhook) -> NewChannelResponse:
    """Add a channel. Its signing secret is in this answer and nowhere else."""
    channel, secret = add_channel(context, body.new_channel())
    told = _tell(context, channel, Health())
    return NewChannelResponse(**dict(told), secret=secret)


@writing.delete("/webhooks/{channel}", status_code=204, response_class=Response)
def remove_webhook(context: ContextDep, channel: ChannelDep) -> None:
    """Forget a channel with its deliveries; what waits for it is not sent."""
    context.stores.outbox.remove(channel.id)


@writing.post("/webhooks/{channel}/test")
def try_webhook(context: ContextDep, channel: ChannelDep, body: Try = None) -> ReceiptResponse:
    """Send a test message now. One that gets through ends the disabling of a channel."""
    return _receipt(call_channel(context, channel, git_sha=body.git_sha if body else ""))


@writing.post("/webhooks/{channel}/rotate")
def rotate_webhook(
    context: ContextDep, channel: ChannelDep, body: Rotate = None
) -> RenewedResponse:
    """Make a new signing secret, told here only; messages are signed with the old one as well."""
    overlap = timedelta(hours=body.overlap_hours if body else 24)
    renewed, secret = renew_secret(context, channel, overlap=overlap)
    before = renewed.secrets[1:2]
    return RenewedResponse(secret=secret, old_until=before[0].until if before else None)


@reading.get("/webhooks/{channel}/deliveries")
def list_deliveries(
    context: ContextDep,
    channel: ChannelDep,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> DeliveryListResponse:
    """The newest deliveries to a channel, each with its attempts."""
    log = context.stores.outbox.log(channel.id, limit=limit)
    return DeliveryListResponse(items=[_delivery(one, attempts) for one, attempts in log])


def _tell(context: ContextDep, channel: Channel, health: Health) -> ChannelResponse:
    return ChannelResponse(
        id=channel.id,
        name=channel.name,
        kind=channel.kind,
        target=channel.shown_target,
        lineages=list(channel.lineages),
        allow_private=channel.allow_private,
        api_base=channel.api_base,
        token_from=channel.token_from,
        created_at=channel.created_at,
        signing_secrets=len(channel.signing(context.clock.now())),
        state=health.state,
        failing_since=health.failing_since,
        last_ok_at=health.last_ok_at,
        disabled_at=health.disabled_at,
        disabled_why=health.disabled_why,
        waiting=health.waiting,
    )


def _delivery(one: Delivery, attempts: list[LoggedAttempt]) -> DeliveryResponse:
    told = one.news.announcement
    return DeliveryResponse(
        id=one.id,
        state=one.state,
        is_test=one.is_test,
        lineage=told.lineage,
        lineage_state=told.state,
        previous=one.news.previous,
        title=told.title,
        created_at=one.created_at,
        due_at=one.due_at if one.done_at is None else None,
        done_at=one.done_at,
        attempts=[
            DeliveryAttemptResponse(
                number=tried.number, at=tried.at, **dict(_receipt(tried.receipt))
            )
            for tried in attempts
        ],
    )


def _receipt(receipt: Receipt) -> ReceiptResponse:
    return ReceiptResponse(
        reception=receipt.reception,
        status=receipt.status,
        said=receipt.said,
        seconds=receipt.seconds,
    )
