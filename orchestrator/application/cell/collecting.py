"""COLLECTING: stops running jobs and fetches the last evidence and artifacts, in bounded time."""

from __future__ import annotations

import logging
from collections.abc import Collection

from orchestrator.application.cell.flow_context import (
    GO,
    FlowDeps,
    enter,
    is_unreachable,
    overdue,
    workspace_of,
)
from orchestrator.application.finish_ingestion import drained, pull_evidence
from orchestrator.application.ports.archives import UnpackBundle
from orchestrator.application.ports.blobs import Blobs
from orchestrator.application.ports.engine import NOT_YET, NotYet, Value
from orchestrator.application.ports.workspaces import Workspace
from orchestrator.domain.cell import Attempt, CellState
from orchestrator.domain.machine import ShellError
from orchestrator.domain.manifest import metrics_artifact, output_artifact
from orchestrator.domain.run_record import ArtifactRecord
from orchestrator.store.cells import AttemptState
from orchestrator.store.errors import DamagedError, StoreError
from orchestrator.store.stores import Stores

RAW_EVENTS = "events.jsonl"


def collect_artifacts(
    workspace: Workspace,
    unpack: UnpackBundle,
    stores: Stores,
    blobs: Blobs,
    attempt: Attempt,
    *,
    replaced: Collection[str] = (),
) -> bool:
    """Fetch the attempt's bundle and store each file by digest.

    Return whether the machine had a bundle. `replaced` names the files of an earlier attempt that
    are removed if the bundle lacks them.

    Raises MachineError or BundleError; files stored until then stay.
    """
    kept = []
    bundle = workspace.bundle(attempt.id)
    for name, chunks in unpack([bundle] if bundle else []):
        digest, size = blobs.put(chunks)
        kept.append(ArtifactRecord(name, size, digest))
    if bundle is None:
        return False
    stores.results.put_artifacts(attempt.cell_id, kept, replaced=replaced)
    return True


def keep_raw_evidence(stores: Stores, blobs: Blobs, attempt: Attempt) -> None:
    """Store the attempt's raw events as an artifact."""
    digest, size = blobs.put(stores.evidence.raw_events(attempt.id))
    name = RAW_EVENTS if attempt.number == 1 else f"attempt-{attempt.number}.{RAW_EVENTS}"
    if size:
        stores.results.put_artifacts(attempt.cell_id, [ArtifactRecord(name, size, digest)])


logger = logging.getLogger(__name__)


def poll_collection(deps: FlowDeps, attempt_id: str) -> Value | NotYet:
    """Fetch evidence until the agent's `end` event, or until the time limit.

    Only an attempt that has run has anything to collect, and nothing here keeps its machine from
    going home.
    """
    now = deps.stores.cells.attempt_state(attempt_id)
    if now.cell.state not in (CellState.RUNNING, CellState.COLLECTING):
        return GO
    now = enter(deps, now, CellState.COLLECTING)
    late = overdue(deps, now.cell, deps.timings.collect_s) or is_unreachable(now.attempt)
    for keep in (_keep_files, _keep_evidence):
        try:
            if not keep(deps, now, late=late):
                return NOT_YET
        except Exception as error:  # noqa: BLE001 - a machine must not wait for it
            if _may_pass(error, late=late):
                return NOT_YET
            _tell(deps, now, error)
    return GO


def _keep_files(deps: FlowDeps, now: AttemptState, *, late: bool) -> bool:
    workspace = workspace_of(deps, now.lease)
    if not _is_over(deps, now, workspace, late=late):
        return False
    replaced = judged_files(deps, now)
    if collect_artifacts(
        workspace, deps.unpack, deps.stores, deps.blobs, now.attempt, replaced=replaced
    ):
        deps.stores.cells.record_collection(now.attempt.id, at=deps.clock.now())
    return True


def judged_files(deps: FlowDeps, now: AttemptState) -> list[str]:
    """Return the files that the attempt's jobs are judged by; none for the cell's first attempt."""
    if now.attempt.number == 1:
        return []
    ran = deps.stores.results.jobs_of_attempt(now.attempt.id)
    jobs = [job for job in now.spec.manifest.job if job.id in ran]
    return [
        *(output_artifact(job.id) for job in jobs),
        *(metrics_artifact(job.id, name) for job in jobs for name in job.metrics),
    ]


def _keep_evidence(deps: FlowDeps, now: AttemptState, *, late: bool) -> bool:
    keep_raw_evidence(deps.stores, deps.blobs, now.attempt)
    return True


def _may_pass(error: Exception, *, late: bool) -> bool:
    """Whether the error may be transient: an unreachable machine, a full disk or a store."""
    if isinstance(error, StoreError) and not isinstance(error, DamagedError):
        return True
    return not late and isinstance(error, ShellError | OSError)


def _tell(deps: FlowDeps, now: AttemptState, error: Exception) -> None:
    logger.error("attempt %s: not everything was collected", now.attempt.id, exc_info=error)
    said = {"cell": now.cell.name, "notice": f"not collected: {error}"}
    deps.stores.run_events.add(now.run.id, "cell", said)


def _is_over(deps: FlowDeps, now: AttemptState, workspace: Workspace, *, late: bool) -> bool:
    attempt_id = now.attempt.id
    if now.position.end is None:
        cause = now.attempt.cause
        workspace.stop(attempt_id, cause.reason if cause else "agent", kill=late)
    pulled, have = pull_evidence(
        workspace,
        deps.stores.evidence,
        attempt_id,
        now.position,
        at=deps.clock.now(),
        limit_bytes=deps.timings.pull_limit_bytes,
    )
    if pulled is None:
        return True
    return (have.end is not None or not pulled.alive) and drained(pulled, have)
