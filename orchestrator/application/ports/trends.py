"""Trends: where the level of a series of runs changed. They inform, and never block a release."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePoint:
    """A step of a series that stayed."""

    index: int
    """Of the first value on the new level."""
    before: float
    after: float
    """Medians of the levels on both sides, up to the next change point."""
    change: float
    """0.05: the new level is 5 % higher. Whether that is better, the metric knows."""
    p: float
    """Of a step as clear as this one in a series that has none."""
    environment_changed: bool = False
    """Packages, driver or device are others since then, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """What a series shows."""

    changes: tuple[ChangePoint, ...] = ()
    """In the order of the series."""
    autocorrelation: float | None = None
    """Of each value with the one before, around the levels; None of too few values."""
    doubts: tuple[str, ...] = ()
    """Why its change points prove nothing, for a person."""

    @property
    def is_noisy(self) -> bool:
        """Its change points are no more than something to look at."""
        return bool(self.doubts)


class Watched(NamedTuple):
    """A series to look at, in the order of time."""

    values: Sequence[float]
    environments: Sequence[str] = ()
    """The fingerprint of each value's environment; none at all where nobody asks."""


class Detector(Protocol):
    """Finds change points. Same series, same answer."""

    def detect(self, values: Sequence[float], environments: Sequence[str] = ()) -> Trend:
        """Look at a series in the order of time.

        Args:
            values: One per run.
            environments: The fingerprint of each run's environment, empty where it is not known;
                none at all where nobody asks.

        Raises:
            ValueError: There are not as many fingerprints as values.
        """
        ...

    def changes(self, many: Sequence[Watched]) -> Sequence[Sequence[ChangePoint]]:
        """The change points of many series at once, as `detect` finds them in each."""
        ...
