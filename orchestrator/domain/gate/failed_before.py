"""What failed in one run and not in another of the same: flaky, however it was run again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from dataclasses import dataclass, replace

from orchestrator.domain.gate.snapshot import CellEvidence, FailedTest, JobEvidence
from orchestrator.domain.gate.tolerance import FailingResult, failing_results
from orchestrator.domain.identity import normal_nodeid
from orchestrator.domain.outcome import Outcome


def failed_before(
    cell: CellEvidence, job: JobEvidence, others: Iterable[CellEvidence], *, passing: Set[str]
) -> tuple[FailedTest, ...]:
    """What failed in other cells and does not in the job; of each the last failure, by name.

    What does not pass in the job either, as it is skipped there, names the payload of that run.

    Args:
        cell: The job's.
        job: A job that is over.
        others: The same cell in other runs of the same payload and subject, oldest first.
        passing: Node ids of the job's tests that pass, as `normal_nodeid` has them.
    """
    failing = {_name(one) for one in failing_results(cell, job, blocking=True)}
    found = {_name(one): one for one in _of_job(job.id, others)}
    left = {name: found[name] for name in sorted(found) if name not in failing}
    return tuple(
        _told(one) if _passes(normal_nodeid(name), one, job, passing) else _gone(one)
        for name, one in left.items()
    )


@dataclass(frozen=True, slots=True)
class FailedElsewhere:
    """What failed with other payloads and does not with this one, by name."""

    gone: tuple[FailedTest, ...]
    """It does not pass: it is not there, was skipped, or is expected to fail."""
    passed_after: tuple[FailedTest, ...]
    """It passes."""


def failed_elsewhere(
    cell: CellEvidence, job: JobEvidence, others: Iterable[CellEvidence], *, passing: Set[str]
) -> FailedElsewhere:
    """What failed in other cells of the subject with other payloads; of each the last failure.

    Args:
        cell: The job's.
        job: A job that is over.
        others: The same cell in runs of the same subject with other payloads, oldest first.
        passing: Node ids of the job's tests that pass, as `normal_nodeid` has them.
    """
    failing = {normal_nodeid(_name(one)) for one in failing_results(cell, job, blocking=True)}
    found = {normal_nodeid(_name(one)): one for one in _of_job(job.id, others)}
    left = {name: found[name] for name in sorted(found) if name not in failing}
    passes = {name: _passes(name, one, job, passing) for name, one in left.items()}
    return FailedElsewhere(
        gone=tuple(_gone(left[name]) for name in left if not passes[name]),
        passed_after=tuple(_gone(left[name]) for name in left if passes[name]),
    )


def _of_job(job: str, others: Iterable[CellEvidence]) -> Iterator[FailingResult]:
    for then in others:
        for old in (one for one in then.jobs if one.id == job):
            found = list(failing_results(then, old, blocking=True))
            if not found and old.outcome is Outcome.FAILED:
                found = [
                    FailingResult(then, old, blocking=True, name=f"({old.reason})", is_end=True)
                ]
            yield from found


def _passes(name: str, one: FailingResult, job: JobEvidence, passing: Set[str]) -> bool:
    """What could not be collected passes by its tests; a check, and an end, by the job's end."""
    if one.test is None:
        return job.outcome is Outcome.PASSED or (job.ending is None and not one.is_end)
    return name in passing or any(test.startswith((f"{name}::", f"{name}/")) for test in passing)


def _name(one: FailingResult) -> str:
    return one.name or "(without a name)"


def _told(one: FailingResult) -> FailedTest:
    if one.test is not None:
        return replace(one.test, run=one.cell.run)
    return FailedTest(
        job=one.job.id, nodeid=_name(one), signature="", message=one.words, run=one.cell.run
    )


def _gone(one: FailingResult) -> FailedTest:
    return replace(_told(one), payload=one.cell.subject.get("payload_sha256", "?"))
