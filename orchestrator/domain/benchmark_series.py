"""Values of a benchmark over several runs, with their change points."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePoint:
    """A lasting change of the level of a series."""

    index: int
    """Index of the first value on the new level."""
    before: float
    after: float
    """Medians before and after the change, each up to the next change point."""
    change: float
    """Relative change: 0.05 is 5 % higher. The metric's direction decides whether it is better."""
    p: float
    """p-value: the probability of such a change in a series that has none."""
    environment_changed: bool = False
    """Whether packages, driver or device changed at the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesPoint:
    """The measurement of one run."""

    run: str
    version: str
    """Version of the subject."""
    at: datetime
    value: float
    """Median of the samples; for a paired benchmark, median of the subject's turns."""
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
    """A change point of a series, with its run and the differences of the environment."""

    run: str
    """The first run on the new level."""
    is_worse: bool
    """Whether the new level is worse, by the metric's direction."""
    environment: tuple[EnvironmentDifference, ...]
    """Changes of the environment at about the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkSeries:
    """The values of a benchmark on one platform, in order of time."""

    job: str
    metric: str
    cell: str
    platform: str
    unit: str
    direction: str
    """Which values are better: ``higher`` or ``lower``."""
    params: Mapping[str, object]
    points: tuple[SeriesPoint, ...]
    changes: tuple[SeriesChange, ...]
    """The change points; they are information only, no gate uses them."""
    autocorrelation: float | None
    """Lag-1 autocorrelation; null for fewer than 8 values."""
    is_noisy: bool
    """Whether the change points are unreliable, for the reasons in `doubts`."""
    doubts: tuple[str, ...]
