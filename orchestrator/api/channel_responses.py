"""What the API tells of channels and of what was sent to them."""

from __future__ import annotations

from datetime import datetime

from orchestrator.api.models import ResponseModel
from orchestrator.domain.announcement import LineageState
from orchestrator.domain.channel import ChannelKind, DeliveryState, Reception


class ChannelResponse(ResponseModel):
    """Where people are told."""

    id: str
    name: str
    kind: ChannelKind
    target: str
    """``owner/repository``, or the URL up to its host: what follows is a secret with many."""
    lineages: list[str]
    """Only these, as in ``nightly*``; empty takes all."""
    allow_private: bool
    """Addresses of one's own network are allowed, and plain HTTP."""
    api_base: str
    """Of GitHub."""
    token_from: str
    """Where the controller finds GitHub's token, not the token."""
    created_at: datetime
    signing_secrets: int
    """So many stand now; two while one replaces the other."""
    state: str
    """``ok``, ``failing`` or ``disabled``."""
    failing_since: datetime | None
    last_ok_at: datetime | None
    disabled_at: datetime | None
    disabled_why: str
    waiting: int
    """Deliveries that have not reached it yet."""


class ChannelListResponse(ResponseModel):
    """Every channel."""

    items: list[ChannelResponse]


class NewChannelResponse(ChannelResponse):
    """A channel that was just added."""

    secret: str | None
    """What its messages are signed with, as Standard Webhooks has it; it is not told again."""


class RenewedResponse(ResponseModel):
    """A channel's new secret."""

    secret: str
    """It is not told again."""
    old_until: datetime | None
    """Until then messages are signed with the old one too."""


class ReceiptResponse(ResponseModel):
    """What became of one attempt."""

    reception: Reception
    """``taken``, ``failed`` (it is tried again), ``refused`` or ``gone``."""
    status: int | None
    """The HTTP status; null where there was no answer."""
    said: str
    seconds: float


class DeliveryAttemptResponse(ReceiptResponse):
    """One attempt at a delivery."""

    number: int
    at: datetime


class DeliveryResponse(ResponseModel):
    """News for a channel."""

    id: str
    """The ``webhook-id``: the same in every attempt."""
    state: DeliveryState
    is_test: bool
    lineage: str
    lineage_state: LineageState
    previous: LineageState | None
    """What the line stood at before; null for its first news."""
    title: str
    created_at: datetime
    due_at: datetime | None
    """When it is tried next; null when it is over."""
    done_at: datetime | None
    attempts: list[DeliveryAttemptResponse]


class DeliveryListResponse(ResponseModel):
    """The newest deliveries, the newest first."""

    items: list[DeliveryResponse]
