"""A run as REST returns it and clients parse it."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal

from orchestrator.domain.cell import Run, RunState
from orchestrator.domain.commit import Commit
from orchestrator.domain.diagnosis import DiagnosedTest
from orchestrator.domain.extend_record import extended, filled
from orchestrator.domain.known_issue import IssueUse
from orchestrator.domain.outcome import Counts, Outcome
from orchestrator.domain.quarantine import Quarantined
from orchestrator.domain.run_record import CellRecord, RunRecord
from orchestrator.domain.signature import FailureGroup


@dataclass(frozen=True, slots=True)
class SubjectName:
    """The validated subject."""

    name: str
    version: str

    def __str__(self) -> str:
        return f"{self.name} {self.version}".strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSummary:
    """A run without its cells."""

    id: str
    state: RunState
    outcome: Outcome | None
    """The worst outcome of its cells; None while it runs."""
    subject: SubjectName
    matrix: str
    """The matrix's name."""
    cost_usd: Decimal
    counts: Counts
    """Test counts over all cells."""
    payload: str
    """sha256 of the payload's archive."""
    rerun_of: str | None
    commit: Commit = field(default_factory=Commit)
    """The tested commit; empty where it is unknown."""
    created_at: datetime
    finished_at: datetime | None
    cancel_requested_at: datetime | None

    @property
    def pass_rate(self) -> float | None:
        """``passed / (passed + failed + error)``; None when all are zero."""
        rate = self.counts.pass_rate
        return None if rate is None else float(rate)

    @property
    def is_finished(self) -> bool:
        """Whether it has an outcome."""
        return self.state is RunState.FINISHED


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResponse(RunSummary):
    """A run with everything but its single tests."""

    cells: tuple[CellRecord, ...] = ()
    """In matrix order."""
    failure_groups: tuple[FailureGroup, ...] = ()
    """Failures by signature, largest group first."""
    known_issues: tuple[IssueUse, ...] = ()
    """The product's known issues in this run; those out of scope are left out."""
    quarantined: tuple[Quarantined, ...] = ()
    """Failing results of quarantined tests; they stay failures in every count."""
    diagnosed: tuple[DiagnosedTest, ...] = ()
    """Failing tests that ran again, with their root causes; set at the end of the retests."""
    wheel: str = ""
    """sha256 of the subject's wheel; empty without one."""


def summary_answer(run: Run, counts: Counts, cost_usd: Decimal) -> RunSummary:
    """A run without its cells."""
    return filled(
        RunSummary,
        run,
        subject=SubjectName(run.subject_name, run.subject_version),
        matrix=run.matrix_name,
        cost_usd=cost_usd,
        counts=counts,
        payload=run.payload_digest,
    )


def run_answer(record: RunRecord) -> RunResponse:
    """Return the response of a run record."""
    summary = summary_answer(record.run, record.counts, record.cost_usd)
    return extended(
        RunResponse,
        summary,
        cells=record.cells,
        failure_groups=record.failure_groups,
        known_issues=record.known_issues,
        quarantined=record.quarantined,
        diagnosed=record.diagnosed,
        wheel=record.subject.wheel,
    )
