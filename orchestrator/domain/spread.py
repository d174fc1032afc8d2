"""Where samples lie: their middle, and how far they spread."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

LARGEST = 1e300
"""Samples beyond it are no measurements, and their sums no numbers."""

IQR_FROM = 5
"""Samples from which on quartiles say more than the extremes."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Where samples lie, in their own unit."""

    median: float
    low: float
    high: float
    kind: str
    """``iqr``, ``range`` or ``none``."""


def spread_of(samples: Sequence[float]) -> Spread | None:
    """Median with quartiles (inclusive method) or extremes; None where a sample is no number."""
    if not samples or not all(abs(sample) < LARGEST for sample in samples):
        return None
    middle = statistics.median(samples)
    if len(samples) == 1:
        return Spread(middle, middle, middle, "none")
    if len(samples) < IQR_FROM:
        return Spread(middle, min(samples), max(samples), "range")
    low, _, high = statistics.quantiles(samples, n=4, method="inclusive")
    return Spread(middle, low, high, "iqr")
