"""The comment report: one run in a few lines, for a pull request."""

from __future__ import annotations

from dataclasses import dataclass

from reports.model.values import Absent, ReportModel, Status, Tally


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


@dataclass(frozen=True, slots=True, kw_only=True)
class CommentReport(ReportModel):
    """The comment report of one run."""

    matrix: str
    status: Status
    cells: tuple[CommentCell, ...]
    failing: tuple[FailingEntry, ...]
    """The first of them."""
    failing_hidden: int
