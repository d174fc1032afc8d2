"""Announcements of a lineage of verdicts, and which of them are news."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

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
    def of(cls, decision: Decision) -> LineageState:
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
    """A link to details; empty where the controller's public address is not known."""
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
    """The text as one line, without controls and marks that change direction, cut to the limit."""
    return _cut(" ".join(_harmless(text).split()), limit)


def paragraphs(text: str, limit: int) -> str:
    """Return a text like `one_line`, but with its line breaks."""
    return _cut(_harmless(text).strip(), limit)


def _harmless(text: str) -> str:
    text = text.replace("\r\n", "\n")
    return "".join(c if c.isprintable() or c in _BREAKS else _REPLACEMENT for c in text)


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[: limit - 1] + "…"
