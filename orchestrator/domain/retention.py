"""Retention: which stored parts are pruned, by which rule, and how much. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from enum import StrEnum


class RunPart(StrEnum):
    """A part of a finished run that can be pruned; results are never pruned."""

    LOGS = "logs"
    """Logs and raw events of its attempts, and the run events that refer to them."""
    ARTIFACTS = "artifacts"
    """Content of its artifacts, and its rendered reports."""
    PAYLOAD = "payload"
    """Archive of its payload; like the two wheels, it may be uploaded again."""
    SUBJECT = "subject"
    """Wheel of its subject."""
    BASELINE = "baseline"
    """Wheel or payload of its baseline."""

    @property
    def noun(self) -> str:
        """The name of the part in sentences."""
        return _NOUNS[self]


@dataclass(frozen=True, slots=True)
class KeepRule:
    """For how long something is kept."""

    days: int
    """Number of days; 0 keeps it for ever."""
    source: str
    """Name of the setting or option with the number of days."""

    def before(self, now: datetime) -> datetime | None:
        """Return the time before which things are pruned; None if they are kept for ever."""
        return now - timedelta(days=self.days) if self.days else None

    @property
    def text(self) -> str:
        """The rule in words: ``kept for 180 days (SEATRIAL_KEEP_LOGS_DAYS)``."""
        kept = f"kept for {self.days} day{'s' if self.days != 1 else ''}" if self.days else "kept"
        return f"{kept} ({self.source})"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPolicy:
    """The rules for everything that is pruned."""

    logs: KeepRule = KeepRule(180, "SEATRIAL_KEEP_LOGS_DAYS")
    """Logs and raw events, after the end of their run."""
    artifacts: KeepRule = KeepRule(365, "SEATRIAL_KEEP_ARTIFACTS_DAYS")
    """Artifacts and rendered reports, after the end of their run."""
    payloads: KeepRule = KeepRule(365, "SEATRIAL_KEEP_PAYLOADS_DAYS")
    """Payloads and wheels of subjects, after the end of the last run that used them."""
    history: KeepRule = KeepRule(365, "SEATRIAL_KEEP_HISTORY_DAYS")
    """Firings, deliveries, unapproved waivers and idempotency keys, after their end."""
    caches: KeepRule = KeepRule(14, "SEATRIAL_KEEP_CACHES_DAYS")
    """Wheelhouses in the controller's home, and the engine's records of finished cells."""

    def narrowed(self, days: int) -> RetentionPolicy:
        """Return the policy with at most `days` for everything that is not kept for ever."""
        asked = KeepRule(days, "as asked")
        names = [one.name for one in fields(self) if getattr(self, one.name).days > days]
        return replace(self, **dict.fromkeys(names, asked))


@dataclass(frozen=True, slots=True)
class Amount:
    """How much was pruned or would be pruned."""

    rows: int = 0
    """Number of rows, files or folders."""
    size_bytes: int = 0
    """Stored size; 0 if it is not known."""

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.rows + other.rows, self.size_bytes + other.size_bytes)

    def __bool__(self) -> bool:
        return self.rows > 0


@dataclass(frozen=True, slots=True)
class PruneLine:
    """The pruned amount of one kind of thing."""

    what: str
    rows: int
    """Number of rows, files or folders."""
    size_bytes: int
    """Stored size; 0 if it is not known, or counted in another line."""
    rule: str
    """For how long it is kept, and the setting of that."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneReport:
    """What was pruned or would be pruned."""

    at: datetime
    dry_run: bool
    """Whether this is a preview, so that nothing was removed."""
    is_complete: bool
    """Whether everything was pruned; False if the time limit came first."""
    lines: tuple[PruneLine, ...]
    kept: Mapping[str, int]
    """Number of runs whose logs and artifacts are kept although they are old enough, by reason."""
    remarks: tuple[str, ...] = ()
    """Sentences about things that were left out."""
    last_at: datetime | None = None
    """When the last complete prune ended; None before the first."""

    def then(self, later: PruneReport) -> PruneReport:
        """Return the sum of this report and that of the next call."""
        sums = {line.what: Amount(line.rows, line.size_bytes) for line in self.lines}
        lines = tuple(
            replace(
                line, rows=line.rows + before.rows, size_bytes=line.size_bytes + before.size_bytes
            )
            for line in later.lines
            for before in [sums.get(line.what, Amount())]
        )
        return replace(later, lines=lines, last_at=self.last_at)

    @property
    def rows(self) -> int:
        """Number of rows in all lines."""
        return sum(line.rows for line in self.lines)

    @property
    def size_bytes(self) -> int:
        """Stored bytes in all lines."""
        return sum(line.size_bytes for line in self.lines)


@dataclass(frozen=True, slots=True)
class PrunedPart:
    """A part of a run that was pruned."""

    part: RunPart
    at: datetime
    rule: str

    def of(self, run: str) -> str:
        """Return the sentence that a page shows instead of the part."""
        return f"{self.part.noun} of run {run} {self.when}"

    @property
    def when(self) -> str:
        """When and by which rule the part was pruned, as the predicate of a sentence."""
        verb = "were" if self.part is RunPart.ARTIFACTS else "was"
        return f"{verb} pruned at {self.at:%Y-%m-%d %H:%M} UTC: {self.rule}"


_NOUNS: Mapping[RunPart, str] = {
    RunPart.LOGS: "the log",
    RunPart.ARTIFACTS: "the artifacts",
    RunPart.PAYLOAD: "the payload",
    RunPart.SUBJECT: "the subject's wheel",
    RunPart.BASELINE: "the baseline",
}
