"""Merging of reruns into the cells that they repeat, and failures of earlier runs.

A merged cell is trusted no more than its parts: a doubt about either machine remains. A failure
remains until a later run has finished the same job.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from datetime import datetime
from decimal import Decimal
from typing import TypeVar

from orchestrator.domain.gate.snapshot import NAMELESS, CellEvidence, FailedTest, JobEvidence
from orchestrator.domain.gate.tolerance import FailingResult, failing_results
from orchestrator.domain.node_ids import normal_nodeid
from orchestrator.domain.outcome import Counts, Outcome, worst


def failed_before(
    cell: CellEvidence, job: JobEvidence, others: Iterable[CellEvidence], *, passing: Set[str]
) -> tuple[FailedTest, ...]:
    """Return the last failure of each test that failed in other cells and not in the job.

    For a test that does not pass in the job either, because it is skipped for example, the
    failure has the payload of the run in which it failed.

    Args:
        cell: The job's cell.
        job: A finished job.
        others: The same cell in other runs of the same payload and subject, oldest first.
        passing: Node ids of the job's passing tests, in the form of `normal_nodeid`.
    """
    failing = {_name(one) for one in failing_results(cell, job, blocking=True)}
    found = {_name(one): one for one in _of_job(job.id, others)}
    left = {name: found[name] for name in sorted(found) if name not in failing}
    return tuple(
        _failed_test(one) if _passes(normal_nodeid(name), one, job, passing) else _gone(one)
        for name, one in left.items()
    )


@dataclass(frozen=True, slots=True)
class FailedElsewhere:
    """Failures in runs with other payloads that do not occur in the job."""

    gone: tuple[FailedTest, ...]
    """Failures of tests that do not pass now: they are absent, skipped, or expected to fail."""
    passed_after: tuple[FailedTest, ...]
    """Failures of tests that pass now."""


def failed_elsewhere(
    cell: CellEvidence, job: JobEvidence, others: Iterable[CellEvidence], *, passing: Set[str]
) -> FailedElsewhere:
    """Return the last failures of a subject's tests in runs with other payloads.

    Args:
        cell: The job's cell.
        job: A finished job.
        others: The same cell in runs of the same subject with other payloads, oldest first.
        passing: Node ids of the job's passing tests, in the form of `normal_nodeid`.
    """
    failing = {normal_nodeid(_name(one)) for one in failing_results(cell, job, blocking=True)}
    found = {normal_nodeid(_name(one)): one for one in _of_job(job.id, others)}
    left = {name: found[name] for name in sorted(found) if name not in failing}
    passes = {name: _passes(name, one, job, passing) for name, one in left.items()}
    return FailedElsewhere(
        gone=tuple(_gone(left[name]) for name in left if not passes[name]),
        passed_after=tuple(
            replace(_gone(one), is_by_version=_has_build(one.cell) != _has_build(cell))
            for name, one in left.items()
            if passes[name]
        ),
    )


def _has_build(cell: CellEvidence) -> bool:
    return any(cell.subject.get(name) for name in ("wheel_sha256", "git_sha"))


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
    """Whether an earlier failure passes now.

    A collection error passes if a test of its file passes; a check or a job's end passes with
    the job.
    """
    if one.test is None:
        return job.outcome is Outcome.PASSED or (job.ending is None and not one.is_end)
    return name in passing or any(test.startswith((f"{name}::", f"{name}/")) for test in passing)


def _name(one: FailingResult) -> str:
    return one.name or NAMELESS


def _failed_test(one: FailingResult) -> FailedTest:
    if one.test is not None:
        return replace(one.test, run=one.cell.run)
    return FailedTest(
        job=one.job.id, nodeid=_name(one), signature="", message=one.words, run=one.cell.run
    )


def _gone(one: FailingResult) -> FailedTest:
    return replace(_failed_test(one), payload=one.cell.subject.get("payload_sha256", "?"))


_FINAL = (Outcome.PASSED, Outcome.FAILED, Outcome.TIMED_OUT)
_UNCLEAR = (Outcome.ERRORED, Outcome.CANCELLED)


def merge_reruns(earlier: CellEvidence, later: CellEvidence) -> CellEvidence:
    """Merge a rerun into the cell that it repeats; jobs that did not run again are kept.

    Args:
        earlier: A finished cell.
        later: The same cell in a rerun of the same payload and subject.
    """
    kept = tuple(_kept(earlier, later))
    if not kept:
        return later
    names = {job.id for job in kept}
    jobs = _by_id([*(job for job in later.jobs if job.id not in names), *kept])
    told = [cell for cell in (earlier, later) if cell.outcome is not Outcome.NOT_AVAILABLE]
    outcome = _outcome(earlier, later, jobs)
    said = next((cell for cell in (later, earlier) if cell.outcome is outcome), None)
    return replace(
        later,
        outcome=outcome,
        reason=said.reason if said else "",
        detail=said.detail if said else "",
        ended_at=_oldest(told),
        instance_type=", ".join(sorted({cell.instance_type for cell in told})),
        attested=bool(told) and all(cell.attested for cell in told),
        mismatch="; ".join(dict.fromkeys(cell.mismatch for cell in told if cell.mismatch)),
        simulated=any(cell.simulated for cell in told),
        ingested=any(cell.ingested for cell in told),
        own_environment=any(cell.own_environment for cell in told),
        undeclared_requirements=_distinct(cell.undeclared_requirements for cell in told),
        own_baseline=any(cell.own_baseline for cell in told),
        other_subject=next((cell.other_subject for cell in told if cell.other_subject), ""),
        lost_attempts=tuple(one for cell in told for one in cell.lost_attempts),
        packages=_agreed([cell.packages for cell in told]),
        fingerprint=later.fingerprint if earlier.fingerprint == later.fingerprint else "",
        counts=sum((job.counts for job in jobs), Counts()),
        jobs=jobs,
        pairs=(
            *(one for one in earlier.pairs if one.job in names),
            *(one for one in later.pairs if one.job not in names),
        ),
        machines=_distinct(cell.machines for cell in told),
        cost_usd=_total(earlier.cost_usd, later.cost_usd),
        blame=(
            *(one for one in earlier.blame if one.get("job", "") in names),
            *(one for one in later.blame if one.get("job", "") not in names),
        ),
    )


def _total(earlier: Decimal | None, later: Decimal | None) -> Decimal | None:
    return None if earlier is None or later is None else earlier + later


_Fact = TypeVar("_Fact")


def _distinct(groups: Iterable[tuple[_Fact, ...]]) -> tuple[_Fact, ...]:
    """Return the members of all groups, each once, in their order."""
    return tuple(dict.fromkeys(one for group in groups for one in group))


def _kept(earlier: CellEvidence, later: CellEvidence) -> Iterator[JobEvidence]:
    """Yield jobs that were not run again, and failed jobs that the rerun did not finish."""
    again = {job.id: job for job in later.jobs}
    for job in earlier.jobs:
        other = again.get(job.id)
        if other is None or (_is_bad(job) and other.outcome not in _FINAL):
            yield replace(job, run=job.run or earlier.run, at=job.at or earlier.ended_at)


def _is_bad(job: JobEvidence) -> bool:
    wrong = job.outcome in (Outcome.FAILED, Outcome.TIMED_OUT)
    return wrong or bool(job.counts.bad or job.failed or job.failed_checks)


def _outcome(
    earlier: CellEvidence, later: CellEvidence, jobs: Sequence[JobEvidence]
) -> Outcome | None:
    """Return the outcome of the merged jobs, or of a cause that none of the jobs explains."""
    if later.outcome is None:
        return None
    own = {job.outcome for job in earlier.jobs}
    said = [later.outcome, *([earlier.outcome] if earlier.outcome not in own else [])]
    known = [one for one in said if one is not None and one is not Outcome.NOT_AVAILABLE]
    unclear = worst(one for one in known if one in _UNCLEAR)
    told = [job.outcome for job in jobs if job.outcome is not None]
    return unclear or worst([*known, *told]) or later.outcome


def _oldest(cells: Sequence[CellEvidence]) -> datetime | None:
    """Return the earliest time; None if a cell has none."""
    times = [cell.ended_at for cell in cells if cell.ended_at is not None]
    return min(times) if times and len(times) == len(cells) else None


def _by_id(jobs: Sequence[JobEvidence]) -> tuple[JobEvidence, ...]:
    return tuple(sorted(jobs, key=lambda job: job.id))


def _agreed(rows: Sequence[Mapping[str, str]]) -> Mapping[str, str]:
    """Return the values on which all rows agree."""
    first = rows[0] if rows else {}
    return {key: first[key] for key in first if all(one.get(key) == first[key] for one in rows)}
