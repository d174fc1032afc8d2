"""Jobs that print that they failed, and end as if they had not: a failed check of ours."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from orchestrator.application.cell.flow_context import AttemptState, FlowDeps
from orchestrator.domain.facts import CheckFact, JobFact

logger = logging.getLogger(__name__)
CHECK = "self-report"
"""Its name in the evidence."""


def check_self_reports(world: FlowDeps, now: AttemptState) -> None:
    """Keep what the outputs of the attempt's jobs say against their exit code, to be judged."""
    checks = list(_checks(world, now))
    if checks:
        world.stores.results.put_checks(now.attempt.id, checks)


def _checks(world: FlowDeps, now: AttemptState) -> Iterator[CheckFact]:
    facts = world.stores.results.jobs(now.cell.id)
    outputs = {one.name: one.digest for one in world.stores.results.artifacts(now.cell.id)}
    for job in now.spec.manifest.job:
        digest = outputs.get(f"{job.id}.txt", "")
        if job.kind == "suite" or not digest or not _ended_well(facts.get(job.id)):
            continue
        if not world.blobs.has(digest):
            logger.error("cell %s: the output of %s is lost and not read", now.cell.id, job.id)
            continue
        line = world.self_report(world.blobs.open(digest))
        if line:
            reason = f"it printed {line!r} and ended with exit code 0"
            yield CheckFact(job.id, CHECK, "failed", reason=reason)


def _ended_well(fact: JobFact | None) -> bool:
    return fact is not None and fact.finished_ts is not None and fact.exit_code == 0
