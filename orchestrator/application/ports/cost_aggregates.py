"""What machines came to, summed up. Each method is one transaction, and one statement.

Of machines that are real and settled, whose leases were reserved within a span of time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Protocol

from orchestrator.domain.cell import CellState, RunState
from orchestrator.domain.outcome import Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Sum:
    """What some machines came to."""

    machines: int = 0
    seconds: float = 0.0
    """They were held for so long together."""
    usd: Decimal = Decimal(0)
    reserved_usd: Decimal = Decimal(0)
    """So much was set aside for them."""

    def __add__(self, other: Sum) -> Sum:
        """Both together."""
        return Sum(
            machines=self.machines + other.machines,
            seconds=self.seconds + other.seconds,
            usd=self.usd + other.usd,
            reserved_usd=self.reserved_usd + other.reserved_usd,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    """What the machines of one day, platform, provider and version came to."""

    day: str
    """In UTC, of the reservation: ``2026-11-21``."""
    platform: str
    """The cell's name."""
    provider: str
    version: str
    """The subject's name and version."""
    sum: Sum


@dataclass(frozen=True, slots=True)
class RunSum:
    """What a run came to."""

    run: str
    matrix: str
    subject: str
    version: str
    launched_at: datetime
    state: RunState
    outcome: Outcome | None
    sum: Sum


@dataclass(frozen=True, slots=True)
class PhaseSum:
    """How long, and for how much, the machines of a platform were in one state."""

    platform: str
    phase: CellState
    seconds: float
    usd: Decimal


@dataclass(frozen=True, slots=True)
class Refusals:
    """How often a provider gave no machine at a place, for one reason."""

    provider: str
    place: str
    reason: str
    """``capacity``, ``quota`` ..."""
    count: int
    last_at: datetime
    last_said: str
    """The provider's answer, the last time."""


class BillStore(Protocol):
    """Sums over the ledger."""

    def accounts(self, since: datetime, until: datetime) -> Sequence[Account]:
        """In the order of days; at most one for each day, platform, provider and version."""
        ...

    def runs(
        self, since: datetime, until: datetime, *, limit: int, skip: int = 0
    ) -> Sequence[RunSum]:
        """What cost most first; runs that cost nothing are left out."""
        ...

    def of_runs(self, runs: Sequence[str]) -> dict[str, Decimal]:
        """What each came to; those without machines are left out."""
        ...

    def phases(self, since: datetime, until: datetime) -> Sequence[PhaseSum]:
        """Of machines that cost something."""
        ...

    def refusals(self, since: datetime, until: datetime, *, limit: int) -> Sequence[Refusals]:
        """What happened most often first; of real and of simulated providers."""
        ...

    def simulated_usd(self, since: datetime, until: datetime) -> Decimal:
        """What machines would have come to that are not real."""
        ...
