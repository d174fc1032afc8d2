"""Trust in the evidence of a cell. Doubted evidence never counts as a pass."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta

from orchestrator.domain.gate.policy import counted, duration
from orchestrator.domain.gate.rule_context import (
    PlatformEvidence,
    RuleContext,
    is_over,
    is_unavailable,
)
from orchestrator.domain.gate.snapshot import CellEvidence

AHEAD = timedelta(days=1)
"""Evidence may be dated this far ahead: a date without a time zone."""


def doubts(case: RuleContext, stand: PlatformEvidence, cell: CellEvidence) -> Iterator[str]:
    """Return why the cell's evidence does not count, in sentences; empty if the evidence counts."""
    yield from age_doubts(case, cell)
    yield from identity_doubts(case, stand, cell)


def age_doubts(case: RuleContext, cell: CellEvidence) -> Iterator[str]:
    """Return doubts about age: stale, from the future, or undated."""
    if not is_over(cell):
        yield f"{cell.id} is not over"
        return
    limit = duration(case.policy.spec.evidence.max_age)
    yield from _age(cell.id, cell.ended_at, case.now, limit)
    for job in sorted(cell.jobs, key=lambda job: job.id):
        if job.reused_from:
            yield from _age(f"{job.id}, reused from {job.reused_from},", job.at, case.now, limit)
            if case.policy.spec.evidence.reuse == "refused":
                yield f"{job.id} is reused from {job.reused_from}, and fresh runs are asked for"


def identity_doubts(
    case: RuleContext, stand: PlatformEvidence, cell: CellEvidence
) -> Iterator[str]:
    """Return doubts about identity: simulated, of another machine or subject, or not attested."""
    if cell.simulated:
        yield f"{cell.id} is simulated"
    if cell.mismatch:
        yield f"{cell.id} is not what was asked for: {cell.mismatch}"
    if cell.other_subject:
        name, version = cell.subject.get("name", ""), cell.subject.get("version", "")
        yield (
            f"{cell.id} had {name} {cell.other_subject} installed, while the payload itself is the"
            f" subject, {name} {version}: its jobs may have imported either; take {name} out of the"
            " interpreter, or name a wheel in the matrix (`subject.wheel`)"
        )
    if cell.own_environment and case.policy.spec.evidence.own_environment == "refused":
        yield f"{cell.id} ran among Seatrial's own packages, and an environment of its own is asked"
    allowed = case.policy.spec.evidence.attestation == "optional"
    told = cell.attested or (is_unavailable(cell) and not cell.ingested)
    if not told and not (cell.ingested and allowed):
        who = "others produced it" if cell.ingested else "nothing proves what it ran on"
        yield f"{cell.id} is not attested: {who}"
    if not is_unavailable(cell):
        yield from _instance(stand, cell, allowed=cell.ingested and allowed)


def _instance(stand: PlatformEvidence, cell: CellEvidence, *, allowed: bool) -> Iterator[str]:
    wanted, found = stand.rule.instance, cell.instance_type
    if wanted and found != wanted and (found or not allowed):
        yield f"{cell.id} ran on {found or 'an unknown instance type'}, not on {wanted}"


def _age(what: str, at: datetime | None, now: datetime, limit: timedelta) -> Iterator[str]:
    if at is None:
        yield f"{what} has no time"
    elif now - at > limit:
        yield f"{what} is {age_sentence(now - at)} old"
    elif at - now > AHEAD:
        yield f"{what} is dated {age_sentence(at - now)} ahead"


def age_sentence(age: timedelta) -> str:
    """Return an age in whole units: ``36 hours``, ``12 days``."""
    hours = int(age.total_seconds() // 3600)
    return counted(hours, "hour") if hours <= 72 else counted(hours // 24, "day")
