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
    """There is no verdict, and the deadline is over."""
    ERRORED = "errored"
    """The run could not be started or broke, so that there will be no verdict."""

    @property
    def is_good(self) -> bool:
        """Whether the state allows the release."""
        return self in (LineageState.PASS, LineageState.PASS_WITH_EXCEPTIONS)

    @property
    def words(self) -> str:
        """The state in words for a person."""
        return _WORDS[self]

    @classmethod
    def from_decision(cls, decision: Decision) -> LineageState:
        """Return the lineage state of a verdict's decision."""
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
    """An event in a lineage of verdicts; its texts are untrusted."""

    lineage: str
    """Name of the lineage, of one gate and one schedule or branch."""
    state: LineageState
    title: str
    """One line, for a person."""
    text: str
    """The deciding reasons for a person."""
    url: str
    """A link to details; empty if the public address of the controller is not known."""
    at: datetime
    key: str
    """Identifies the event; each event is announced at most once, even with several controllers."""
    evaluated_at: datetime | None = None
    """Time of the announced verdict; None without a verdict.

    A verdict older than the last announced one of its lineage is not announced.
    """
    facts: Mapping[str, str] = field(default_factory=dict)
    """Values for programs: ``gate``, ``product``, ``subject``, ``version``, ``verdict``, ``runs``,
    ``schedule`` and ``firing``; ``git_sha`` (40 or 64 hex digits), the commit that gets a status;
    and ``retryable`` = ``true`` if an INCONCLUSIVE result is being tried again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class News:
    """An announcement with the previous state of its lineage."""

    announcement: Announcement
    previous: LineageState | None
    """The lineage's previous state; None for the first announcement."""

    @property
    def change(self) -> str:
        """The kind of change: ``first``, ``recovered``, ``broken`` or ``changed``."""
        before, now = self.previous, self.announcement.state
        if before is None:
            return "first"
        if before.is_good == now.is_good:
            return "changed"
        return "recovered" if now.is_good else "broken"

    @property
    def headline(self) -> str:
        """The title, with the previous state if there is one."""
        title = one_line(self.announcement.title, TITLE_LIMIT)
        if self.previous is None:
            return title
        verb = {"recovered": "recovered; it was", "broken": "it was"}.get(self.change, "it was")
        return f"{title} ({verb} {self.previous.words})"


def one_line(text: str, limit: int) -> str:
    """Return the text in one line, cut to `limit` characters, without control characters."""
    return _cut(" ".join(_harmless(text).split()), limit)


def paragraphs(text: str, limit: int) -> str:
    """Return the text as `one_line` does, but with its line breaks."""
    return _cut(_harmless(text).strip(), limit)


def _harmless(text: str) -> str:
    text = text.replace("\r\n", "\n")
    return "".join(c if c.isprintable() or c in _BREAKS else _REPLACEMENT for c in text)


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"


GIVE_UP_AFTER = timedelta(days=3)
"""Time for which a failed delivery is retried."""
OVERLAP = timedelta(hours=24)
"""Time for which a replaced secret stays valid."""
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
    """The service of a channel, which decides the protocol."""

    WEBHOOK = "webhook"
    """JSON, signed as the Standard Webhooks specification defines."""
    SLACK = "slack"
    """The same, with the body of Slack's incoming webhooks; other services accept it too."""
    GITHUB = "github"
    """Commit statuses of a GitHub repository."""


@dataclass(frozen=True, slots=True)
class ChannelSecret:
    """A secret that signs the messages of a channel."""

    value: str = field(repr=False)
    """The secret: ``whsec_`` and base64."""
    until: datetime | None = None
    """Time at which it expires; None for the newest secret."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Channel:
    """A notification channel."""

    id: str
    name: str
    kind: ChannelKind
    target: str
    """A URL; for GitHub ``owner/repository``."""
    lineages: tuple[str, ...] = ()
    """Patterns of lineages, such as ``release@*``; without any, all lineages match."""
    allow_private: bool = False
    """Whether private and loopback addresses, and plain HTTP, are allowed."""
    api_base: str = GITHUB_API
    """URL of GitHub's API; another one for GitHub Enterprise."""
    token_from: str = ""
    """Where the controller reads GitHub's token: ``env:NAME`` or ``file:NAME``."""
    created_at: datetime
    secrets: tuple[ChannelSecret, ...] = ()
    """Newest first, expired ones included."""

    def wants(self, lineage: str) -> bool:
        """Whether the channel is notified of this lineage."""
        return not self.lineages or any(fnmatchcase(lineage, one) for one in self.lineages)

    def signing(self, now: datetime) -> tuple[str, ...]:
        """Return the valid signing secrets, newest first."""
        return tuple(s.value for s in self.secrets if s.until is None or s.until > now)

    @property
    def shown_target(self) -> str:
        """The target without the part of the URL that may be secret."""
        if self.kind is ChannelKind.GITHUB:
            return self.target
        parts = urlsplit(self.target)
        return f"{parts.scheme}://{parts.netloc}/…"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelHealth:
    """The state of a channel's deliveries."""

    failing_since: datetime | None = None
    """Time of the first failed delivery since the last success; None without one."""
    last_success_at: datetime | None = None
    disabled_at: datetime | None = None
    """Time at which it was disabled; None otherwise. It stays so until a test message succeeds."""
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
    """``owner/repository``, or the beginning of the URL with its host; the rest may be secret."""
    lineages: tuple[str, ...]
    """Patterns of lineages, such as ``release@*``; without any, all lineages match."""
    allow_private: bool
    """Whether private and loopback addresses, and plain HTTP, are allowed."""
    api_base: str
    """URL of GitHub's API."""
    token_from: str
    """Where the controller reads GitHub's token; not the token itself."""
    created_at: datetime
    signing_secrets: int
    """Number of valid signing secrets; two after a rotation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewChannelResponse(ChannelResponse):
    """A channel that was just created."""

    secret: str | None
    """The signing secret, shown only once; None for GitHub."""
    unmatched_lineages: tuple[str, ...]
    """Patterns that match no existing lineage."""
    present_lineages: tuple[str, ...]
    """Names of existing lineages (of gates, schedules and verdicts), at most 20."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RenewedResponse:
    """The new signing secret of a channel."""

    secret: str
    """The secret; shown only once."""
    old_until: datetime | None
    """Time until which the old secret is valid."""


class DeliveryState(StrEnum):
    """State of a delivery."""

    WAITING = "waiting"
    DELIVERED = "delivered"
    FAILED = "failed"
    DISCARDED = "discarded"
    """Not sent, because the channel was disabled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """An announcement that is queued for one channel."""

    id: str
    """The ``webhook-id``, equal in all attempts, so that receivers detect repetitions."""
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
    """Result of one attempt of a delivery."""

    ACCEPTED = "accepted"
    FAILED = "failed"
    """The attempt failed and is repeated later."""
    REFUSED = "refused"
    """The receiver refused the message; it is not sent again."""
    GONE = "gone"
    """The receiver does not want further messages (HTTP 410)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryReceipt:
    """The response of a receiver to one attempt."""

    result: DeliveryResult
    response_excerpt: str
    """The HTTP status or the error for a person, in one line without secrets."""
    status: int | None = None
    retry_after_s: float | None = None
    seconds: float = 0.0

    @property
    def has_arrived(self) -> bool:
        """Whether the receiver accepted the message."""
        return self.result is DeliveryResult.ACCEPTED


@dataclass(frozen=True, slots=True)
class DeliveryAttempt:
    """One attempt of a delivery, as its log shows it."""

    delivery: str
    number: int
    at: datetime
    receipt: DeliveryReceipt


def next_look(delivery: Delivery, receipt: DeliveryReceipt, now: datetime) -> datetime | None:
    """Return the time of the next attempt; None if there is none.

    The wait grows threefold from five seconds to six hours. It is spread by a fifth, so that
    deliveries that failed together are not repeated together. A longer wait that the receiver
    requests is kept.
    """
    if receipt.result is not DeliveryResult.FAILED or now - delivery.created_at >= GIVE_UP_AFTER:
        return None
    exponent = min(delivery.attempts, 20)
    wait_s = min(_LONGEST_WAIT_S, _FIRST_WAIT_S * _GROWTH**exponent)
    wait_s *= 1 + _JITTER * _spread(f"{delivery.id}/{delivery.attempts}")
    wished_s = min(receipt.retry_after_s or 0.0, _LONGEST_WAIT_S)
    return now + timedelta(seconds=max(wait_s, wished_s))


def _spread(seed: str) -> float:
    """Return a number from -1 to 1 that depends only on the seed."""
    return int.from_bytes(sha256(seed.encode()).digest()[:4]) / 2**31 - 1


def problems_of(channel: Channel) -> Iterator[tuple[str, str]]:
    """Yield the problems of a new channel as (field, message)."""
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
    """Return the place of GitHub's token as (``env`` or ``file``, name)."""
    kind, _, name = channel.token_from.partition(":")
    return kind, name


def commit_of(announcement: Announcement) -> str | None:
    """Return the commit of an announcement; None if it has none."""
    sha = announcement.facts.get("git_sha", "").lower()
    return sha if _SHA.fullmatch(sha) else None


def status_word(announcement: Announcement) -> str:
    """Return the state of the commit status: ``success``, ``failure``, ``error`` or ``pending``."""
    if (
        announcement.state is LineageState.INCONCLUSIVE
        and announcement.facts.get("retryable") == "true"
    ):
        return "pending"
    return _STATUSES[announcement.state]


def belongs_to_repository(channel: Channel, announcement: Announcement) -> bool:
    """Whether the announcement has a commit of the channel's repository.

    False without a commit. True for a commit if the announcement names no repository.
    """
    if commit_of(announcement) is None:
        return False
    parts = (
        announcement.facts.get("repository", "").removesuffix(".git").replace(":", "/").split("/")
    )
    named = "/".join(parts[-2:]).lower()
    return not named or named == channel.target.lower()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryResponse:
    """A delivery with its attempts."""

    id: str
    """The ``webhook-id``, equal in all attempts."""
    state: DeliveryState
    is_test: bool
    lineage: str
    lineage_state: LineageState
    previous: LineageState | None
    """The lineage's previous state; None for its first announcement."""
    title: str
    created_at: datetime
    due_at: datetime | None
    """Time of the next attempt; None if the delivery is finished."""
    done_at: datetime | None
    attempts: tuple[DeliveryAttempt, ...]


class NotificationSender(Protocol):
    """Sends notifications."""

    def send(self, channel: Channel, delivery: Delivery, *, now: datetime) -> DeliveryReceipt:
        """Make one attempt of a delivery within a time limit; errors become a receipt.

        A delivery may be sent twice, because receivers recognise its id.
        """
        ...

    def new_secret(self) -> str:
        """Return a new signing secret."""
        ...
