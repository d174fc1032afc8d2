"""COLLECTING: stops jobs and fetches the remaining evidence, in bounded time."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import datetime

from orchestrator.application.cell.flow_context import (
    GO,
    FlowDeps,
    enter,
    is_unreachable,
    leave,
    overdue,
    record_failure,
    state_of,
    workspace_of,
)
from orchestrator.application.ports.archives import UnpackBundle
from orchestrator.application.ports.blobs import Blobs
from orchestrator.application.ports.engine import NOT_YET, NotYet, Value
from orchestrator.application.ports.workspaces import Workspace
from orchestrator.domain.cell import Attempt, CellState
from orchestrator.domain.event_facts import CheckFact, JobFact, MetricFact, fold
from orchestrator.domain.evidence import LINE_LIMIT_BYTES, EvidenceBatch, read_events
from orchestrator.domain.machine import ShellError
from orchestrator.domain.manifest import Job, metrics_artifact, output_artifact
from orchestrator.domain.outcome import Outcome, Reason
from orchestrator.domain.parsed_results import ParsedMetric
from orchestrator.domain.run_record import ArtifactRecord
from orchestrator.store.attempt_evidence import EvidencePosition, EvidenceStore
from orchestrator.store.cells import AttemptState
from orchestrator.store.errors import DamagedError, StoreError
from orchestrator.store.stores import Stores


def pull_evidence(
    workspace: Workspace,
    store: EvidenceStore,
    attempt_id: str,
    have: EvidencePosition,
    *,
    at: datetime,
    limit_bytes: int,
) -> tuple[EvidenceBatch | None, EvidencePosition]:
    """Fetch and store new evidence once.

    A line longer than the limit, such as the manifest of 60,000 tests, is fetched whole.

    Args:
        workspace: On the attempt's machine.
        store: The store of evidence.
        attempt_id: Id of the attempt.
        have: The stored position.
        at: Now.
        limit_bytes: Maximum bytes of one fetch, except for a longer line.

    Returns:
        The machine's answer (None if it has no such attempt), and the new position.

    Raises:
        ShellError: The machine could not be reached; nothing was stored.
        EvidenceError: The bytes are not evidence; nothing was stored.
    """
    while True:
        pulled = workspace.pull(
            attempt_id,
            events_offset=have.events_bytes,
            log_offset=have.log_bytes,
            limit_bytes=limit_bytes,
        )
        if pulled is None or len(pulled.events) < limit_bytes or b"\n" in pulled.events:
            break
        if limit_bytes > LINE_LIMIT_BYTES:
            break  # it is refused
        limit_bytes = min(4 * limit_bytes, LINE_LIMIT_BYTES + 1)
    if pulled is None:
        return None, have
    events, used = read_events(pulled.events, after_seq=have.seq)
    if not used and not pulled.log:
        return pulled, have
    whole = pulled.events[:used]
    now = store.append(attempt_id, have, at=at, events=whole, facts=fold(events), log=pulled.log)
    return pulled, now or store.position(attempt_id)


def drained(pulled: EvidenceBatch, have: EvidencePosition) -> bool:
    """Whether all of the machine's evidence is stored, without an incomplete last line."""
    torn = not pulled.alive and have.events_bytes + len(pulled.events) >= pulled.events_size_bytes
    whole = have.events_bytes >= pulled.events_size_bytes
    return (whole or torn) and have.log_bytes >= pulled.log_size_bytes


CHECK = "metrics"
"""Name of the check that fails if a file that payload.toml names cannot be read."""
_PROBLEMS = 3
_UNCOLLECTED = "the job did not write it, or its log says why it was not collected"


def reopen_unread(deps: FlowDeps, now: AttemptState) -> list[str]:
    """Return the jobs that ended with exit code 0 and whose files were never collected.

    Only jobs of this attempt. An attempt without a cause gets one, so that it may be retried.
    """
    if now.is_collected:
        return []
    ended = deps.stores.results.jobs_of_attempt(now.attempt.id)
    named = [one.id for one in now.spec.manifest.job if one.has_file_checks]
    unread = [job for job in named if _has_ended(ended.get(job)) and ended[job].exit_code == 0]
    if unread and now.attempt.cause is None:
        detail = f"the files of {', '.join(unread)} were never collected"
        record_failure(deps, now.attempt.id, Outcome.ERRORED, Reason.AGENT, detail)
    return unread


def read_metrics(deps: FlowDeps, now: AttemptState) -> None:
    """Store the metrics of the jobs that ended in this attempt; a repeated call changes nothing.

    Without collected files, no metrics are read and no check is stored.
    """
    named = [one for one in now.spec.manifest.job if one.metrics]
    if not named or not now.is_collected:
        return
    ended = deps.stores.results.jobs_of_attempt(now.attempt.id)
    asked = [one for one in named if _has_ended(ended.get(one.id))]
    files = {one.name: one.digest for one in deps.stores.results.artifacts(now.cell.id)}
    # The number follows those of the agent's events.
    number = now.position.seq
    for job in asked:
        problems: list[str] = []
        for name in job.metrics:
            metrics, said = _read(deps, job, name, files)
            problems += [f"{name}: {one}" for one in said]
            found = [
                MetricFact(n, job.id, one.name, one.samples, one.unit, one.direction, one.params)
                for n, one in enumerate(metrics, number + 1)
            ]
            number += len(found)
            deps.stores.results.put_metrics(now.attempt.id, found)
        deps.stores.results.put_checks(now.attempt.id, [_check(job, problems)])


def _has_ended(fact: JobFact | None) -> bool:
    return fact is not None and fact.finished_ts is not None and fact.exit_code is not None


def _read(
    deps: FlowDeps, job: Job, name: str, files: Mapping[str, str]
) -> tuple[tuple[ParsedMetric, ...], tuple[str, ...]]:
    digest = files.get(metrics_artifact(job.id, name), "")
    if not digest:
        return (), (_UNCOLLECTED,)
    if not deps.blobs.has(digest):
        return (), ("it is lost",)
    return deps.read_metrics(name, deps.blobs.open(digest))


def _check(job: Job, problems: list[str]) -> CheckFact:
    if not problems:
        return CheckFact(job.id, CHECK, "passed")
    more = f"; and {len(problems) - _PROBLEMS} more" if len(problems) > _PROBLEMS else ""
    return CheckFact(job.id, CHECK, "failed", reason="; ".join(problems[:_PROBLEMS]) + more)


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

    An attempt that never ran has nothing to collect. Errors that may be transient are retried; any
    other error is logged and does not delay the release of the machine.
    """
    now = state_of(deps, attempt_id)
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
    position = _pull_last(deps, now, workspace, late=late)
    if position is None:
        return False
    replaced = outcome_files(deps, now)
    is_collected = collect_artifacts(
        workspace, deps.unpack, deps.stores, deps.blobs, now.attempt, replaced=replaced
    )
    if is_collected:
        deps.stores.cells.record_collection(now.attempt.id, at=deps.clock.now())
    leave(deps, replace(now, position=position, is_collected=is_collected or now.is_collected))
    return True


def outcome_files(deps: FlowDeps, now: AttemptState) -> list[str]:
    """Return the files that may change the outcomes of the attempt's jobs.

    Empty for the first attempt.
    """
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
    """Whether the error may be transient: of an unreachable machine, a full disk, a database."""
    if isinstance(error, StoreError) and not isinstance(error, DamagedError):
        return True
    return not late and isinstance(error, ShellError | OSError)


def _tell(deps: FlowDeps, now: AttemptState, error: Exception) -> None:
    logger.error("attempt %s: not everything was collected", now.attempt.id, exc_info=error)
    said = {"cell": now.cell.name, "notice": f"not collected: {error}"}
    deps.stores.run_events.add(now.run.id, "cell", said)


def _pull_last(
    deps: FlowDeps, now: AttemptState, workspace: Workspace, *, late: bool
) -> EvidencePosition | None:
    """Return the position of the last evidence; None while the agent may send more."""
    attempt_id = now.attempt.id
    if now.position.end is None:
        cause = now.attempt.cause
        workspace.stop(attempt_id, cause.reason if cause else Reason.AGENT, kill=late)
    pulled, have = pull_evidence(
        workspace,
        deps.stores.evidence,
        attempt_id,
        now.position,
        at=deps.clock.now(),
        limit_bytes=deps.timings.pull_limit_bytes,
    )
    is_over = pulled is None or (
        (have.end is not None or not pulled.alive) and drained(pulled, have)
    )
    return have if is_over else None
