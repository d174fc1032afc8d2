"""The summary report, every cell of one run, and the comment on a change, its short form."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from orchestrator.domain.lint_findings import CheckedAnnotation
from orchestrator.domain.root_cause import DiagnosedTest
from reports.model.blocks import Hardware, SlowTest, SuiteSkips
from reports.model.comparison import Comparison, ComparisonTable, tables_of
from reports.model.metrics import MetricLine, MetricTable, PairedFigure
from reports.model.money import Costs, Money
from reports.model.origin import CellProvenance, JobInOtherCells, Origin
from reports.model.results import FailureTable, IssueRow, QuarantinedFailure
from reports.model.values import Absent, CheckTally, Rate, ReportModel, Status, Tally

HIGHLIGHTS_SHOWN = 6
"""Lines of metrics that a summary has of one cell."""


@dataclass(frozen=True, slots=True)
class SummaryRow:
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
    metrics: tuple[MetricTable, ...]
    paired: tuple[PairedFigure, ...]
    money: Money
    provenance: CellProvenance
    files: tuple[str, ...]
    origin: Origin | None = None
    """Where its evidence is from, if our agent did not produce it."""
    elsewhere: tuple[JobInOtherCells, ...] = ()
    unnamed: int = 0
    """Those of its tests that the evidence counts without naming them."""
    notes: tuple[CheckedAnnotation, ...] = ()
    """Annotations of people about it."""
    reuse: tuple[tuple[str, str], ...] = ()
    """Jobs, and why their earlier evidence is reused or not; empty without a request for reuse."""
    skips: tuple[SuiteSkips, ...] = ()
    slowest: tuple[SlowTest, ...] = ()

    @property
    def highlights(self) -> tuple[tuple[MetricTable, MetricLine], ...]:
        """The first rows of its metrics, the benchmarks' before the others'."""
        return self._lines[:HIGHLIGHTS_SHOWN]

    @property
    def highlights_left(self) -> int:
        """Rows that are only in the platform's report."""
        return max(0, len(self._lines) - HIGHLIGHTS_SHOWN)

    @property
    def _lines(self) -> tuple[tuple[MetricTable, MetricLine], ...]:
        ranked = sorted(self.metrics, key=lambda table: table.kind != "benchmark")
        return tuple((table, line) for table in ranked for line in table.rows)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryReport(ReportModel):
    """The summary of one run."""

    matrix: str
    date: datetime
    finished_at: datetime | Absent
    status: Status
    rows: tuple[SummaryRow, ...]
    total: Total
    accelerators: Total
    concerns_accelerators: bool
    """Whether any cell was promised an accelerator, or has one."""
    distinct_tests: int
    """Tests by job and name; the same test on two cells is one."""
    passed_cells: Rate
    """Derived: cells that passed, of all cells."""
    comparisons: tuple[Comparison, ...]
    comparisons_hidden: int
    costs: Costs | Absent
    """Derived: the sum of the cells that have a cost."""
    authored: tuple[CheckedAnnotation, ...] = ()
    failures: FailureTable | None = None
    issues: tuple[IssueRow, ...] = ()
    quarantined: tuple[QuarantinedFailure, ...] = ()
    """Failing results in quarantine; they are failures in every count."""
    blame: tuple[DiagnosedTest, ...] = ()
    """Failing tests that ran again; that changes no count."""
    pruned: tuple[str, ...] = ()
    """What of the run's bytes was pruned, when and by which rule."""

    @property
    def is_dated(self) -> bool:
        """Whether the production date of all uploaded evidence is known."""
        return all(row.origin is None or row.origin.is_dated for row in self.rows)

    @property
    def has_expected(self) -> bool:
        """Whether a test failed as expected, or passed unexpectedly."""
        tallies = [row.tally for row in self.rows if not isinstance(row.tally, Absent)]
        return any(tally.xfailed or tally.xpassed for tally in tallies)

    @property
    def unnamed(self) -> int:
        """Results of tests that the evidence counts without naming them."""
        return sum(row.unnamed for row in self.rows)

    @property
    def comparison_tables(self) -> tuple[ComparisonTable, ...]:
        """The comparisons as they are printed: one table for the metrics of a job."""
        return tables_of(self.comparisons, [row.cell for row in self.rows])


@dataclass(frozen=True, slots=True)
class CommentCell:
    """One cell of the run."""

    cell: str
    status: Status
    detail: str
    tally: Tally | Absent
    simulated: bool


@dataclass(frozen=True, slots=True)
class FailingEntry:
    """One failure reason, with all tests and cells that have it."""

    job: str
    """Empty for a failure of the cell outside of its jobs."""
    tests: tuple[str, ...]
    """Empty if the job or the cell failed for another reason than its tests."""
    description: str
    cells: tuple[str, ...]
    results: int = 1
    """Number of failing results: tests by cell."""
    quarantines: tuple[str, ...] = ()
    """Ids of active quarantines of its tests."""
    quarantined: int = 0
    """Results of a test in quarantine."""
    known_issues: tuple[str, ...] = ()
    """Matching known issues with their states: ``KI-0001 (applies)``."""
    known: int = 0
    """Results that a known issue matches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommentReport(ReportModel):
    """The comment report of one run."""

    matrix: str
    status: Status
    cells: tuple[CommentCell, ...]
    failing: tuple[FailingEntry, ...]
    """The first of them."""
    failing_hidden: int
