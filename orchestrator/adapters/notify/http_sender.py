"""Messages by HTTP."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

import orchestrator
from orchestrator.adapters.github.commit_statuses import (
    GITHUB_REFUSES,
    TokenMissingError,
    status_request,
)
from orchestrator.adapters.notify.guarded_http import GuardedHttp, GuardedHttpError, Request
from orchestrator.adapters.notify.messages import slack_body, webhook_body
from orchestrator.adapters.notify.retry_policy import delivery_answer
from orchestrator.adapters.notify.signing import new_secret, signed_headers
from orchestrator.domain.channel import (
    Channel,
    ChannelKind,
    Delivery,
    DeliveryAnswer,
    DeliveryResult,
    token_place,
)

logger = logging.getLogger(__name__)
_TOKEN_LIMIT = 4096


def _no_secret(_name: str) -> str | None:
    return None


@dataclass(frozen=True, slots=True)
class HttpSender:
    """Implements the Courier."""

    secret: Callable[[str], str | None] = _no_secret
    """A variable of the environment."""
    keys: Path | None = None
    """The folder of files that a channel may name."""
    wire: GuardedHttp = field(default_factory=GuardedHttp)

    def send(self, channel: Channel, delivery: Delivery, *, now: datetime) -> DeliveryAnswer:
        """Try once; whatever goes wrong is a receipt."""
        begun = time.monotonic()
        receipt = self._tried(channel, delivery, now)
        return replace(receipt, seconds=round(time.monotonic() - begun, 3))

    def new_secret(self) -> str:
        """Make a secret to sign with."""
        return new_secret()

    def _tried(self, channel: Channel, delivery: Delivery, now: datetime) -> DeliveryAnswer:
        try:
            request = self._request(channel, delivery, now)
            answer = self.wire.send(request, allow_private=channel.allow_private)
        except (TokenMissingError, GuardedHttpError) as error:
            return DeliveryAnswer(reception=DeliveryResult.FAILED, said=str(error)[:300])
        except Exception as error:
            logger.exception("delivery %s to channel %s failed", delivery.id, channel.id)
            said = f"the controller failed ({type(error).__name__}); its log says more"
            return DeliveryAnswer(reception=DeliveryResult.FAILED, said=said)
        refused = GITHUB_REFUSES if channel.kind is ChannelKind.GITHUB else frozenset[int]()
        return delivery_answer(answer, now=now, refused=refused)

    def _request(self, channel: Channel, delivery: Delivery, now: datetime) -> Request:
        agent = {"User-Agent": f"seatrial/{orchestrator.__version__}"}
        if channel.kind is ChannelKind.GITHUB:
            return status_request(channel, delivery, token=self._token(channel), headers=agent)
        written = slack_body if channel.kind is ChannelKind.SLACK else webhook_body
        body = written(delivery)
        signed = signed_headers(delivery.id, body, keys=channel.signing(now), now=now)
        headers = {"Content-Type": "application/json", **agent, **signed}
        return Request("POST", channel.target, headers, body.encode())

    def _token(self, channel: Channel) -> str:
        """GitHub's token, from where the channel says. Raises TokenMissingError."""
        place, name = token_place(channel)
        token = self.secret(name) if place == "env" else self._file(name)
        token = (token or "").strip()
        if not (token.isascii() and token.isprintable() and token):
            raise TokenMissingError(f"the controller has no usable token in {channel.token_from}")
        return token

    def _file(self, name: str) -> str:
        try:
            with ((self.keys or Path()) / name).open(encoding="ascii") as file:
                return file.read(_TOKEN_LIMIT)
        except (OSError, UnicodeError):
            return ""
