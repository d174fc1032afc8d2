"""Ports of statistics: trend detection (never blocks a release) and text similarity."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from orchestrator.domain.benchmark_series import ChangePoint


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """Change points of a series, and the reasons to doubt them."""

    changes: tuple[ChangePoint, ...] = ()
    """Change points in the order of the series."""
    autocorrelation: float | None = None
    """Lag-1 autocorrelation around the levels; None with too few values."""
    doubts: tuple[str, ...] = ()
    """Why the change points prove nothing, one sentence per reason; empty if they can be trusted.
    """

    @property
    def is_noisy(self) -> bool:
        """Whether there are doubts: noise, changed environments, values that are not positive."""
        return bool(self.doubts)


class Watched(NamedTuple):
    """A series of values in order of time."""

    values: Sequence[float]
    environments: Sequence[str] = ()
    """Environment fingerprint of each value; empty if it is not needed."""


class Detector(Protocol):
    """Detects change points; deterministic."""

    def detect(self, values: Sequence[float], environments: Sequence[str] = ()) -> Trend:
        """Return the trend of a series in order of time.

        Args:
            values: One per run.
            environments: Fingerprint of each run's environment, empty if unknown; an empty
            sequence ignores environments.

        Raises:
            ValueError: There are not as many fingerprints as values.
        """
        ...

    def changes(self, many: Sequence[Watched]) -> Sequence[Sequence[ChangePoint]]:
        """Return the change points of many series, as `detect` does for each."""
        ...


class TextSimilarity(Protocol):
    """Similarity of names and messages."""

    def names(self, one: str, other: str) -> float:
        """Return the similarity of two function names, from 0 to 1."""
        ...

    def messages(self, one: str, other: str) -> float:
        """Return the similarity of two masked messages, from 0 to 100, in any word order."""
        ...
