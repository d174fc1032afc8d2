"""Closing: derives the attempt's outcome, then retries or ends the cell.

The last cell ends the run.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial

from orchestrator.application.cell.collecting import read_metrics, reopen_unread
from orchestrator.application.cell.flow_context import FlowDeps, state_of
from orchestrator.application.cell.reuse_decision import keep_reuse_inputs
from orchestrator.application.end_run import end_run
from orchestrator.application.job_outcomes import judge_jobs
from orchestrator.application.ports.engine import NotYet, Value
from orchestrator.domain.cell import RETRIED, Cause, Cell, CellState, RunSpec
from orchestrator.domain.derive_outcomes import JobVerdict, judge_cell
from orchestrator.domain.event_facts import CheckFact, JobFact
from orchestrator.domain.manifest import output_artifact
from orchestrator.domain.outcome import Outcome, Reason
from orchestrator.domain.reuse_inputs import REUSED, all_reusable
from orchestrator.domain.run_record import JobRecord
from orchestrator.store.cells import AttemptState
from orchestrator.store.errors import StoreError

CHECK = "self-report"
"""Name of the self-report check in the evidence."""
_ON_CPU = re.compile(r"\bcpu\b", re.IGNORECASE)


def check_self_reports(
    deps: FlowDeps, now: AttemptState, facts: Mapping[str, JobFact]
) -> Mapping[str, JobFact]:
    """Store what the output of commands with exit code 0 reports: failures and fallbacks.

    Also store that nothing passed. Return the job facts after that.
    """
    jobs = now.spec.manifest.job
    asked = [job for job in jobs if job.kind != "suite" and _ended_well(facts.get(job.id))]
    artifacts = deps.stores.results.artifacts(now.cell.id) if asked else ()
    outputs = {one.name: one.digest for one in artifacts}
    checks: list[CheckFact] = []
    fallbacks: dict[str, str] = {}
    for job in asked:
        digest = outputs.get(output_artifact(job.id), "")
        if not digest:
            continue
        if not deps.blobs.has(digest):
            logger.error("cell %s: the output of %s is lost and not read", now.cell.id, job.id)
            continue
        said = deps.self_report(deps.blobs.open(digest))
        if said.failure:
            reason = f"it printed {said.failure!r} and ended with exit code 0"
            checks.append(CheckFact(job.id, CHECK, "failed", reason=reason))
        elif said.nothing_passed:
            reason = f"it printed {said.nothing_passed!r}: nothing passed"
            checks.append(CheckFact(job.id, CHECK, "skipped", reason=reason))
        fallbacks.update((job.id, one) for one in _degrading(deps, now, said.fallbacks)[:1])
    if checks:
        deps.stores.results.put_checks(now.attempt.id, checks)
    if fallbacks:
        deps.stores.results.put_degraded(now.cell.id, fallbacks)
    return deps.stores.results.jobs(now.cell.id) if fallbacks else facts


def _degrading(deps: FlowDeps, now: AttemptState, sentences: Sequence[str]) -> Sequence[str]:
    """Return the fallbacks, without fallbacks to the CPU on a machine that has no other device."""
    if not any(map(_ON_CPU.search, sentences)):
        return sentences
    attested = deps.stores.leases.attestations(now.attempt.id).values()
    if not attested or any(one.devices for one in attested):
        return sentences
    return [one for one in sentences if not _ON_CPU.search(one)]


def _ended_well(fact: JobFact | None) -> bool:
    return fact is not None and fact.finished_ts is not None and fact.exit_code == 0


logger = logging.getLogger(__name__)


DONE = "done"
"""Answer of `poll_close` once the cell is done."""


def poll_close(deps: FlowDeps, attempt_id: str) -> Value | NotYet:
    """Derive the attempt's outcome and decide whether the cell is retried or done."""
    now = state_of(deps, attempt_id)
    deps.contact_log.left.pop(attempt_id, None)
    deps.contact_log.approved_shipments.discard(attempt_id)
    if now.attempt.closed_at is not None:
        return "closed"
    cells, at = deps.stores.cells, deps.clock.now()
    facts = check_self_reports(deps, now, deps.stores.results.jobs(now.cell.id))
    read_metrics(deps, now)
    if unread := reopen_unread(deps, now):
        now = deps.stores.cells.attempt_state(attempt_id)
        deps.stores.evidence.reopen(now.cell.id, unread, tests=may_try_again(deps, now))
        facts = deps.stores.results.jobs(now.cell.id)
    given_up = [job for job, fact in facts.items() if fact.cause == "crashed"]
    deps.stores.evidence.settle(now.cell.id, given_up)
    environment = deps.stores.results.environment(now.cell.id) or {}
    _attest_torch(deps, now, environment)
    if may_try_again(deps, now):
        cause = now.attempt.cause or Cause(Outcome.ERRORED, Reason.CONTROLLER)
        cells.requeue(attempt_id, cause, at=at)
        return "again"
    judge = cache(partial(_over, deps, now.cell, now.spec, facts))
    keep_reuse_inputs(deps, now, judge, environment)
    cells.conclude(now.cell.id, _outcome(now.cell, now.attempt.cause, judge), at=at)
    return DONE


def _attest_torch(deps: FlowDeps, now: AttemptState, probed: Mapping[str, object]) -> None:
    """Add the torch version of the jobs' environment to the attestation."""
    torch = probed.get("torch")
    if not isinstance(torch, str):
        return
    for lease_id, row in deps.stores.leases.attestations(now.attempt.id).items():
        deps.stores.leases.attest(lease_id, replace(row, torch=torch))


def cell_outcome(deps: FlowDeps, cell: Cell, spec: RunSpec, cause: Cause | None) -> Cause:
    """Return the outcome of a finished cell, from its jobs and the causes outside of them."""
    return _outcome(cell, cause, partial(_over, deps, cell, spec))


def _over(
    deps: FlowDeps, cell: Cell, spec: RunSpec, facts: Mapping[str, JobFact] | None = None
) -> tuple[JobRecord, ...]:
    return judge_jobs(deps.stores, replace(cell, state=CellState.DONE), spec, facts)


def _outcome(cell: Cell, cause: Cause | None, judge: Callable[[], Sequence[JobRecord]]) -> Cause:
    try:
        jobs = judge()
        verdicts = [
            JobVerdict(job.id, job.outcome or Outcome.NOT_RUN, job.reason, job.detail)
            for job in jobs
        ]
        return _cause_of(jobs, judge_cell(verdicts, cause))
    except StoreError:
        raise
    except Exception as error:
        logger.exception("cell %s cannot be judged", cell.id)
        detail = f"it cannot be judged: {type(error).__name__}: {error}"
        return Cause(Outcome.ERRORED, Reason.CONTROLLER, detail)


def _cause_of(jobs: Sequence[JobRecord], cause: Cause) -> Cause:
    """Return the cause, with a note if every job was reused."""
    if cause.outcome is not Outcome.PASSED or not all(job.reused_from for job in jobs):
        return cause
    return Cause(cause.outcome, REUSED, all_reusable([job.reused_from for job in jobs]))


def may_try_again(deps: FlowDeps, now: AttemptState) -> bool:
    """Whether another attempt follows: only after an infrastructure fault that may be transient."""
    cause = now.attempt.cause
    infra = cause is not None and cause.outcome is Outcome.ERRORED and cause.reason in RETRIED
    left = now.attempt.number <= now.spec.matrix.limits.infra_retries
    if not (infra and left) or now.run.cancel_requested_at is not None:
        return False
    return not any(one.is_final for one in deps.stores.leases.of_attempt(now.attempt.id))


def poll_finish(deps: FlowDeps, cell_id: str) -> Value | NotYet:
    """End the run after its last cell: publish reports, then set its outcome."""
    run_id = deps.stores.cells.run_id(cell_id)
    with deps.locks.of(run_id):
        return "finished" if end_run(deps, run_id) else "others run"
