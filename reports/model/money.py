"""Costs of machines. Values are unrounded; every sum is derived from its rows."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from orchestrator.domain.cell import PlacementDecision
from reports.model.values import Absent, ReportModel, Status, Tally


@dataclass(frozen=True, slots=True)
class CostBreakdown:
    """A total cost, and its parts."""

    machine_usd: Decimal
    disk_usd: Decimal
    address_usd: Decimal
    total_usd: Decimal
    """Derived: the sum of the parts."""


@dataclass(frozen=True, slots=True)
class MoneyRow:
    """One machine and its price, or the provider's refusal."""

    attempt: int
    provider: str
    place: str
    state: str
    machine_id: str
    instance_type: str
    market: str
    priced: str
    """Where the price is from."""
    simulated: bool
    seconds: float | Absent
    billed_s: int | Absent
    """Whole seconds of the machine's price; at least those that it was held."""
    price_usd_per_hour: Decimal | Absent
    bill: CostBreakdown | Absent
    """Derived: its machine's part is ``billed_s * price / 3600``, to a hundredth of a cent."""
    refusal: str


@dataclass(frozen=True, slots=True)
class CostShare:
    """The part of a cost that one state, or one job, took."""

    name: str
    usd: Decimal


@dataclass(frozen=True, slots=True)
class Costs:
    """A cost with all its breakdowns."""

    bill: CostBreakdown
    """Derived: the sum of the machines'."""
    phases: tuple[CostShare, ...]
    """Costs by the state of the cell. Derived: their sum is the total."""
    jobs: tuple[CostShare, ...]
    overhead_usd: Decimal
    """Costs outside of all jobs. Derived: with the jobs' costs it is the total."""
    validated: int
    """Derived: tests that passed or failed."""
    usd_per_validated: Decimal | Absent
    """Derived: ``total / validated``, to the millionth."""


@dataclass(frozen=True, slots=True)
class Money:
    """The costs of a cell's machines."""

    rows: tuple[MoneyRow, ...]
    seconds: float | Absent
    """Derived: the sum of the rows."""
    costs: Costs | Absent

    @property
    def cost_usd(self) -> Decimal | Absent:
        """The total cost."""
        return self.costs if isinstance(self.costs, Absent) else self.costs.bill.total_usd

    @property
    def charged(self) -> tuple[MoneyRow, ...]:
        """The machines that have a bill."""
        return tuple(row for row in self.rows if not isinstance(row.bill, Absent))

    @property
    def markets(self) -> str:
        """``spot``; several are all named."""
        return ", ".join(dict.fromkeys(row.market for row in self.charged if row.market))


@dataclass(frozen=True, slots=True)
class PartRow:
    """The costs of one state, one job, or idle time, by cell."""

    name: str
    usd: tuple[Decimal | Absent, ...]
    """By cell."""
    total_usd: Decimal
    """Derived: the sum over the cells."""
    percent: float | Absent
    """Derived: ``100 * total / the run's total``, not rounded; absent of nothing."""


@dataclass(frozen=True, slots=True)
class CostColumn:
    """The costs of one cell."""

    cell: str
    heading: str
    status: Status
    simulated: bool
    tally: Tally | Absent
    money: Money
    busy_s: float | Absent
    """Seconds that its jobs ran; absent if unknown."""
    idle_s: float | Absent
    """Derived: ``held - busy``, and never below 0: booting, installing, giving back, the gaps."""
    refused: tuple[PlacementDecision, ...]
    """Places that were asked and did not give a machine, or were not asked for a reason."""
    refused_hidden: int

    @property
    def validated(self) -> int | Absent:
        """Number of tests that passed or failed."""
        tally = self.tally
        return tally if isinstance(tally, Absent) else tally.passed + tally.failed


@dataclass(frozen=True, slots=True, kw_only=True)
class CostReport(ReportModel):
    """The costs of one run."""

    date: datetime
    status: Status
    cells: tuple[CostColumn, ...]
    costs: Costs | Absent
    """Derived: the sum of the cells that have a cost."""
    phases: tuple[PartRow, ...]
    jobs: tuple[PartRow, ...]
    """Jobs, and last what was spent on none of them."""

    @property
    def validated(self) -> int | Absent:
        """Number of tests of all cells that passed or failed, the free ones' too."""
        known = [cell.validated for cell in self.cells]
        counted = [one for one in known if not isinstance(one, Absent)]
        return sum(counted) if counted else Absent("no tests")
