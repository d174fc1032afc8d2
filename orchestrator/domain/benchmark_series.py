"""Series of a benchmark over runs, with its change points."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePoint:
    """A lasting step of a series."""

    index: int
    """Index of the first value on the new level."""
    before: float
    after: float
    """Medians on both sides, up to the next change point."""
    change: float
    """Relative change: 0.05 is 5 % higher. The metric's direction decides whether it is better."""
    p: float
    """p-value: probability of such a step in a series without any."""
    environment_changed: bool = False
    """Whether packages, driver or device changed too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesPoint:
    """Measurement of one run."""

    run: str
    version: str
    """Version of the subject."""
    at: datetime
    value: float
    """Median of the samples; of a paired benchmark, of the subject's turns."""
    samples: int
    environment: str
    """Fingerprint of the environment; empty if it is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentDifference:
    """A difference of the environment."""

    what: str
    before: str
    since: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesChange(ChangePoint):
    """A change point of a series."""

    run: str
    """The first run on the new level."""
    is_worse: bool
    """Whether it is a loss, by the metric's direction."""
    environment: tuple[EnvironmentDifference, ...]
    """Environment changes at about the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkSeries:
    """A benchmark on one platform, in order of time."""

    job: str
    metric: str
    cell: str
    platform: str
    unit: str
    direction: str
    """``higher`` or ``lower`` is better."""
    params: Mapping[str, object]
    points: tuple[SeriesPoint, ...]
    changes: tuple[SeriesChange, ...]
    """Change points; they inform, and no gate uses them."""
    autocorrelation: float | None
    """Lag-1 autocorrelation; null for fewer than 8 values."""
    is_noisy: bool
    """Whether the change points prove nothing, for the reasons in `doubts`."""
    doubts: tuple[str, ...]
