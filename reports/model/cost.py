"""The cost report: what one run was paid for, told by machine, by state, by job and by test."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from reports.model.money import Costs, Money
from reports.model.provenance import DecisionRow
from reports.model.values import Absent, ReportModel, Status, Tally


@dataclass(frozen=True, slots=True)
class PartRow:
    """What one state, one job, or nothing at all cost, on every cell."""

    name: str
    usd: tuple[Decimal | Absent, ...]
    """By cell."""
    total_usd: Decimal
    """Derived: the sum over the cells."""
    percent: float | Absent
    """Derived: ``100 * total / the run's total``, not rounded; absent of nothing."""


@dataclass(frozen=True, slots=True)
class CellCost:
    """One cell's money."""

    cell: str
    heading: str
    status: Status
    simulated: bool
    tally: Tally | Absent
    money: Money
    busy_s: float | Absent
    """How long its jobs ran; absent where nobody said."""
    idle_s: float | Absent
    """Derived: ``held - busy``, and never below 0: booting, installing, giving back, the gaps."""
    refused: tuple[DecisionRow, ...]
    """Places that were asked and did not give a machine, or were not asked for a reason."""
    refused_hidden: int

    @property
    def validated(self) -> int | Absent:
        """Tests that passed or failed, whatever that cost."""
        tally = self.tally
        return tally if isinstance(tally, Absent) else tally.passed + tally.failed


@dataclass(frozen=True, slots=True, kw_only=True)
class CostReport(ReportModel):
    """One run's money."""

    date: datetime
    status: Status
    cells: tuple[CellCost, ...]
    costs: Costs | Absent
    """Derived: the sum of the cells that have a cost."""
    phases: tuple[PartRow, ...]
    jobs: tuple[PartRow, ...]
    """Jobs, and last what was spent on none of them."""
