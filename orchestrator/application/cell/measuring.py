"""What jobs measured, read from what they printed and from their files, as payload.toml says."""

from __future__ import annotations

from collections.abc import Mapping

from orchestrator.application.cell.flow_context import FlowDeps
from orchestrator.domain.event_facts import CheckFact, JobFact, MetricFact
from orchestrator.domain.manifest import Job, metrics_artifact
from orchestrator.domain.parsed_results import ParsedMetric
from orchestrator.store.cells import AttemptState

CHECK = "metrics"
"""It fails where what payload.toml names cannot be read."""
_PROBLEMS = 3


def read_metrics(deps: FlowDeps, now: AttemptState, facts: Mapping[str, JobFact]) -> None:
    """Keep the figures of every job that came to its own end; the same ones if asked again."""
    named = [one for one in now.spec.manifest.job if one.metrics]
    if not named:
        return
    # Written last: what an earlier attempt finished is not read again.
    done = {c.job for c in deps.stores.results.checks(now.cell.id) if c.name == CHECK}
    asked = [one for one in named if one.id not in done and _came_to_its_end(facts.get(one.id))]
    if not asked:
        return
    files = {one.name: one.digest for one in deps.stores.results.artifacts(now.cell.id)}
    # After every event of the agent: its numbers end here.
    number = now.position.seq
    found: list[MetricFact] = []
    checks: list[CheckFact] = []
    for job in asked:
        problems: list[str] = []
        for name in job.metrics:
            metrics, said = _read(deps, job, name, files)
            problems += [f"{name}: {one}" for one in said]
            for metric in metrics:
                number += 1
                parts = (metric.name, metric.samples, metric.unit, metric.direction, metric.params)
                found.append(MetricFact(number, job.id, *parts))
        checks.append(_check(job, problems))
    deps.stores.results.put_metrics(now.attempt.id, found)
    deps.stores.results.put_checks(now.attempt.id, checks)


def _came_to_its_end(fact: JobFact | None) -> bool:
    return fact is not None and fact.finished_ts is not None and fact.exit_code is not None


def _read(
    deps: FlowDeps, job: Job, name: str, files: Mapping[str, str]
) -> tuple[tuple[ParsedMetric, ...], tuple[str, ...]]:
    digest = files.get(metrics_artifact(job.id, name), "")
    if not digest:
        return (), ("the job left no such file",)
    if not deps.blobs.has(digest):
        return (), ("it is lost",)
    return deps.read_metrics(name, deps.blobs.open(digest))


def _check(job: Job, problems: list[str]) -> CheckFact:
    if not problems:
        return CheckFact(job.id, CHECK, "passed")
    more = f"; and {len(problems) - _PROBLEMS} more" if len(problems) > _PROBLEMS else ""
    return CheckFact(job.id, CHECK, "failed", reason="; ".join(problems[:_PROBLEMS]) + more)
