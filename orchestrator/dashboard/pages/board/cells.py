"""The cells of the board's tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from fractions import Fraction
from typing import ClassVar

from orchestrator.application.rate_trends import RateTrend
from orchestrator.application.release_board import Staleness
from orchestrator.dashboard.charts import Picture, sparkline
from orchestrator.dashboard.labels import age
from orchestrator.dashboard.table import Plain, Tally
from orchestrator.domain.outcome import Counts
from orchestrator.domain.vocabulary import Term, term

Figure = tuple[Term, int]
"""What is counted, and how many there are."""
_SHOWN = ("failed", "error", "missing", "not_run", "skipped", "xpassed")
_WHY_STALE = {
    Staleness.LEFT_BEHIND: "a newer run has nothing from here",
    Staleness.TOO_OLD: "older than the gates believe",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What a version's tests came to on a platform: outcome, counts, age."""

    kind: ClassVar[str] = "evidence"
    word: str
    href: str = ""
    counts: Counts = Counts()
    at: datetime | None = None
    now: datetime | None = None
    note: str = ""
    staleness: Staleness | None = None

    @property
    def figures(self) -> Sequence[Figure]:
        """The counts that are not zero, each with its sign; passed always."""
        if not self.counts.collected:
            return ()
        return [(term("passed"), self.counts.passed), *beside(self.counts)]

    @property
    def told(self) -> str:
        """The counts in words."""
        return in_words(self.figures)

    @property
    def age(self) -> str:
        """Of the evidence."""
        return age(self.at, self.now) if self.at is not None and self.now is not None else ""

    @property
    def why_stale(self) -> str:
        """In words; empty where it is not."""
        return _WHY_STALE[self.staleness] if self.staleness is not None else ""

    def plain(self) -> Plain:
        """The outcome with its counts."""
        if self.at is None:
            return {"outcome": self.word}
        return {
            "outcome": self.word,
            **self.counts.as_dict(),
            "at": self.at.isoformat(timespec="seconds"),
            "note": self.note or None,
            "stale": self.why_stale or None,
        }

    def text(self) -> str:
        """``✗ failed (975 passed, 4 failed; 7 h; stale)``."""
        shown = term(self.word)
        stale = "stale" if self.staleness else ""
        more = "; ".join(part for part in (self.told, self.note, self.age, stale) if part)
        return f"{shown.glyph} {shown.word} ({more})" if more else f"{shown.glyph} {shown.word}"


@dataclass(frozen=True, slots=True)
class Rate:
    """A pass rate now, how it came there, and what it is of."""

    kind: ClassVar[str] = "rate"
    trend: RateTrend
    low: float
    """What the lower edge of the picture stands for."""
    late: str
    """How old its newest day is, where others have newer ones."""

    @property
    def tally(self) -> Tally:
        """Of the newest day."""
        return Tally(self.trend.latest.counts)

    @property
    def picture(self) -> Picture:
        """A point a day."""
        rates = [_percentage(day.counts.pass_rate) for day in self.trend.days]
        return sparkline(rates, low=self.low, high=100.0, width=96, height=22)

    @property
    def label(self) -> str:
        """The picture in words."""
        days = self.trend.days
        return f"{self.trend.cell}, {len(days)} days: from {_rate(days[0].counts)} to {self.rate}"

    @property
    def rate(self) -> str:
        """The newest."""
        return _rate(self.trend.latest.counts)

    @property
    def of(self) -> str:
        """Passed of judged."""
        if not self.tally.judged:
            return ""
        return f"{self.tally.counts.passed:,}/{self.tally.judged:,}"

    @property
    def figures(self) -> Sequence[Figure]:
        """What stands beside the rate."""
        return beside(self.trend.latest.counts)

    @property
    def told(self) -> str:
        """The same in words."""
        return in_words(self.figures)

    @property
    def change(self) -> str:
        """``+0.3`` or ``−1.2`` points; empty where it stayed."""
        return points(self.trend.change)

    @property
    def is_worse(self) -> bool:
        """Whether it fell."""
        return self.trend.change is not None and self.trend.change < 0

    def plain(self) -> Plain:
        """The newest counts, and every day."""
        return {
            **self.trend.latest.counts.as_dict(),
            "pass_rate": _fraction(self.trend.latest.counts.pass_rate),
            "change": _fraction(self.trend.change),
            "days": [
                {
                    "day": day.day.isoformat(),
                    "runs": day.runs,
                    **day.counts.as_dict(),
                    "pass_rate": _fraction(day.counts.pass_rate),
                }
                for day in self.trend.days
            ],
        }

    def text(self) -> str:
        """The newest rate with its counts, and the change."""
        change = f", {self.change} points" if self.change else ""
        late = f", {self.late} old" if self.late else ""
        return f"{self.tally.text()}{change}{late}"


def beside(counts: Counts) -> list[Figure]:
    """The counts that are no passes, where there are any."""
    counted = counts.as_dict()
    return [(term(word), counted[word]) for word in _SHOWN if counted[word]]


def in_words(figures: Iterable[Figure]) -> str:
    """``4 failed, 15 skipped``."""
    return ", ".join(f"{many:,} {what.word}" for what, many in figures)


def points(change: Fraction | None) -> str:
    """A change of a rate in points; none is said of what rounds to nothing but is something."""
    if not change:
        return ""
    size = abs(float(change)) * 100
    shown = f"{size:.1f}" if size >= 0.05 else "<0.1"
    return f"{'+' if change > 0 else '−'}{shown}"


def _rate(counts: Counts) -> str:
    return Tally(counts).rate


def _percentage(rate: Fraction | None) -> float | None:
    return None if rate is None else float(rate) * 100


def _fraction(rate: Fraction | None) -> float | None:
    return None if rate is None else float(rate)
