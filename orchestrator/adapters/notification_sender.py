"""Notifications by HTTP: webhooks, Slack and GitHub commit statuses."""

from __future__ import annotations

import base64
import json
import logging
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path

from standardwebhooks.webhooks import Webhook

import orchestrator
from orchestrator.adapters.guarded_http import (
    GuardedHttp,
    GuardedHttpError,
    GuardedResponse,
    Request,
)
from orchestrator.domain.channel import (
    TEXT_LIMIT,
    TITLE_LIMIT,
    Announcement,
    Channel,
    ChannelKind,
    Delivery,
    DeliveryReceipt,
    DeliveryResult,
    commit_of,
    one_line,
    paragraphs,
    status_word,
    token_place,
)

TYPE = "gate.state_changed"
TEST_TYPE = "test"
_FACT_LIMIT = 500
_URL_LIMIT = 2_000
_MARKUP = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


def webhook_body(delivery: Delivery) -> str:
    """Return the JSON body of a webhook, in ASCII."""
    news = delivery.news
    told = news.announcement
    data = {
        "lineage": told.lineage,
        "state": told.state.value,
        "previous": news.previous.value if news.previous else None,
        "change": news.change,
        "title": one_line(told.title, TITLE_LIMIT),
        "text": paragraphs(told.text, TEXT_LIMIT),
        "url": web_link(told.url),
        "facts": {key: one_line(value, _FACT_LIMIT) for key, value in sorted(told.facts.items())},
    }
    kind = TEST_TYPE if delivery.is_test else TYPE
    return json.dumps({"type": kind, "timestamp": told.at.isoformat(), "data": data})


def slack_body(delivery: Delivery) -> str:
    """Return the JSON body of a Slack message: plain text without mentions and masked links."""
    told = delivery.news.announcement
    lines = (delivery.news.headline, paragraphs(told.text, TEXT_LIMIT), web_link(told.url))
    text = "\n".join(_unmarked(line) for line in lines if line)
    quiet = {"mrkdwn": False, "link_names": False, "unfurl_links": False, "unfurl_media": False}
    return json.dumps({"text": text, **quiet})


def web_link(url: str) -> str:
    """Return the URL if a browser may open it, else an empty text."""
    usable = url.startswith(("https://", "http://")) and url.isascii() and url.isprintable()
    return url if usable and " " not in url and len(url) <= _URL_LIMIT else ""


def _unmarked(text: str) -> str:
    return "".join(_MARKUP.get(character, character) for character in text)


GITHUB_REFUSES = frozenset({422})
"""GitHub's status for an unknown commit or too many statuses, for which a retry is useless."""
_DESCRIPTION_LIMIT = 140
_NAME_LIMIT = 100
_LARGEST = "\uffff"
"""GitHub refuses characters above this one."""


class TokenMissingError(Exception):
    """The controller does not find the token at the channel's ``token_from``."""


def status_request(
    channel: Channel, delivery: Delivery, *, token: str, headers: Mapping[str, str]
) -> Request:
    """Return the request that sets a commit's status.

    For a test delivery without a commit it is a request that only reads.
    """
    asked = {
        **headers,
        "Accept": "application/vnd.github+json",
        "Authorization": f"Bearer {token}",
        "X-GitHub-Api-Version": "2022-11-28",
    }
    told = delivery.news.announcement
    repository = f"{channel.api_base.rstrip('/')}/repos/{channel.target}"
    sha = commit_of(told)
    if sha is None:
        return Request("GET", repository, asked)
    body = {
        "state": status_word(told),
        "context": f"seatrial/{_plain(told.facts.get('gate') or told.lineage, _NAME_LIMIT)}",
        "description": _plain(_description(told), _DESCRIPTION_LIMIT),
    }
    link = web_link(told.url)
    if link:
        body["target_url"] = link
    asked["Content-Type"] = "application/json"
    return Request("POST", f"{repository}/statuses/{sha}", asked, json.dumps(body).encode())


def _description(announcement: Announcement) -> str:
    said = announcement.text or announcement.title
    return f"{announcement.state.words}: {said}" if said else announcement.state.words


def _plain(text: str, limit: int) -> str:
    return "".join(c if c <= _LARGEST else "?" for c in one_line(text, limit))


logger = logging.getLogger(__name__)
_TOKEN_LIMIT = 4096


def _no_secret(_name: str) -> str | None:
    return None


@dataclass(frozen=True, slots=True)
class HttpSender:
    """Implements `orchestrator.domain.channel.NotificationSender`."""

    secret: Callable[[str], str | None] = _no_secret
    """Reads a variable of the environment."""
    keys: Path | None = None
    """The folder of token files that a channel may name."""
    wire: GuardedHttp = field(default_factory=GuardedHttp)

    def send(self, channel: Channel, delivery: Delivery, *, now: datetime) -> DeliveryReceipt:
        """Send once; every failure is returned as a receipt."""
        begun = time.monotonic()
        receipt = self._tried(channel, delivery, now)
        return replace(receipt, seconds=round(time.monotonic() - begun, 3))

    def new_secret(self) -> str:
        """Generate a signing secret."""
        return new_secret()

    def _tried(self, channel: Channel, delivery: Delivery, now: datetime) -> DeliveryReceipt:
        try:
            request = self._request(channel, delivery, now)
            answer = self.wire.send(request, allow_private=channel.allow_private)
        except (TokenMissingError, GuardedHttpError) as error:
            return DeliveryReceipt(result=DeliveryResult.FAILED, response_excerpt=str(error)[:300])
        except Exception as error:
            logger.exception("delivery %s to channel %s failed", delivery.id, channel.id)
            said = f"the controller failed ({type(error).__name__}); its log says more"
            return DeliveryReceipt(result=DeliveryResult.FAILED, response_excerpt=said)
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
        """Return GitHub's token from the channel's ``token_from``. Raises TokenMissingError."""
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


_EXCERPT_CHARS = 200
_GONE = 410


def delivery_answer(
    answer: GuardedResponse, *, now: datetime, refused: frozenset[int] = frozenset()
) -> DeliveryReceipt:
    """Return the receipt for a response; the statuses in `refused` are not retried."""
    status = answer.status
    excerpt = one_line(answer.body.decode("utf-8", "replace"), _EXCERPT_CHARS)
    said = f"HTTP {status}" + (f": {excerpt}" if excerpt else "")
    if 200 <= status < 300:
        return DeliveryReceipt(
            result=DeliveryResult.ACCEPTED, response_excerpt=f"HTTP {status}", status=status
        )
    if status == _GONE:
        return DeliveryReceipt(result=DeliveryResult.GONE, response_excerpt=said, status=status)
    if status in refused:
        return DeliveryReceipt(result=DeliveryResult.REFUSED, response_excerpt=said, status=status)
    if 300 <= status < 400:
        said = f"HTTP {status}: redirects are not followed; change the channel's URL"
    return DeliveryReceipt(
        result=DeliveryResult.FAILED,
        response_excerpt=said,
        status=status,
        retry_after_s=_retry_after_s(answer, now),
    )


def _retry_after_s(answer: GuardedResponse, now: datetime) -> float | None:
    """Return the seconds that the server requests to wait; None without such a request."""
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
    """Generate a signing secret."""
    return PREFIX + base64.b64encode(secrets.token_bytes(_SECRET_BYTES)).decode("ascii")


def signed_headers(
    message_id: str, body: str, *, keys: Sequence[str], now: datetime
) -> dict[str, str]:
    """Return headers with one signature per secret: a receiver needs only one of the secrets."""
    at = now.astimezone(UTC)  # the library reads the wall time of any time zone as UTC
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(int(at.timestamp())),
        "webhook-signature": " ".join(Webhook(key).sign(message_id, at, body) for key in keys),
    }
