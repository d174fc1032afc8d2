"""How much is filled in, by name."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Size:
    """So many nights, cells, tests and benchmarks."""

    name: str
    nights: int
    """Nights with a run of the tests."""
    platforms: int
    """Of `plans.MACHINES`, from the first; one of them has two environments, so two cells."""
    tests: int
    """Of the product, in the end; some are added on the way."""
    streaks: int
    """Kinds of failures that stay for some nights."""
    benchmarks: int
    measured_nights: int
    """Nights with a run of the benchmarks, on two platforms."""
    log_lines: int
    """Of the longest log."""
    judged: int
    """Newest nights that the gates decided on."""

    @property
    def results(self) -> int:
        """About so many."""
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
