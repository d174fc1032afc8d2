"""Retention: what is pruned, by which rule, and how much. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import datetime, timedelta
from enum import StrEnum


class RunPart(StrEnum):
    """A part of a finished run that can be pruned; results are never pruned."""

    LOGS = "logs"
    """Logs and raw events of its attempts, and the run events that pointed at them."""
    ARTIFACTS = "artifacts"
    """Bytes of its artifacts, and its rendered reports."""
    PAYLOAD = "payload"
    """The archive of its payload; like the next two, it may be uploaded again."""
    SUBJECT = "subject"
    """The wheel of its subject."""
    BASELINE = "baseline"
    """The wheel or the payload of its baseline."""

    @property
    def noun(self) -> str:
        """The part's name in a sentence."""
        return _NOUNS[self]


@dataclass(frozen=True, slots=True)
class KeepRule:
    """How long something is kept."""

    days: int
    """0 keeps it for ever."""
    source: str
    """The setting or option that says so."""

    def before(self, now: datetime) -> datetime | None:
        """Return the time before which something is pruned; None for never."""
        return now - timedelta(days=self.days) if self.days else None

    @property
    def text(self) -> str:
        """The rule for a person: ``kept for 180 days (SEATRIAL_KEEP_LOGS_DAYS)``."""
        kept = f"kept for {self.days} day{'s' if self.days != 1 else ''}" if self.days else "kept"
        return f"{kept} ({self.source})"


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPolicy:
    """How long each thing is kept."""

    logs: KeepRule = KeepRule(180, "SEATRIAL_KEEP_LOGS_DAYS")
    """Logs and raw events, after the end of their run."""
    artifacts: KeepRule = KeepRule(365, "SEATRIAL_KEEP_ARTIFACTS_DAYS")
    """Artifacts and rendered reports, after the end of their run."""
    payloads: KeepRule = KeepRule(365, "SEATRIAL_KEEP_PAYLOADS_DAYS")
    """Payloads and wheels of subjects, after the end of the last run that used them."""
    history: KeepRule = KeepRule(365, "SEATRIAL_KEEP_HISTORY_DAYS")
    """Firings, deliveries, unapproved waivers and idempotency keys, after their end."""
    caches: KeepRule = KeepRule(14, "SEATRIAL_KEEP_CACHES_DAYS")
    """Wheelhouses in the home, and the engine's records of finished cells."""

    def narrowed(self, days: int) -> RetentionPolicy:
        """Return the policy with at most so many days for everything that is pruned at all."""
        asked = KeepRule(days, "as asked")
        names = [one.name for one in fields(self) if getattr(self, one.name).days > days]
        return replace(self, **dict.fromkeys(names, asked))


@dataclass(frozen=True, slots=True)
class Amount:
    """How much was pruned, or would be."""

    rows: int = 0
    """Rows of a table, files, or folders."""
    size_bytes: int = 0
    """Their size as stored; 0 if it is not known."""

    def __add__(self, other: Amount) -> Amount:
        return Amount(self.rows + other.rows, self.size_bytes + other.size_bytes)

    def __bool__(self) -> bool:
        return self.rows > 0


@dataclass(frozen=True, slots=True)
class PruneLine:
    """One kind of what is pruned."""

    what: str
    rows: int
    """Rows, files or folders."""
    size_bytes: int
    """Their size as stored; 0 if it is not known or counted elsewhere."""
    rule: str
    """How long it is kept, and where that is set."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneReport:
    """What was pruned, or would be."""

    at: datetime
    dry_run: bool
    """Whether nothing was removed."""
    is_complete: bool
    """Whether nothing is left to prune; False if its time ran out first."""
    lines: tuple[PruneLine, ...]
    kept: Mapping[str, int]
    """Runs past a rule whose logs and artifacts are kept all the same, by reason."""
    remarks: tuple[str, ...] = ()
    """What was left out, for a person."""
    last_at: datetime | None = None
    """When the last prune came to its end; None before the first."""

    def then(self, later: PruneReport) -> PruneReport:
        """Return this report and that of the next call as one."""
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
        """Number of rows of all lines."""
        return sum(line.rows for line in self.lines)

    @property
    def size_bytes(self) -> int:
        """Stored size of everything counted, in bytes."""
        return sum(line.size_bytes for line in self.lines)


@dataclass(frozen=True, slots=True)
class PrunedPart:
    """A part of a run that was pruned."""

    part: RunPart
    at: datetime
    rule: str

    def of(self, run: str) -> str:
        """Return the sentence that a page shows in place of the part."""
        return f"{self.part.noun} of run {run} {self.when}"

    @property
    def when(self) -> str:
        """Return when the part was pruned and by which rule, as the predicate of a sentence."""
        verb = "were" if self.part is RunPart.ARTIFACTS else "was"
        return f"{verb} pruned at {self.at:%Y-%m-%d %H:%M} UTC: {self.rule}"


_NOUNS: Mapping[RunPart, str] = {
    RunPart.LOGS: "the log",
    RunPart.ARTIFACTS: "the artifacts",
    RunPart.PAYLOAD: "the payload",
    RunPart.SUBJECT: "the subject's wheel",
    RunPart.BASELINE: "the baseline",
}
