"""A rerun of some jobs completes the cell that it repeats: each job with its own run and time.

Nothing is believed more than before: what is doubted of either machine is doubted of the whole,
and a failure stays until a later run had that very job to its end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from orchestrator.domain.gate.snapshot import CellEvidence, JobEvidence
from orchestrator.domain.outcome import Counts, Outcome, worst

_FINAL = (Outcome.PASSED, Outcome.FAILED, Outcome.TIMED_OUT)
_UNCLEAR = (Outcome.ERRORED, Outcome.CANCELLED)


def merge_reruns(earlier: CellEvidence, later: CellEvidence) -> CellEvidence:
    """The later cell, with those jobs of the earlier one that it did not have again.

    Args:
        earlier: A cell that is over.
        later: The same cell of a rerun, of the same payload and subject.
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
        packages=_agreed([cell.packages for cell in told]),
        fingerprint=later.fingerprint if earlier.fingerprint == later.fingerprint else "",
        counts=sum((job.counts for job in jobs), Counts()),
        jobs=jobs,
        pairs=(
            *(one for one in earlier.pairs if one.job in names),
            *(one for one in later.pairs if one.job not in names),
        ),
        machines=tuple(dict.fromkeys(one for cell in told for one in cell.machines)),
        cost_usd=earlier.cost_usd + later.cost_usd,
        blame=(
            *(one for one in earlier.blame if one.get("job", "") in names),
            *(one for one in later.blame if one.get("job", "") not in names),
        ),
    )


def _kept(earlier: CellEvidence, later: CellEvidence) -> Iterator[JobEvidence]:
    """Jobs that the later run was not asked for, and failures that it did not get to the end of."""
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
    """What the jobs come to, after what a cell says that no job of it explains."""
    if later.outcome is None:
        return None
    own = {job.outcome for job in earlier.jobs}
    said = [later.outcome, *([earlier.outcome] if earlier.outcome not in own else [])]
    known = [one for one in said if one is not None and one is not Outcome.NOT_AVAILABLE]
    unclear = worst(one for one in known if one in _UNCLEAR)
    told = [job.outcome for job in jobs if job.outcome is not None]
    return unclear or worst([*known, *told]) or later.outcome


def _oldest(told: Sequence[CellEvidence]) -> datetime | None:
    """The whole is as old as its oldest part; None where one has no time."""
    times = [cell.ended_at for cell in told if cell.ended_at is not None]
    return min(times) if times and len(times) == len(told) else None


def _by_id(jobs: Sequence[JobEvidence]) -> tuple[JobEvidence, ...]:
    return tuple(sorted(jobs, key=lambda job: job.id))


def _agreed(told: Sequence[Mapping[str, str]]) -> Mapping[str, str]:
    """What all say."""
    first = told[0] if told else {}
    return {key: first[key] for key in first if all(one.get(key) == first[key] for one in told)}
