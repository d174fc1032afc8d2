"""Reruns jobs that did not pass, as a new run with the same matrix, payload and subject."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from orchestrator.application.context import Context
from orchestrator.application.describe_run import describe_run
from orchestrator.application.launch_run import IdempotencyKey, Launched, LaunchOrder, launch_run
from orchestrator.application.plan_run import plan_run
from orchestrator.domain.cell import RunState
from orchestrator.domain.launch_plan import Plan
from orchestrator.domain.outcome import Outcome
from orchestrator.domain.run_record import CellRecord, JobRecord, RunRecord

Only = Literal["failed", "errored", "missing", "not-run"]


class NothingToRerunError(ValueError):
    """No job of the run is of the requested kind."""


class StillRunningError(RuntimeError):
    """The run is not finished yet."""


def rerun_run(
    context: Context,
    run_id: str,
    *,
    only: Only | None,
    key: IdempotencyKey | None,
    hold_minutes: float = 0.0,
) -> Launched:
    """Launch the run, or some of its jobs, again; the hold time is set anew.

    Raises RunMissingError, StillRunningError, NothingToRerunError and what `launch_run` raises.
    """
    order = _order(context, run_id, only=only, hold_minutes=hold_minutes)
    return launch_run(context, order, key)


def plan_rerun(
    context: Context, run_id: str, *, only: Only | None, hold_minutes: float = 0.0
) -> Plan:
    """Plan what `rerun_run` would launch, with the maximum cost. Changes nothing.

    Raises RunMissingError, StillRunningError, NothingToRerunError and what `plan_run` raises.
    """
    return plan_run(context, _order(context, run_id, only=only, hold_minutes=hold_minutes))


def _order(context: Context, run_id: str, *, only: Only | None, hold_minutes: float) -> LaunchOrder:
    record = describe_run(context.stores, run_id, at=context.clock.now())
    if record.cells and all(cell.ingested for cell in record.cells):
        raise NothingToRerunError(
            f"run {run_id} was ingested: there is no payload that could run again; "
            "launch a matrix, or ingest newer evidence"
        )
    if record.run.state is not RunState.FINISHED:
        raise StillRunningError(f"run {run_id} is still running; cancel it or wait for it")
    spec = context.stores.runs.spec(run_id)
    return LaunchOrder(
        matrix=context.documents.matrix_document(spec.matrix),
        name=f"run {run_id}",
        payload=record.run.payload_digest,
        subject_digest=spec.subject_digest,
        subject_built=spec.subject_built,
        baseline_digest=spec.baseline_digest,
        only=_jobs_again(record, only) if only else spec.only,
        rerun_of=run_id,
        commit=record.run.commit,
        hold_minutes=hold_minutes,
    )


def _jobs_again(record: RunRecord, only: Only) -> Mapping[str, list[str]]:
    chosen = {
        cell.id: [job.id for job in cell.jobs if is_of_kind(cell, job, only)]
        for cell in record.cells
        if cell.ingested is None
    }
    wanted = {cell: jobs for cell, jobs in chosen.items() if jobs}
    if not wanted:
        raise NothingToRerunError(f"no job of run {record.run.id} is {only}")
    return wanted


def is_of_kind(cell: CellRecord, job: JobRecord, only: Only) -> bool:
    """Whether the job is of the requested kind."""
    match only:
        case "failed":
            return job.outcome in (Outcome.FAILED, Outcome.TIMED_OUT)
        case "errored":
            return job.outcome is Outcome.ERRORED or cell.outcome is Outcome.ERRORED
        case "missing":
            return job.counts.missing > 0
    return job.outcome is Outcome.NOT_RUN or job.counts.not_run > 0
