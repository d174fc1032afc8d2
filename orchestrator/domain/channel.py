"""Notification channels (webhook, Slack, GitHub), announcements and their deliveries."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from fnmatch import fnmatchcase
from hashlib import sha256
from typing import Protocol
from urllib.parse import urlsplit

from orchestrator.domain.gate.verdict import Decision

TITLE_LIMIT = 200
TEXT_LIMIT = 3_000
_BREAKS = ("\n", "\t")
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


class LineageState(StrEnum):
    """The state of a lineage of verdicts."""

    PASS = "pass"  # noqa: S105 - a word, no secret
    PASS_WITH_EXCEPTIONS = "pass_with_exceptions"  # noqa: S105
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    LATE = "late"
    """No verdict by the deadline."""
    ERRORED = "errored"
    """The run could not be started, or broke: there will be no verdict."""

    @property
    def is_good(self) -> bool:
        """Whether the release may go out."""
        return self in (LineageState.PASS, LineageState.PASS_WITH_EXCEPTIONS)

    @property
    def words(self) -> str:
        """The state in words, for a person."""
        return _WORDS[self]

    @classmethod
    def from_decision(cls, decision: Decision) -> LineageState:
        """Return the lineage state that follows from a verdict."""
        return cls(decision.value.lower())


_WORDS = {
    LineageState.PASS: "PASS",
    LineageState.PASS_WITH_EXCEPTIONS: "PASS with exceptions",
    LineageState.FAIL: "FAIL",
    LineageState.INCONCLUSIVE: "INCONCLUSIVE",
    LineageState.LATE: "no verdict by the deadline",
    LineageState.ERRORED: "the firing failed",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    """An event in a lineage of verdicts. Its texts are untrusted."""

    lineage: str
    """The lineage: of one gate and one schedule or branch."""
    state: LineageState
    title: str
    """One line, for a person."""
    text: str
    """The deciding reasons, for a person."""
    url: str
    """A link to details; empty if the controller's public address is not known."""
    at: datetime
    key: str
    """Identifies the event: it is announced at most once, by however many controllers."""
    evaluated_at: datetime | None = None
    """When the announced verdict was given; None without a verdict. A verdict older than the last
    announced one of its lineage is not announced.
    """
    facts: Mapping[str, str] = field(default_factory=dict)
    """For programs: ``gate``, ``product``, ``subject``, ``version``, ``verdict``, ``runs``,
    ``schedule``, ``firing``; ``git_sha`` (40 or 64 hex digits) is what a commit status belongs to,
    and ``retryable`` = ``true`` says that an INCONCLUSIVE one is being tried again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """An announcement with the previous state of its lineage."""

    announcement: Announcement
    previous: LineageState | None
    """None for the first announcement of its lineage."""

    @property
    def change(self) -> str:
        """``first``, ``recovered``, ``broken`` or ``changed``."""
        before, now = self.previous, self.announcement.state
        if before is None:
            return "first"
        if before.is_good == now.is_good:
            return "changed"
        return "recovered" if now.is_good else "broken"

    @property
    def headline(self) -> str:
        """The title, followed by the previous state."""
        title = one_line(self.announcement.title, TITLE_LIMIT)
        if self.previous is None:
            return title
        verb = {"recovered": "recovered; it was", "broken": "it was"}.get(self.change, "it was")
        return f"{title} ({verb} {self.previous.words})"


def one_line(text: str, limit: int) -> str:
    """Return the text as one line without control and direction characters, cut to the limit."""
    return _cut(" ".join(_harmless(text).split()), limit)


def paragraphs(text: str, limit: int) -> str:
    """Return a text like `one_line`, but with its line breaks."""
    return _cut(_harmless(text).strip(), limit)


def _harmless(text: str) -> str:
    text = text.replace("\r\n", "\n")
    return "".join(c if c.isprintable() or c in _BREAKS else _REPLACEMENT for c in text)


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


GIVE_UP_AFTER = timedelta(days=3)
"""Deliveries are retried for this long."""
OVERLAP = timedelta(hours=24)
"""A replaced secret stays valid for this long."""
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
    """Protocol of a channel."""

    WEBHOOK = "webhook"
    """Standard Webhooks: JSON that is signed."""
    SLACK = "slack"
    """The same, with the body of Slack's incoming webhooks, which others accept too."""
    GITHUB = "github"
    """Commit statuses."""


@dataclass(frozen=True, slots=True)
class ChannelSecret:
    """A signing secret of a channel's messages."""

    value: str = field(repr=False)
    """``whsec_`` and base64."""
    until: datetime | None = None
    """None for the newest, which does not expire."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """A notification channel."""

    id: str
    name: str
    kind: ChannelKind
    target: str
    """An URL, or ``owner/repository``."""
    lineages: tuple[str, ...] = ()
    """Patterns of lineages, as in ``release@*``; empty takes all."""
    allow_private: bool = False
    """Whether private and loopback addresses, and plain HTTP, are allowed."""
    api_base: str = GITHUB_API
    """GitHub's API; another address for GitHub Enterprise."""
    token_from: str = ""
    """``env:NAME`` or ``file:NAME``: where the controller reads GitHub's token, not the token."""
    created_at: datetime
    secrets: tuple[ChannelSecret, ...] = ()
    """Newest first, expired ones included."""

    def wants(self, lineage: str) -> bool:
        """Whether the channel accepts notifications of this lineage."""
        return not self.lineages or any(fnmatchcase(lineage, one) for one in self.lineages)

    def signing(self, now: datetime) -> tuple[str, ...]:
        """The valid signing secrets, the newest first."""
        return tuple(s.value for s in self.secrets if s.until is None or s.until > now)

    @property
    def shown_target(self) -> str:
        """The target without its secret part after the host."""
        if self.kind is ChannelKind.GITHUB:
            return self.target
        parts = urlsplit(self.target)
        return f"{parts.scheme}://{parts.netloc}/…"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelHealth:
    """Whether deliveries to a channel succeed."""

    failing_since: datetime | None = None
    """Since when no delivery has succeeded."""
    last_success_at: datetime | None = None
    disabled_at: datetime | None = None
    """When it was disabled: nothing is sent until a test message succeeds."""
    disabled_reason: str = ""
    waiting: int = 0
    """Number of waiting deliveries."""

    @property
    def state(self) -> str:
        """``ok``, ``failing`` or ``disabled``."""
        if self.disabled_at is not None:
            return "disabled"
        return "failing" if self.failing_since is not None else "ok"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelResponse(ChannelHealth):
    """A channel and its health, without secrets."""

    id: str
    name: str
    kind: ChannelKind
    target: str
    """``owner/repository``, or the URL up to its host: the rest is often a secret."""
    lineages: tuple[str, ...]
    """Patterns of lineages, as in ``release@*``; empty takes all."""
    allow_private: bool
    """Whether private addresses are allowed."""
    api_base: str
    """GitHub's API."""
    token_from: str
    """Where the controller reads GitHub's token; never the token itself."""
    created_at: datetime
    signing_secrets: int
    """Number of valid secrets; two during a rotation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewChannelResponse(ChannelResponse):
    """A channel that was just created."""

    secret: str | None
    """The signing secret (Standard Webhooks); shown only once. None for GitHub."""
    unmatched_lineages: tuple[str, ...]
    """Patterns that match no lineage yet: of a planned schedule, or mistyped."""
    present_lineages: tuple[str, ...]
    """The lineages that there are: of gates, schedules and verdicts; at most 20, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RenewedResponse:
    """A channel's new secret."""

    secret: str
    """Shown only once."""
    old_until: datetime | None
    """Until when the old secret is valid."""


class DeliveryState(StrEnum):
    """State of a delivery."""

    WAITING = "waiting"
    DELIVERED = "delivered"
    FAILED = "failed"
    DISCARDED = "discarded"
    """Not sent, since the channel was disabled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """An announcement queued for one channel."""

    id: str
    """The ``webhook-id``: equal in every attempt, so that receivers can detect repetitions."""
    channel: str
    """Id of the channel."""
    news: News
    state: DeliveryState
    created_at: datetime
    attempts: int
    due_at: datetime
    done_at: datetime | None = None
    is_test: bool = False


class DeliveryResult(StrEnum):
    """Result of one delivery attempt."""

    ACCEPTED = "accepted"
    FAILED = "failed"
    """Failed, and is retried."""
    REFUSED = "refused"
    """Refused, and is not retried."""
    GONE = "gone"
    """The receiver unsubscribed (HTTP 410)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryReceipt:
    """A receiver's response to one attempt."""

    result: DeliveryResult
    response_excerpt: str
    """For a person: the status, or the error. One line, without secrets."""
    status: int | None = None
    retry_after_s: float | None = None
    seconds: float = 0.0

    @property
    def has_arrived(self) -> bool:
        """Whether the receiver accepted it."""
        return self.result is DeliveryResult.ACCEPTED


@dataclass(frozen=True, slots=True)
class DeliveryAttempt:
    """An entry of the delivery log."""

    delivery: str
    number: int
    at: datetime
    receipt: DeliveryReceipt


def next_look(delivery: Delivery, receipt: DeliveryReceipt, now: datetime) -> datetime | None:
    """Return when to retry; None if it is given up.

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
    """Return a number from -1 to 1 that depends on the seed alone."""
    return int.from_bytes(sha256(seed.encode()).digest()[:4]) / 2**31 - 1


def problems_of(channel: Channel) -> Iterator[tuple[str, str]]:
    """Return the errors of a new channel, by field, each with what to do."""
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
        yield (
            "must begin with https:// (plain http is for one's own network: --allow-private, in "
            "REST allow_private)"
        )


def token_place(channel: Channel) -> tuple[str, str]:
    """Return (``env`` or ``file``, name) of GitHub's token."""
    kind, _, name = channel.token_from.partition(":")
    return kind, name


def commit_of(announcement: Announcement) -> str | None:
    """Return the commit of an announcement; None if it has none."""
    sha = announcement.facts.get("git_sha", "").lower()
    return sha if _SHA.fullmatch(sha) else None


def status_word(announcement: Announcement) -> str:
    """Return the commit status: ``success``, ``failure``, ``error`` or ``pending``."""
    if (
        announcement.state is LineageState.INCONCLUSIVE
        and announcement.facts.get("retryable") == "true"
    ):
        return "pending"
    return _STATUSES[announcement.state]


def belongs_to_repository(channel: Channel, announcement: Announcement) -> bool:
    """Whether a commit status belongs to the channel's repository."""
    if commit_of(announcement) is None:
        return False
    parts = (
        announcement.facts.get("repository", "").removesuffix(".git").replace(":", "/").split("/")
    )
    named = "/".join(parts[-2:]).lower()
    return not named or named == channel.target.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryResponse:
    """A delivery and its attempts."""

    id: str
    """The ``webhook-id``: the same in every attempt."""
    state: DeliveryState
    is_test: bool
    lineage: str
    lineage_state: LineageState
    previous: LineageState | None
    """The previous state of the lineage; None for its first announcement."""
    title: str
    created_at: datetime
    due_at: datetime | None
    """When it is tried next; None once it is finished."""
    done_at: datetime | None
    attempts: tuple[DeliveryAttempt, ...]


class NotificationSender(Protocol):
    """Port of the notification sender."""

    def send(self, channel: Channel, delivery: Delivery, *, now: datetime) -> DeliveryReceipt:
        """Try one delivery, bounded in time; every error becomes a receipt.

        Sending twice is allowed: receivers recognise the delivery's id.
        """
        ...

    def new_secret(self) -> str:
        """Return a new signing secret."""
        ...
