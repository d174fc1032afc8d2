"""Outcomes of a cell's jobs, as far as they are finished."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import MappingProxyType

from orchestrator.application.reused_results import as_reused, by_source
from orchestrator.domain.cell import Attempt, Cell, CellState, RunSpec
from orchestrator.domain.collected_tests import TestSet
from orchestrator.domain.derive_outcomes import judge_job
from orchestrator.domain.event_facts import JobFact
from orchestrator.domain.manifest import Job
from orchestrator.domain.outcome import Counts
from orchestrator.domain.reuse_inputs import Reuse, produced_at
from orchestrator.domain.run_record import JobRecord
from orchestrator.store.cell_results import CellResults, Depth
from orchestrator.store.cells import CellLife
from orchestrator.store.stores import Stores

_NOTHING = CellResults()


@dataclass(frozen=True, slots=True)
class StoredCellResults:
    """Stored results of cells, and of the cells whose results they reuse."""

    decided: Mapping[str, Mapping[str, Reuse]]
    lives: Mapping[str, CellLife]
    results: Mapping[str, CellResults]

    @classmethod
    def read(
        cls,
        stores: Stores,
        cell_ids: Sequence[str],
        spec: RunSpec,
        depth: Depth = Depth.WHOLE,
        *,
        jobs: Mapping[str, Mapping[str, JobFact]] = MappingProxyType({}),
    ) -> StoredCellResults:
        """Read the results in a fixed number of statements.

        Args:
            stores: What is stored.
            cell_ids: Cells of one run.
            spec: The parameters of the run; results are reused only where it asks for that.
            depth: How much is read.
            jobs: By cell id, job facts that the caller has read.
        """
        reuses = spec.reuse_max_age_s is not None
        decided = stores.reusable_results.decisions(cell_ids) if reuses else {}
        lent = {x.cell for reuses in decided.values() for x in reuses.values() if x.is_reused}
        ids = [*cell_ids, *sorted(lent.difference(cell_ids))]
        lives = stores.cells.lives(ids, whole=depth > Depth.EVALUATED)
        return cls(decided, lives, stores.results.of_cells(ids, depth, jobs))


def judge_jobs(
    stores: Stores, cell: Cell, spec: RunSpec, facts: Mapping[str, JobFact] | None = None
) -> tuple[JobRecord, ...]:
    """Return the cell's jobs with the outcomes of finished ones, without metrics.

    Args:
        stores: What is stored.
        cell: The cell.
        spec: The parameters of its run.
        facts: The stored facts of its jobs, where the caller has read them.
    """
    jobs = {cell.id: facts} if facts is not None else {}
    known = StoredCellResults.read(stores, [cell.id], spec, Depth.EVALUATED, jobs=jobs)
    return jobs_of_cell_record(known, cell, spec)


def jobs_of_cell_record(
    known: StoredCellResults, cell: Cell, spec: RunSpec
) -> tuple[JobRecord, ...]:
    """Return the jobs of a cell; reused ones are read from their source cell."""
    decided = known.decided.get(cell.id, {})
    wanted = known.lives[cell.id].plan.jobs
    run_here = tuple(job for job in wanted if job not in decided or not decided[job].is_reused)
    told = {job.id: job for job in _own_jobs(known, cell, spec, run_here)}
    told |= {
        job.id: as_reused(job, decided[job.id])
        for source, jobs in by_source(decided).items()
        for job in _own_jobs(known, known.lives[source].cell, spec, jobs)
    }
    whys = {job: one.why for job, one in decided.items()}
    return tuple(
        replace(told[job.id], reuse=whys.get(job.id, ""))
        for job in spec.manifest.job
        if job.id in told
    )


def _own_jobs(
    known: StoredCellResults, cell: Cell, spec: RunSpec, wanted: Collection[str]
) -> tuple[JobRecord, ...]:
    found = known.results.get(cell.id, _NOTHING)
    attempts = known.lives[cell.id].attempts
    return tuple(_job(job, cell, found, attempts) for job in spec.manifest.job if job.id in wanted)


def _job(job: Job, cell: Cell, found: CellResults, attempts: Sequence[Attempt]) -> JobRecord:
    fact, counts = found.jobs.get(job.id), found.counts.get(job.id, Counts())
    checks = [check for check in found.checks if check.job == job.id]
    metrics = [metric for metric in found.metrics if metric.job == job.id]
    over = _has_ended(job, fact, cell)
    cause = attempts[-1].cause if attempts else None
    verdict = (
        judge_job(job.id, kind=job.kind, fact=fact, counts=counts, checks=checks, cause=cause)
        if over
        else None
    )
    started = fact.started_ts if fact else None
    return JobRecord(
        id=job.id,
        kind=job.kind,
        title=job.name,
        outcome=verdict.outcome if verdict else None,
        reason=verdict.reason if verdict else "",
        detail=verdict.detail if verdict else "",
        ending=verdict.ending if verdict else None,
        degraded=(fact.degraded or None) if fact else None,
        counts=counts,
        unnamed=(fact.unnamed if fact else None) or Counts(),
        passed_on_retry=found.passed_on_retry.get(job.id, 0),
        test_set=(fact.test_set if fact else None) or TestSet(),
        checks=tuple(checks),
        metrics=tuple(metric for metric in metrics if not metric.arm),
        turns=tuple(metric for metric in metrics if metric.arm),
        started_at=datetime.fromtimestamp(started, UTC) if started else None,
        duration_s=fact.duration_s if fact else None,
        timeout_s=job.timeout_minutes * 60,
        current=(fact.current or "") if fact else "",
        idle_since=_idle_since(fact),
        idle_timeout_s=(fact.idle_timeout_s or 0.0) if fact else 0.0,
        at=_produced_at(fact, attempts),
    )


def _has_ended(job: Job, fact: JobFact | None, cell: Cell) -> bool:
    """Whether the job's outcome is final.

    A command with exit code 0 and file checks is judged when its cell is done: only then are its
    output and the measurements read.
    """
    has_finished = fact is not None and fact.finished_ts is not None
    if has_finished and fact is not None and job.has_file_checks and fact.exit_code == 0:
        return cell.state is CellState.DONE
    return has_finished or cell.has_reached(CellState.DIAGNOSING)


def _idle_since(fact: JobFact | None) -> datetime | None:
    if fact is None or not fact.idle_since_ts or fact.finished_ts is not None:
        return None
    return datetime.fromtimestamp(fact.idle_since_ts, UTC)


def _produced_at(fact: JobFact | None, attempts: Sequence[Attempt]) -> datetime | None:
    if fact is None or fact.finished_ts is None or not attempts:
        return None
    finished = datetime.fromtimestamp(fact.finished_ts, UTC)
    closed = attempts[-1].closed_at
    return produced_at(finished, since=attempts[0].opened_at, until=closed or finished)
