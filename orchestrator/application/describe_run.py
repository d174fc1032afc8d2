"""Tell a run from what is stored: for `show`, for watchers, for reports."""

from __future__ import annotations

from datetime import UTC, datetime

from orchestrator.application.ports.stores import RunSpec, Stores
from orchestrator.domain.cell import Attempt, Cell, CellState, Lease, Run
from orchestrator.domain.facts import CheckFact, JobFact, MetricFact
from orchestrator.domain.machine import SshReach
from orchestrator.domain.manifest import Job
from orchestrator.domain.money import machine_cost, machine_seconds
from orchestrator.domain.outcome import Counts
from orchestrator.domain.record import (
    ArtifactRecord,
    CellRecord,
    Evidence,
    JobRecord,
    LeaseRecord,
    RunRecord,
)
from orchestrator.domain.results import judge_job


class RunMissingError(LookupError):
    """No run of this id is stored."""


def describe_run(stores: Stores, run_id: str, *, at: datetime) -> RunRecord:
    """Everything about a run but its single tests. Raises RunMissingError."""
    run = find_run(stores, run_id)
    spec = stores.runs.spec(run_id)
    cells = tuple(describe_cell(stores, cell, spec, at=at) for cell in stores.cells.of_run(run_id))
    return RunRecord(run, cells, at)


def evidence_of(stores: Stores, run_id: str, *, at: datetime) -> Evidence:
    """A run with every test of every cell. Raises RunMissingError."""
    record = describe_run(stores, run_id, at=at)
    cells = stores.cells.of_run(run_id)
    tests = {cell.name: tuple(stores.results.tests(cell.id)) for cell in cells}
    return Evidence(record, tests)


def find_run(stores: Stores, run_id: str) -> Run:
    """The run. Raises RunMissingError."""
    run = stores.runs.get(run_id)
    if run is None:
        raise RunMissingError(f"there is no run {run_id!r}; `seatrial runs` lists them")
    return run


def describe_cell(stores: Stores, cell: Cell, spec: RunSpec, *, at: datetime) -> CellRecord:
    """One cell, with its jobs judged as far as they are over."""
    attempts = stores.cells.attempts(cell.id)
    plan = stores.cells.plan(cell.id)
    return CellRecord(
        id=cell.name,
        platform=plan.platform,
        environment=plan.environment,
        state=cell.state,
        entered_at=cell.entered_at or at,
        outcome=cell.outcome,
        reason=cell.reason,
        detail=cell.detail,
        jobs=_jobs(stores, cell, spec, plan.jobs, attempts),
        attempts=tuple(attempts),
        transitions=tuple(stores.cells.transitions(cell.id)),
        leases=tuple(
            _lease(attempt.number, lease, at)
            for attempt in attempts
            for lease in stores.leases.of_attempt(attempt.id)
        ),
        probed=stores.results.environment(cell.id) or {},
        notices=tuple(stores.results.notices(cell.id)),
        artifacts=tuple(
            ArtifactRecord(artifact.name, artifact.size_bytes, artifact.digest)
            for artifact in stores.results.artifacts(cell.id)
        ),
        simulated=plan.platform.provider == "fake",
    )


def _jobs(
    stores: Stores, cell: Cell, spec: RunSpec, wanted: tuple[str, ...], attempts: list[Attempt]
) -> tuple[JobRecord, ...]:
    facts = stores.results.jobs(cell.id)
    tally = stores.results.tally(cell.id)
    checks = stores.results.checks(cell.id)
    metrics = stores.results.metrics(cell.id)
    return tuple(
        _job(
            job,
            cell,
            facts.get(job.id),
            Counts.of(tally.get(job.id, {})),
            [c for c in checks if c.job == job.id],
            [m for m in metrics if m.job == job.id],
            attempts,
        )
        for job in spec.manifest.job
        if job.id in wanted
    )


def _job(
    job: Job,
    cell: Cell,
    fact: JobFact | None,
    counts: Counts,
    checks: list[CheckFact],
    metrics: list[MetricFact],
    attempts: list[Attempt],
) -> JobRecord:
    over = cell.state in (CellState.RELEASING, CellState.DONE) or (
        fact is not None and fact.finished_ts is not None
    )
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
        degraded=(fact.degraded or None) if fact else None,
        counts=counts,
        checks=tuple(checks),
        metrics=tuple(metrics),
        started_at=datetime.fromtimestamp(started, UTC) if started else None,
        duration_s=fact.duration_s if fact else None,
        timeout_s=job.timeout_minutes * 60,
        current=(fact.current or "") if fact else "",
    )


def _lease(attempt: int, lease: Lease, at: datetime) -> LeaseRecord:
    reach = lease.reach
    address = f"{reach.user}@{reach.address}:{reach.port}" if isinstance(reach, SshReach) else ""
    return LeaseRecord(
        attempt=attempt,
        provider=lease.provider,
        place=lease.place,
        state=lease.state,
        machine_id=lease.machine_id,
        address=address,
        price_usd_per_hour=lease.price_usd_per_hour,
        seconds=machine_seconds(lease, at),
        cost_usd=machine_cost(lease, at),
        refusal=lease.refusal,
    )
