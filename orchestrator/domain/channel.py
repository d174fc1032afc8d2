"""Notification channels (webhook, Slack, GitHub), and the deliveries to them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from fnmatch import fnmatchcase
from hashlib import sha256
from urllib.parse import urlsplit

from orchestrator.domain.announcement import Announcement, LineageState, News

GIVE_UP_AFTER = timedelta(days=3)
"""So long is a delivery tried."""
OVERLAP = timedelta(hours=24)
"""So long does a secret stand beside the one that replaced it."""
_FIRST_WAIT_S, _GROWTH, _LONGEST_WAIT_S = 5.0, 3.0, 6 * 3600.0
_JITTER = 0.2
_URL = re.compile(r"https?://[!-~]+")
_REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,38}/[A-Za-z0-9._-]{1,100}")
_VARIABLE = re.compile(r"env:((?:SEATRIAL_)?(?:GITHUB|GH)_[A-Z0-9_]{1,60})")
_FILE = re.compile(r"file:([A-Za-z0-9][A-Za-z0-9._-]{0,99})")
_SHA = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_STATUSES = {
    LineageState.PASS: "success",
    LineageState.PASS_WITH_EXCEPTIONS: "success",
    LineageState.FAIL: "failure",
    LineageState.INCONCLUSIVE: "error",
    LineageState.LATE: "pending",
    LineageState.ERRORED: "error",
}
_WHERE_WANTED = (
    "must say where the controller finds the token: env:NAME with a NAME that begins"
    " with GITHUB_, GH_ or SEATRIAL_GITHUB_, or file:NAME of a file under HOME/keys"
)
GITHUB_API = "https://api.github.com"


class ChannelKind(StrEnum):
    """How a channel is spoken to."""

    WEBHOOK = "webhook"
    """Standard Webhooks: JSON that is signed."""
    SLACK = "slack"
    """The same, with the body that Slack's incoming webhooks take; others take it too."""
    GITHUB = "github"
    """Statuses of commits."""


@dataclass(frozen=True, slots=True)
class ChannelSecret:
    """What messages to a channel are signed with."""

    value: str = field(repr=False)
    """``whsec_`` and base64."""
    until: datetime | None = None
    """None for the newest, which has no end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """A notification channel."""

    id: str
    name: str
    kind: ChannelKind
    target: str
    """An URL, or ``owner/repository``."""
    lineages: tuple[str, ...] = ()
    """Only these, as in ``nightly*``; empty takes all."""
    allow_private: bool = False
    """Addresses of one's own network and of this computer are allowed, and plain HTTP."""
    api_base: str = GITHUB_API
    """Of GitHub; another one for a GitHub of one's own."""
    token_from: str = ""
    """``env:NAME`` or ``file:NAME``: where the controller finds GitHub's token, not the token."""
    created_at: datetime
    secrets: tuple[ChannelSecret, ...] = ()
    """The newest first; those that are over too."""

    def wants(self, lineage: str) -> bool:
        """Whether the channel takes news of this lineage."""
        return not self.lineages or any(fnmatchcase(lineage, one) for one in self.lineages)

    def signing(self, now: datetime) -> tuple[str, ...]:
        """The valid signing secrets, the newest first."""
        return tuple(s.value for s in self.secrets if s.until is None or s.until > now)

    @property
    def shown_target(self) -> str:
        """The target without what is a secret with many receivers: what follows the host."""
        if self.kind is ChannelKind.GITHUB:
            return self.target
        parts = urlsplit(self.target)
        return f"{parts.scheme}://{parts.netloc}/…"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelHealth:
    """Whether deliveries to a channel succeed."""

    failing_since: datetime | None = None
    """Since then nothing has got through."""
    last_success_at: datetime | None = None
    disabled_at: datetime | None = None
    """Nothing is sent to it any more; a test that gets through ends that."""
    disabled_reason: str = ""
    waiting: int = 0
    """Deliveries."""

    @property
    def state(self) -> str:
        """``ok``, ``failing`` or ``disabled``."""
        if self.disabled_at is not None:
            return "disabled"
        return "failing" if self.failing_since is not None else "ok"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelResponse(ChannelHealth):
    """A channel and how it does, without anything secret."""

    id: str
    name: str
    kind: ChannelKind
    target: str
    """``owner/repository``, or the URL up to its host: what follows is a secret with many."""
    lineages: tuple[str, ...]
    """Only these, as in ``nightly*``; empty takes all."""
    allow_private: bool
    """Addresses of one's own network are allowed, and plain HTTP."""
    api_base: str
    """Of GitHub."""
    token_from: str
    """Where the controller finds GitHub's token, not the token."""
    created_at: datetime
    signing_secrets: int
    """How many are valid now; two while one replaces the other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewChannelResponse(ChannelResponse):
    """A channel that was just added."""

    secret: str | None
    """What its messages are signed with (Standard Webhooks); it is not told again. None for
    GitHub."""


class DeliveryState(StrEnum):
    """Where a delivery is."""

    WAITING = "waiting"
    DELIVERED = "delivered"
    FAILED = "failed"
    DISCARDED = "discarded"
    """Its channel was disabled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """News for one channel."""

    id: str
    """The ``webhook-id``: the same for every attempt, so that a receiver can tell a repetition."""
    channel: str
    """Its id."""
    news: News
    state: DeliveryState
    created_at: datetime
    attempts: int
    due_at: datetime
    done_at: datetime | None = None
    is_test: bool = False


class DeliveryResult(StrEnum):
    """What became of one attempt."""

    ACCEPTED = "accepted"
    FAILED = "failed"
    """It is tried again."""
    REFUSED = "refused"
    """Trying this one again is of no use."""
    GONE = "gone"
    """The receiver wants nothing any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryReceipt:
    """What a receiver answered to one attempt."""

    result: DeliveryResult
    response_excerpt: str
    """For a person: the status, or why there is none. One line; nothing secret."""
    status: int | None = None
    retry_after_s: float | None = None
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class DeliveryAttempt:
    """One line of the delivery log."""

    delivery: str
    number: int
    at: datetime
    receipt: DeliveryReceipt


def next_look(delivery: Delivery, receipt: DeliveryReceipt, now: datetime) -> datetime | None:
    """When to try again; None gives it up.

    The wait grows threefold from five seconds to six hours, and is spread by a fifth so that what
    failed together does not come back together. A receiver's own wish counts where it is longer.
    """
    if receipt.result is not DeliveryResult.FAILED or now - delivery.created_at >= GIVE_UP_AFTER:
        return None
    exponent = min(delivery.attempts, 20)
    wait_s = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * _GROWTH**exponent)
    wait_s *= 1 + _JITTER * _spread(f"{delivery.id}/{delivery.attempts}")
    wished_s = min(receipt.retry_after_s or 0.0, _LONGEST_WAIT_S)
    return now + timedelta(seconds=max(wait_s, wished_s))


def _spread(seed: str) -> float:
    """From -1 to 1, the same for the same seed."""
    return int.from_bytes(sha256(seed.encode()).digest()[:4]) / 2**31 - 1


def problems_of(channel: Channel) -> Iterator[tuple[str, str]]:
    """What is wrong with a new one: fields, and what to do."""
    if channel.kind is ChannelKind.GITHUB:
        if not _REPOSITORY.fullmatch(channel.target):
            yield "target", "must be owner/repository"
        if not (_VARIABLE.fullmatch(channel.token_from) or _FILE.fullmatch(channel.token_from)):
            yield "token_from", _WHERE_WANTED
        yield from (("api_base", why) for why in _url_problems(channel.api_base, channel))
        return
    yield from (("target", why) for why in _url_problems(channel.target, channel))
    if channel.token_from:
        yield "token_from", "is for GitHub only"


def _url_problems(url: str, channel: Channel) -> Iterator[str]:
    try:
        parts = urlsplit(url)
        usable = bool(_URL.fullmatch(url) and parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable or "\\" in url or "#" in url:
        yield "must be an URL such as https://hooks.example.org/seatrial"
    elif parts.username is not None or parts.password is not None:
        yield "must not hold a name or a password: messages are signed instead"
    elif parts.scheme != "https" and not channel.allow_private:
        yield "must begin with https:// (plain http is for one's own network: allow_private)"


def token_place(channel: Channel) -> tuple[str, str]:
    """(``env`` or ``file``, name) of GitHub's token."""
    kind, _, name = channel.token_from.partition(":")
    return kind, name


def commit_of(told: Announcement) -> str | None:
    """The commit that it is about, where that is known."""
    sha = told.facts.get("git_sha", "").lower()
    return sha if _SHA.fullmatch(sha) else None


def status_word(told: Announcement) -> str:
    """The state of the commit's status: ``success``, ``failure``, ``error`` or ``pending``."""
    if told.state is LineageState.INCONCLUSIVE and told.facts.get("retryable") == "true":
        return "pending"
    return _STATUSES[told.state]


def is_signed_by(channel: Channel, told: Announcement) -> bool:
    """Whether a commit's status belongs into the channel's repository."""
    if commit_of(told) is None:
        return False
    parts = told.facts.get("repository", "").removesuffix(".git").replace(":", "/").split("/")
    named = "/".join(parts[-2:]).lower()
    return not named or named == channel.target.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryResponse:
    """News for a channel, and how it was delivered."""

    id: str
    """The ``webhook-id``: the same in every attempt."""
    state: DeliveryState
    is_test: bool
    lineage: str
    lineage_state: LineageState
    previous: LineageState | None
    """The state of the line before; None for its first news."""
    title: str
    created_at: datetime
    due_at: datetime | None
    """When it is tried next; None when it is over."""
    done_at: datetime | None
    attempts: tuple[DeliveryAttempt, ...]
