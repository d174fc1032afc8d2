"""Notification channels: create, test, rotate, remove, and their deliveries."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Body, Depends, Path, Response, Security
from fastapi.openapi.models import Example
from pydantic import Field

from orchestrator.api.dependencies import ContextDep, NewestPageDep
from orchestrator.api.errors import NotFoundError
from orchestrator.api.models import ListResponse, NumberedPageResponse, RequestModel
from orchestrator.api.security import bearer, secured
from orchestrator.application.channels import (
    NewChannel,
    add_channel,
    call_channel,
    find_channel,
    renew_secret,
    unmatched_lineages,
)
from orchestrator.domain.caller_identity import Scope
from orchestrator.domain.channel import (
    Channel,
    ChannelHealth,
    ChannelResponse,
    Delivery,
    DeliveryAttempt,
    DeliveryReceipt,
    DeliveryResponse,
    NewChannelResponse,
    RenewedResponse,
)
from orchestrator.domain.copied_fields import extended, filled

_PRESENT_SHOWN = 20


class ChannelTestRequest(RequestModel):
    """Parameters of a channel's test."""

    git_sha: Annotated[str, Field(pattern=r"^([0-9a-f]{40}|[0-9a-f]{64})?$")] = ""
    """For ``github``: the commit whose status ``seatrial/test`` is set; without it, the repository
    is only read.
    """


class RotateRequest(RequestModel):
    """Parameters of a secret's rotation."""

    overlap_hours: Annotated[float, Field(ge=0, le=720)] = 24
    """Hours for which the old signing secret stays valid."""


_NEW: dict[str, Example] = {
    "webhook": {
        "summary": "Signed JSON",
        "value": {"name": "release-bot", "target": "https://hooks.example.org/seatrial"},
    },
    "slack": {
        "summary": "A Slack channel that gets only the nightly gate",
        "value": {
            "name": "release-room",
            "kind": "slack",
            "target": "https://hooks.slack.com/services/T000/B000/XXXX",
            "lineages": ["release@nightly"],
        },
    },
    "github": {
        "summary": "Statuses of commits",
        "value": {
            "name": "commits",
            "kind": "github",
            "target": "example/torchbridge",
            "token_from": "env:GITHUB_TOKEN",
        },
    },
}
_TEST: dict[str, Example] = {
    "commit": {
        "summary": "A real status, on a commit of GitHub",
        "value": {"git_sha": "0123456789abcdef0123456789abcdef01234567"},
    }
}
_ROTATE: dict[str, Example] = {
    "week": {"summary": "The old secret stays valid for a week", "value": {"overlap_hours": 168}}
}
ChannelBody = Annotated[NewChannel, Body(openapi_examples=_NEW)]
ChannelTestBody = Annotated[ChannelTestRequest | None, Body(openapi_examples=_TEST)]
Rotate = Annotated[RotateRequest | None, Body(openapi_examples=_ROTATE)]


_ASKED = [Security(bearer)]
reading = APIRouter(tags=["channels"], route_class=secured(Scope.READ), dependencies=_ASKED)
writing = APIRouter(tags=["channels"], route_class=secured(Scope.ADMIN), dependencies=_ASKED)


def _channel(
    context: ContextDep,
    channel: Annotated[str, Path(description="A channel's id or name", examples=["release-room"])],
) -> Channel:
    found = find_channel(context, channel)
    if found is None:
        raise NotFoundError(f"there is no channel {channel!r}; GET /api/v1/channels lists them")
    return found


ChannelDep = Annotated[Channel, Depends(_channel)]


@reading.get("/channels")
def list_channels(context: ContextDep) -> ListResponse[ChannelResponse]:
    """List every channel with its health."""
    channels = context.stores.outbox.channels()
    return ListResponse(items=[_tell(context, one, health) for one, health in channels])


@writing.post("/channels", status_code=201)
def create_channel(context: ContextDep, body: ChannelBody) -> NewChannelResponse:
    """Create a channel. Only this response has the signing secret."""
    channel, secret = add_channel(context, body)
    told = _tell(context, channel, ChannelHealth())
    unmatched, present = unmatched_lineages(context, channel.lineages)
    return extended(
        NewChannelResponse,
        told,
        secret=secret,
        unmatched_lineages=tuple(unmatched),
        present_lineages=tuple(present[:_PRESENT_SHOWN]),
    )


@writing.delete("/channels/{channel}", status_code=204, response_class=Response)
def remove_channel(context: ContextDep, channel: ChannelDep) -> None:
    """Delete a channel with its deliveries; waiting ones are not sent."""
    context.stores.outbox.remove(channel.id)


@writing.post("/channels/{channel}/test")
def send_test(
    context: ContextDep, channel: ChannelDep, body: ChannelTestBody = None
) -> DeliveryReceipt:
    """Send a test message now. A successful one enables a disabled channel."""
    return call_channel(context, channel, git_sha=body.git_sha if body else "")


@writing.post("/channels/{channel}/rotate")
def rotate_channel_secret(
    context: ContextDep, channel: ChannelDep, body: Rotate = None
) -> RenewedResponse:
    """Create a signing secret, shown only here; the old one stays valid for the overlap."""
    overlap = timedelta(hours=body.overlap_hours if body else 24)
    renewed, secret = renew_secret(context, channel, overlap=overlap)
    before = renewed.secrets[1:2]
    return RenewedResponse(secret=secret, old_until=before[0].until if before else None)


@reading.get("/channels/{channel}/deliveries")
def list_deliveries(
    context: ContextDep, channel: ChannelDep, page: NewestPageDep
) -> NumberedPageResponse[DeliveryResponse]:
    """List the deliveries to a channel with their attempts, newest first."""
    found = context.stores.outbox.log(channel.id, limit=page.limit, before=page.last)
    return NumberedPageResponse(items=found.each(_delivery), next=found.next)


def _tell(context: ContextDep, channel: Channel, health: ChannelHealth) -> ChannelResponse:
    return extended(
        ChannelResponse,
        health,
        id=channel.id,
        name=channel.name,
        kind=channel.kind,
        target=channel.shown_target,
        lineages=channel.lineages,
        allow_private=channel.allow_private,
        api_base=channel.api_base,
        token_from=channel.token_from,
        created_at=channel.created_at,
        signing_secrets=len(channel.signing(context.clock.now())),
    )


def _delivery(one: Delivery, attempts: list[DeliveryAttempt]) -> DeliveryResponse:
    told = one.news.announcement
    return filled(
        DeliveryResponse,
        one,
        lineage=told.lineage,
        lineage_state=told.state,
        previous=one.news.previous,
        title=told.title,
        due_at=one.due_at if one.done_at is None else None,
        attempts=tuple(attempts),
    )
