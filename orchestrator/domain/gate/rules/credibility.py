"""Rules on credibility: evidence is fresh and attested, and a test passed in every job.

Exceptions and waivers do not apply to these results.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from orchestrator.domain.gate.policy import counted, some
from orchestrator.domain.gate.rule_context import (
    PlatformEvidence,
    RuleContext,
    RuledJob,
    age_doubts,
    doubts,
    identity_doubts,
    is_unavailable,
)
from orchestrator.domain.gate.snapshot import CellEvidence
from orchestrator.domain.gate.verdict import RuleOutcome, RuleResult
from orchestrator.domain.outcome import Outcome


def nothing_passed(context: RuleContext) -> Iterator[RuleResult]:
    """Yield a result per job in which no test passed and at least one was skipped."""
    for judged in context.jobs:
        passed, passed_over = _counted(judged)
        if passed or not passed_over:
            continue
        what = ", ".join(f"{counted(n, one)} {word}" for (one, word), n in passed_over.items())
        yield RuleResult(
            id=f"nothing_passed/{judged.name}",
            kind="nothing_passed",
            blocking=judged.blocking and judged.rule.nothing_passed == "inconclusive",
            outcome=RuleOutcome.UNKNOWN,
            sentence=f"Nothing of {judged.job.id} passed on {judged.cell.id}: {what}.",
            inputs={
                "tests": {name: n for name, n in judged.job.counts.as_dict().items() if n},
                "checks": dict(judged.job.checks),
                "policy": judged.rule.nothing_passed,
            },
            failing={f"{one} {word}": n for (one, word), n in passed_over.items()},
        )


def _counted(ruled_job: RuledJob) -> tuple[int, dict[tuple[str, str], int]]:
    """Return the number of passed tests and checks, and the numbers of the others by words."""
    counts, checks = ruled_job.job.counts, ruled_job.job.checks
    passed_over = {
        ("test", "skipped"): counts.skipped,
        ("test", "expected to fail"): counts.xfailed,
        ("test", "passed unexpectedly"): counts.xpassed,
        ("check", "skipped"): checks.get("skipped", 0),
    }
    passed = counts.passed + checks.get("passed", 0)
    return passed, {words: number for words, number in passed_over.items() if number}


def freshness(context: RuleContext) -> Iterator[RuleResult]:
    """Yield a result for each cell: ok if `age_doubts` yields no doubt about it."""
    max_age = context.policy.spec.evidence.max_age
    for platform, cell in context.cells:
        found = list(age_doubts(context, cell))
        ended = cell.ended_at.isoformat() if cell.ended_at else ""
        yield RuleResult(
            id=f"freshness/{cell.id}",
            kind="freshness",
            blocking=platform.blocking(cell),
            outcome=RuleOutcome.UNKNOWN if found else RuleOutcome.OK,
            sentence=(
                f"Evidence is believed for {max_age}: {'; '.join(found)}."
                if found
                else f"{cell.id} ended at {_moment(cell)}, within {max_age}."
            ),
            inputs={"ended_at": ended, "max_age": max_age, "reused": _reused(cell)},
            waivable=False,
        )


def attestation_v2(context: RuleContext) -> Iterator[RuleResult]:
    """Yield a result for each cell: ok if `identity_doubts` yields no doubt about its origin."""
    for platform, cell in context.cells:
        found = list(identity_doubts(context, platform, cell))
        yield RuleResult(
            id=f"attestation/{cell.id}",
            kind="attestation",
            blocking=platform.blocking(cell),
            outcome=RuleOutcome.UNKNOWN if found else RuleOutcome.OK,
            sentence=f"{'; '.join(found) if found else _trusted(cell)}.",
            inputs={
                "attested": cell.attested,
                "ingested": cell.ingested,
                "simulated": cell.simulated,
                "mismatch": cell.mismatch,
                "instance_type": cell.instance_type,
                "policy": context.policy.spec.evidence.attestation,
            },
            waivable=False,
        )


def attestation(context: RuleContext) -> Iterator[RuleResult]:
    """Yield the results of `attestation_v2`, some of which block more often.

    On a blocking platform, an ingested cell without attestation blocks even if it states that
    the platform was not available.
    """
    typed = {
        f"attestation/{cell.id}"
        for platform, cell in context.cells
        if cell.ingested and platform.rule.level == "blocking"
    }
    for result in attestation_v2(context):
        is_doubted = result.outcome is RuleOutcome.UNKNOWN and result.id in typed
        yield replace(result, blocking=result.blocking or is_doubted)


def evidence_v2(context: RuleContext) -> Iterator[RuleResult]:
    """Yield a result: ok if a blocking job on a blocking platform has passed or has passing tests.

    Only evidence without `doubts` counts.
    """
    passing = sorted(
        {cell.id for platform in context.platforms for cell in _passing(context, platform)}
    )
    yield RuleResult(
        id="evidence",
        kind="evidence",
        blocking=True,
        outcome=RuleOutcome.OK if passing else RuleOutcome.UNKNOWN,
        sentence=(
            f"There is believable evidence of {', '.join(passing)}."
            if passing
            else "There is no passing job on any blocking platform that can be believed."
        ),
        inputs={"runs": list(context.snapshot.runs), "cells": passing},
        waivable=False,
    )


def own_environment(context: RuleContext) -> Iterator[RuleResult]:
    """Yield an advisory result for each cell whose jobs saw Seatrial's own packages."""
    for _, cell in context.cells:
        if cell.own_environment:
            yield _advisory(
                "own_environment",
                cell,
                f"The jobs of {cell.id} saw the packages of the environment that Seatrial is"
                " installed in.",
                {"policy": context.policy.spec.evidence.own_environment},
            )


def untested(context: RuleContext) -> Iterator[RuleResult]:
    """Yield an advisory result about jobs and test files of the payload that did not run."""
    found = list(dict.fromkeys(one for _, cell in context.cells for one in cell.untested))
    if found:
        yield RuleResult(
            id="untested",
            kind="untested",
            blocking=False,
            outcome=RuleOutcome.OK,
            sentence=f"Left out: {'; '.join(found)}.",
            inputs={"untested": found},
        )


def lost_attempts(context: RuleContext) -> Iterator[RuleResult]:
    """Yield an advisory result for each cell that lost an earlier attempt while jobs could run.

    A test that brings down its machine looks like a machine that failed.
    """
    for _, cell in context.cells:
        if cell.lost_attempts:
            yield _advisory(
                "lost_attempts",
                cell,
                f"The jobs of {cell.id} ran again after {some(list(cell.lost_attempts))}: a job"
                " that brings its machine or agent down looks like that, too.",
                {"attempts": list(cell.lost_attempts)},
            )


def _advisory(
    kind: str, cell: CellEvidence, sentence: str, inputs: Mapping[str, object]
) -> RuleResult:
    return RuleResult(
        id=f"{kind}/{cell.id}",
        kind=kind,
        blocking=False,
        outcome=RuleOutcome.OK,
        sentence=sentence,
        inputs=inputs,
    )


def evidence(context: RuleContext) -> Iterator[RuleResult]:
    """Yield the result of `evidence_v2`; without any run, its sentence names the product."""
    product = context.policy.metadata.product
    none = (
        f"There is no finished run of the product {product}, which the policy is for: launch one,"
        " or say another `metadata.product` in the policy."
    )
    for result in evidence_v2(context):
        yield result if context.snapshot.runs else replace(result, sentence=none)


def _passing(context: RuleContext, platform: PlatformEvidence) -> Iterator[CellEvidence]:
    for judged in platform.jobs:
        counts = judged.blocking and _passed(judged)
        if counts and not any(doubts(context, platform, judged.cell)):
            yield judged.cell


def _passed(ruled_job: RuledJob) -> bool:
    """Whether the job or one of its tests passed; other rules report its failures."""
    return ruled_job.job.outcome is Outcome.PASSED or ruled_job.job.counts.passed > 0


def _trusted(cell: CellEvidence) -> str:
    if cell.attested:
        return f"{cell.id} was produced by our agent on {cell.instance_type or 'this machine'}"
    if is_unavailable(cell) and not cell.ingested:
        return f"{cell.id} has its provider's recorded answer"
    return f"{cell.id} is not attested, which the policy allows of evidence from elsewhere"


def _moment(cell: CellEvidence) -> str:
    return f"{cell.ended_at:%Y-%m-%d %H:%M} UTC" if cell.ended_at else "an unknown time"


def _reused(cell: CellEvidence) -> dict[str, object]:
    """Return the runs of reused evidence, by job."""
    return {job.id: job.reused_from for job in cell.jobs if job.reused_from}
