"""Messages by HTTP."""

from __future__ import annotations

import base64
import logging
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path

from standardwebhooks.webhooks import Webhook

import orchestrator
from orchestrator.adapters.github.commit_statuses import (
    GITHUB_REFUSES,
    TokenMissingError,
    status_request,
)
from orchestrator.adapters.notify.guarded_http import Answer, GuardedHttp, GuardedHttpError, Request
from orchestrator.adapters.notify.messages import slack_body, webhook_body
from orchestrator.domain.announcement import one_line
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
            return DeliveryAnswer(result=DeliveryResult.FAILED, response_excerpt=str(error)[:300])
        except Exception as error:
            logger.exception("delivery %s to channel %s failed", delivery.id, channel.id)
            said = f"the controller failed ({type(error).__name__}); its log says more"
            return DeliveryAnswer(result=DeliveryResult.FAILED, response_excerpt=said)
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


_SAID_LIMIT = 200
_GONE = 410


def delivery_answer(
    answer: Answer, *, now: datetime, refused: frozenset[int] = frozenset()
) -> DeliveryAnswer:
    """What an answer means; those of the statuses `refused` would be answered so again."""
    status = answer.status
    excerpt = one_line(answer.body.decode("utf-8", "replace"), _SAID_LIMIT)
    said = f"HTTP {status}" + (f": {excerpt}" if excerpt else "")
    if 200 <= status < 300:
        return DeliveryAnswer(
            result=DeliveryResult.TAKEN, response_excerpt=f"HTTP {status}", status=status
        )
    if status == _GONE:
        return DeliveryAnswer(result=DeliveryResult.GONE, response_excerpt=said, status=status)
    if status in refused:
        return DeliveryAnswer(result=DeliveryResult.REFUSED, response_excerpt=said, status=status)
    if 300 <= status < 400:
        said = f"HTTP {status}: redirects are not followed; change the channel's URL"
    return DeliveryAnswer(
        result=DeliveryResult.FAILED,
        response_excerpt=said,
        status=status,
        retry_after_s=_retry_after_s(answer, now),
    )


def _retry_after_s(answer: Answer, now: datetime) -> float | None:
    """How long the server wants to be left alone."""
    wish = answer.headers.get("retry-after", "").strip()
    if wish.isdecimal():
        return float(wish[:9])
    if answer.headers.get("x-ratelimit-remaining") == "0":
        reset = answer.headers.get("x-ratelimit-reset", "")
        return max(0.0, float(reset[:12]) - now.timestamp()) if reset.isdecimal() else None
    try:
        at = parsedate_to_datetime(wish)
    except (ValueError, OverflowError):
        return None
    return max(0.0, (at.replace(tzinfo=at.tzinfo or UTC) - now).total_seconds())


PREFIX = "whsec_"
_SECRET_BYTES = 32


def new_secret() -> str:
    """Make a secret to sign with."""
    return PREFIX + base64.b64encode(secrets.token_bytes(_SECRET_BYTES)).decode("ascii")


def signed_headers(
    message_id: str, body: str, *, keys: Sequence[str], now: datetime
) -> dict[str, str]:
    """A signature by every secret, so that a receiver that knows one of them is content."""
    at = now.astimezone(UTC)  # the library takes the wall time of any zone for UTC's
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": " ".join(Webhook(key).sign(message_id, at, body) for key in keys),
    }
