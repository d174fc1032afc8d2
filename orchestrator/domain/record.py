"""A run as it is told: what `show`, the watchers and the reports all read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal

from orchestrator.domain.cell import Attempt, CellState, Run, Transition
from orchestrator.domain.facts import CheckFact, MetricFact, Notice, TestFact
from orchestrator.domain.matrix import Platform
from orchestrator.domain.outcome import Counts, Outcome


@dataclass(frozen=True, slots=True)
class JobRecord:
    """One job of one cell."""

    id: str
    kind: str
    title: str
    outcome: Outcome | None
    """None while it is not over."""
    reason: str = ""
    detail: str = ""
    degraded: str | None = None
    counts: Counts = field(default_factory=Counts)
    """Pytest results only; `missing` are those not yet reported while the job runs."""
    checks: tuple[CheckFact, ...] = ()
    metrics: tuple[MetricFact, ...] = ()
    started_at: datetime | None = None
    duration_s: float | None = None
    timeout_s: float = 0.0
    current: str = ""
    """The test that runs now."""


@dataclass(frozen=True, slots=True)
class ArtifactRecord:
    """A raw file that came home."""

    name: str
    size_bytes: int
    digest: str


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """One machine of a cell, and its money."""

    attempt: int
    provider: str
    place: str
    state: str
    machine_id: str
    address: str
    """How it was reached, for a person."""
    price_usd_per_hour: Decimal | None
    seconds: float
    cost_usd: Decimal
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class CellRecord:
    """One platform x environment of the run."""

    id: str
    platform: Platform
    environment: str
    state: CellState
    entered_at: datetime
    outcome: Outcome | None
    reason: str
    detail: str
    jobs: tuple[JobRecord, ...]
    attempts: tuple[Attempt, ...]
    transitions: tuple[Transition, ...]
    leases: tuple[LeaseRecord, ...]
    probed: Mapping[str, object]
    """The agent's `environment` event; empty before it came."""
    notices: tuple[Notice, ...]
    artifacts: tuple[ArtifactRecord, ...]
    simulated: bool = False

    @property
    def counts(self) -> Counts:
        """Of all its suites."""
        total = Counts()
        for job in self.jobs:
            total = total + job.counts
        return total

    @property
    def cost_usd(self) -> Decimal:
        """Of all its machines, so far."""
        return sum((lease.cost_usd for lease in self.leases), Decimal(0))


@dataclass(frozen=True, slots=True)
class RunRecord:
    """The whole run."""

    run: Run
    cells: tuple[CellRecord, ...]
    as_of: datetime

    @property
    def counts(self) -> Counts:
        """Of all cells."""
        total = Counts()
        for cell in self.cells:
            total = total + cell.counts
        return total

    @property
    def cost_usd(self) -> Decimal:
        """Of all machines, so far."""
        return sum((cell.cost_usd for cell in self.cells), Decimal(0))

    def cell(self, name: str) -> CellRecord | None:
        """The cell of this id."""
        return next((cell for cell in self.cells if cell.id == name), None)


@dataclass(frozen=True, slots=True)
class Evidence:
    """A run with every test of every cell: what a report is made from."""

    record: RunRecord
    tests: Mapping[str, tuple[TestFact, ...]]
    """By cell id, in the order they were collected."""
