"""Amounts of data, by name."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Size:
    """Numbers of nights, cells, tests and benchmarks."""

    name: str
    nights: int
    """Number of nights with a run of the tests."""
    platforms: int
    """Number of machines of `plans.MACHINES`; one of them has two environments, so two cells."""
    tests: int
    """Number of the product's tests at the end; some are added on the way."""
    streaks: int
    """Number of failure kinds that last for some nights."""
    benchmarks: int
    measured_nights: int
    """Number of nights with a run of the benchmarks, on two platforms."""
    log_lines: int
    """Number of lines of the longest log."""
    judged: int
    """Number of newest nights with verdicts of the gates."""

    @property
    def results(self) -> int:
        """Approximate number of test results."""
        return self.nights * (self.platforms + 1) * self.tests


SIZES = {
    size.name: size
    for size in (
        Size("small", 12, 4, 60, 6, 4, 24, 4_000, 6),
        Size("medium", 57, 9, 1_000, 60, 100, 365, 200_000, 20),
        Size("large", 116, 9, 1_000, 120, 500, 730, 1_000_000, 40),
        Size("full", 575, 9, 2_000, 400, 500, 730, 1_000_000, 40),
    )
}
"""`small` is for people and browsers, `medium` for SQLite, the others for Postgres."""
