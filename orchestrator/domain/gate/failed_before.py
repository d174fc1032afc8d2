"""What failed in one run and not in another of the same: flaky, however it was run again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from orchestrator.domain.gate.snapshot import CellEvidence, FailedTest, JobEvidence
from orchestrator.domain.gate.tolerance import Failing, failing_results


def failed_before(
    cell: CellEvidence, job: JobEvidence, others: Iterable[CellEvidence]
) -> tuple[FailedTest, ...]:
    """What failed in other cells and does not in the job; of each the last failure, by name.

    Args:
        cell: The job's.
        job: A job that is over.
        others: The same cell in other runs of the same payload and subject, oldest first.
    """
    failing = {_name(one) for one in failing_results(cell, job, blocking=True)}
    found: dict[str, FailedTest] = {}
    for then in others:
        same = (one for one in then.jobs if one.id == job.id)
        results = (one for old in same for one in failing_results(then, old, blocking=True))
        found |= {_name(one): _told(one, then.run) for one in results}
    return tuple(found[name] for name in sorted(found) if name not in failing)


def _name(one: Failing) -> str:
    return one.name or "(without a name)"


def _told(one: Failing, run: str) -> FailedTest:
    if one.test is not None:
        return replace(one.test, run=run)
    return FailedTest(job=one.job.id, nodeid=_name(one), signature="", message=one.words, run=run)
