"""Jobs and cells whose failing tests do not explain their outcome."""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.domain.outcome import Outcome
from orchestrator.domain.run_record import CellRecord, JobRecord
from orchestrator.domain.vocabulary import phrase

_CHECKS = 3
_QUIET = (Outcome.PASSED, Outcome.NOT_AVAILABLE, Outcome.NOT_RUN)


def failing_jobs(cell: CellRecord, named: Mapping[str, int]) -> list[JobRecord]:
    """Those whose failing tests do not explain their outcome.

    Args:
        cell: Of the run.
        named: How many failing tests of each job have a name.
    """
    return [job for job in _not_passed(cell) if not _is_explained(job, named.get(job.id, 0))]


def fails_itself(cell: CellRecord) -> bool:
    """Whether the cell's outcome has a reason that none of its jobs has."""
    of_jobs = {(job.outcome, job.reason) for job in _not_passed(cell)}
    is_bad = cell.outcome is not None and cell.outcome not in _QUIET
    return is_bad and (cell.outcome, cell.reason) not in of_jobs


def why_job_failed(job: JobRecord) -> str:
    """Why, beside its failing tests: how it ended where these do not explain that."""
    if job.ending is not None and job.ending.reason != job.reason:
        return job.ending.detail or phrase(job.ending.reason)
    failed = [check.name for check in job.checks if check.outcome == "failed"]
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
