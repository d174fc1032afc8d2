"""The summary report: every cell of one run."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal

from reports.model.parts import Hardware, MetricGroup
from reports.model.values import Absent, CheckTally, Rate, ReportModel, Status, Tally


@dataclass(frozen=True, slots=True)
class CellRow:
    """One cell in the executive table, and in the details."""

    cell: str
    heading: str
    platform: str
    place: str | Absent
    instance: str | Absent
    accelerator: str
    hardware: Hardware
    status: Status
    detail: str
    optional: bool
    tally: Tally | Absent
    """Absent where no suite was ever started."""
    demos: CheckTally | Absent
    use_cases: CheckTally | Absent
    degraded: tuple[tuple[str, str], ...]
    """Jobs that did not run the way they should have, with the reason."""
    not_passed: tuple[tuple[str, Status], ...]
    """Jobs that did not pass."""
    metrics: tuple[MetricGroup, ...]
    cost_usd: Decimal | Absent
    files: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Total:
    """A sum over named cells; the cells outside are named too."""

    name: str
    cells: tuple[str, ...]
    """Whose tallies are added."""
    outside: tuple[tuple[str, str], ...]
    """Cells that are not in it, with the reason."""
    tally: Tally | Absent
    """Derived: the sum of the cells' tallies."""


@dataclass(frozen=True, slots=True)
class ComparedRow:
    """One cell's value of a compared metric."""

    cell: str
    accelerator: str
    stack: str
    median: float
    low: float
    high: float
    n: int
    relative: float | Absent
    """Derived from unrounded medians: above 1 is better than the reference, whatever the unit."""
    overlaps: bool
    """Derived: whether the spread touches the reference's."""
    same_stack: bool
    """Derived: whether torch and its runtime are the reference's."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One metric with the same parameters on several cells."""

    job: str
    metric: str
    unit: str
    direction: str
    baseline: str
    """What a ratio is relative to; empty where the metric is no ratio."""
    reference: str
    """The cell that the others are set against."""
    params: tuple[tuple[str, str], ...]
    rows: tuple[ComparedRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryReport(ReportModel):
    """One run."""

    matrix: str
    date: datetime
    finished_at: datetime | Absent
    status: Status
    rows: tuple[CellRow, ...]
    total: Total
    accelerators: Total
    distinct_tests: int
    """Tests by job and name; the same test on two cells is one."""
    passed_cells: Rate
    """Derived: cells that passed, of all cells."""
    comparisons: tuple[Comparison, ...]
    comparisons_hidden: int
    cost_usd: Decimal | Absent
    """Derived: the sum of the cells that have a cost."""
