"""The platform report: everything about one cell."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from orchestrator.domain.lint_findings import CheckedAnnotation
from orchestrator.domain.root_cause import DiagnosedTest
from reports.model.blocks import (
    AttemptLine,
    CommandTable,
    FileRow,
    Hardware,
    NoticeLine,
    SuiteProblems,
    SuiteSkips,
    SuiteTable,
    TimelineRow,
)
from reports.model.comparison import Comparison, ComparisonTable, tables_of
from reports.model.metrics import MetricTable, PairedFigure
from reports.model.money import Money
from reports.model.origin import Catalogued, CellProvenance, JobInOtherCells, Origin
from reports.model.results import FailureTable, IssueRow, QuarantinedFailure
from reports.model.values import Absent, ReportModel, Status


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformReport(ReportModel):
    """One cell of one run."""

    cell: str
    platform: str
    """Provider, in words."""
    place: str | Absent
    instance: str | Absent
    environment: str
    date: datetime
    finished_at: datetime | Absent
    status: Status
    detail: str
    attempts: tuple[AttemptLine, ...]
    suites: SuiteTable
    problems: tuple[SuiteProblems, ...]
    skips: tuple[SuiteSkips, ...]
    demos: CommandTable
    use_cases: CommandTable
    benchmarks: CommandTable
    metrics: tuple[MetricTable, ...]
    paired: tuple[PairedFigure, ...]
    hardware: Hardware
    concerns_accelerator: bool
    """Whether the cell was promised an accelerator, or has one, or PyTorch."""
    provenance: CellProvenance
    timeline: tuple[TimelineRow, ...]
    money: Money
    notices: tuple[NoticeLine, ...]
    notices_hidden: int
    files: tuple[FileRow, ...]
    origin: Origin | None = None
    """Where its evidence is from, if our agent did not produce it."""
    catalogued: Catalogued | None = None
    """Of a cell that was ingested."""
    comparisons: tuple[Comparison, ...] = ()
    """With the other platforms of the run."""
    elsewhere: tuple[JobInOtherCells, ...] = ()
    authored: tuple[CheckedAnnotation, ...] = ()
    failures: FailureTable | None = None
    issues: tuple[IssueRow, ...] = ()
    quarantined: tuple[QuarantinedFailure, ...] = ()
    """Failing results in quarantine; they are failures in every count."""
    blame: tuple[DiagnosedTest, ...] = ()
    """Failing tests that ran again; that changes no count."""
    reuse: tuple[tuple[str, str], ...] = ()
    """Jobs, and why their earlier evidence is reused or not; empty without a request for reuse."""

    @property
    def comparison_tables(self) -> tuple[ComparisonTable, ...]:
        """The comparisons as they are printed."""
        cells = [row.cell for comparison in self.comparisons for row in comparison.rows]
        return tables_of(self.comparisons, list(dict.fromkeys(cells)))
