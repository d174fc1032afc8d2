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
    """What failed for one reason, in every test and on every cell where it says the same."""

    job: str
    """Empty where a cell failed for a reason of its own."""
    tests: tuple[str, ...]
    """Empty where the job or the cell failed for another reason than its tests."""
    said: str
    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommentReport(ReportModel):
    """One run."""

    matrix: str
    status: Status
    cells: tuple[CommentCell, ...]
    failing: tuple[FailingEntry, ...]
    """The first of them."""
    failing_hidden: int
