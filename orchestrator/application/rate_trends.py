"""Pass rates per platform and suite, day by day."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from fractions import Fraction

from orchestrator.domain.outcome import Counts
from orchestrator.store.release_board import DayRate


@dataclass(frozen=True, slots=True)
class Day:
    """What the tests of a day came to."""

    day: date
    runs: int
    counts: Counts


@dataclass(frozen=True, slots=True)
class RateTrend:
    """The days of one suite on one platform, the oldest first; only those with tests."""

    cell: str
    job: str
    """Empty of all suites together."""
    days: Sequence[Day]

    @property
    def latest(self) -> Day:
        """The newest day."""
        return self.days[-1]

    @property
    def change(self) -> Fraction | None:
        """Of the pass rate, from the last day before that has one; None where none has."""
        now = self.latest.counts.pass_rate
        before = (day.counts.pass_rate for day in reversed(self.days[:-1]))
        earlier = next((rate for rate in before if rate is not None), None)
        return None if now is None or earlier is None else now - earlier


def rate_trends(rates: Iterable[DayRate]) -> Mapping[tuple[str, str], RateTrend]:
    """By platform and suite; of each platform also all suites together, as ``""``.

    A day of all suites together counts the runs of the suite that had most.
    """
    found: dict[tuple[str, str], dict[date, Day]] = {}
    for rate in rates:
        for job in (rate.job, ""):
            days = found.setdefault((rate.cell, job), {})
            known = days.get(rate.day, Day(rate.day, 0, Counts()))
            runs = max(known.runs, rate.runs)
            days[rate.day] = Day(rate.day, runs, known.counts + rate.counts)
    return {
        (cell, job): RateTrend(cell, job, [days[day] for day in sorted(days)])
        for (cell, job), days in found.items()
    }
