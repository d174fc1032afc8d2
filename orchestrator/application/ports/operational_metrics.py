"""What goes on, in numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Protocol


class Figure(StrEnum):
    """What is counted, by which two labels; an empty label says that there is none."""

    RUNS = "runs"
    """By state and outcome."""
    CELLS = "cells"
    """By state and outcome."""
    LEASES = "leases"
    """By provider and state."""
    SPENT_USD = "spent_usd"
    """By provider; of real machines that are settled."""
    RESERVED_USD = "reserved_usd"
    """By provider; of real machines that are not."""
    ORPHANS = "orphans"
    """By provider: what a cloud has and the ledger knows nothing of."""
    DELIVERIES = "deliveries"
    """By state."""
    CHANNELS = "channels"
    """By state."""
    FIRINGS = "firings"
    """Of schedules, by state."""
    VERDICTS = "verdicts"
    """By gate and decision."""


@dataclass(frozen=True, slots=True)
class Figures:
    """Everything at one time."""

    counts: Mapping[Figure, Mapping[tuple[str, str], float]] = field(default_factory=dict)
    oldest_waiting_at: datetime | None = None
    """When the oldest delivery that waits was made."""
    late_firings: int = 0
    """Open ones whose deadline has passed."""

    def of(self, figure: Figure) -> Mapping[tuple[str, str], float]:
        """One of the counts."""
        return self.counts.get(figure, {})


class FigureStore(Protocol):
    """What goes on, in numbers."""

    def snapshot(self, now: datetime) -> Figures:
        """Everything, read in one transaction; the labels are few."""
        ...
