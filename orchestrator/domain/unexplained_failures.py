"""Failures of jobs and cells that their failing tests do not explain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from orchestrator.domain.derive_outcomes import named_check
from orchestrator.domain.outcome import Outcome
from orchestrator.domain.run_record import CellRecord, JobRecord
from orchestrator.domain.vocabulary import phrase, reason_text

_CHECKS = 3
_QUIET = (Outcome.PASSED, Outcome.NOT_AVAILABLE, Outcome.NOT_RUN)


class CellFailure(NamedTuple):
    """A failing test, or the failure of a job or cell for another reason."""

    job: str
    """Id of the job; empty if the cell itself failed."""
    test: str
    """Node id of the test; empty if a job or cell failed for another reason."""
    outcome: str
    error: str
    """The error in one line."""


def cell_failures(cell: CellRecord, tests: Iterable[CellFailure]) -> Iterator[CellFailure]:
    """Yield the failing tests of a cell, then the failures that they do not explain."""
    named: Counter[str] = Counter()
    for test in tests:
        named[test.job] += 1
        yield test
    for job in failing_jobs(cell, named):
        yield CellFailure(job.id, "", str(job.outcome), why_job_failed(job))
    if fails_itself(cell):
        why = reason_text(cell.reason, cell.detail)
        yield CellFailure("", "", str(cell.outcome), why)


def failing_jobs(cell: CellRecord, named: Mapping[str, int]) -> list[JobRecord]:
    """Return the jobs whose failing tests do not explain their outcome.

    Args:
        cell: The cell of the jobs.
        named: Number of the failing tests that are known by name, by job.
    """
    return [job for job in _not_passed(cell) if not _is_explained(job, named.get(job.id, 0))]


def fails_itself(cell: CellRecord) -> bool:
    """Whether the cell failed for another reason than one of its jobs."""
    of_jobs = {(job.outcome, job.reason) for job in _not_passed(cell)}
    is_bad = cell.outcome is not None and cell.outcome not in _QUIET
    return is_bad and (cell.outcome, cell.reason) not in of_jobs


def why_job_failed(job: JobRecord) -> str:
    """Return why a job failed, apart from failing tests: a crash, for example."""
    if job.ending is not None and job.ending.reason != job.reason:
        return job.ending.detail or phrase(job.ending.reason)
    failed = [named_check(check) for check in job.checks if check.outcome == "failed"]
    named = f"failed checks: {', '.join(failed[:_CHECKS])}" if failed else ""
    more = f" and {len(failed) - _CHECKS} more" if len(failed) > _CHECKS else ""
    return job.detail or named + more or phrase(job.reason)


def _not_passed(cell: CellRecord) -> list[JobRecord]:
    return [job for job in cell.jobs if job.outcome is not None and job.outcome not in _QUIET]


def _is_explained(job: JobRecord, named: int) -> bool:
    counts = job.counts
    is_complete = not (counts.missing or counts.not_run) and named == counts.failed + counts.error
    is_of_tests = job.outcome is Outcome.FAILED and job.reason == "tests" and job.ending is None
    return is_of_tests and is_complete
