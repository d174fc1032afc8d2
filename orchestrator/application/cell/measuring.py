"""Reads metrics from the output and the files that payload.toml names."""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.application.cell.flow_context import FlowDeps, record_failure
from orchestrator.domain.event_facts import CheckFact, JobFact, MetricFact
from orchestrator.domain.manifest import Job, metrics_artifact
from orchestrator.domain.outcome import Outcome
from orchestrator.domain.parsed_results import ParsedMetric
from orchestrator.store.cells import AttemptState

CHECK = "metrics"
"""It fails where what payload.toml names cannot be read."""
_PROBLEMS = 3
_UNCOLLECTED = "the job did not write it, or its log says why it was not collected"


def reopen_unread(deps: FlowDeps, now: AttemptState) -> list[str]:
    """Return the jobs that ended with exit code 0 and whose files were never collected.

    Only jobs of this attempt. An attempt without a cause gets one, so that it may be retried.
    """
    if now.is_collected:
        return []
    ended = deps.stores.results.jobs_of_attempt(now.attempt.id)
    named = [one.id for one in now.spec.manifest.job if one.is_judged_by_files]
    unread = [job for job in named if _has_ended(ended.get(job)) and ended[job].exit_code == 0]
    if unread and now.attempt.cause is None:
        detail = f"the files of {', '.join(unread)} were never collected"
        record_failure(deps, now.attempt.id, Outcome.ERRORED, "agent", detail)
    return unread


def read_metrics(deps: FlowDeps, now: AttemptState) -> None:
    """Store the metrics of the jobs that ended in this attempt; a repeated call changes nothing.

    Without collected files nothing is read, and no check is stored.
    """
    named = [one for one in now.spec.manifest.job if one.metrics]
    if not named or not now.is_collected:
        return
    ended = deps.stores.results.jobs_of_attempt(now.attempt.id)
    asked = [one for one in named if _has_ended(ended.get(one.id))]
    files = {one.name: one.digest for one in deps.stores.results.artifacts(now.cell.id)}
    # After every event of the agent: its numbers end here.
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
