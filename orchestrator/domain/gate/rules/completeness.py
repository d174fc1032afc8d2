"""Rule on completeness: all collected tests reported, and enough tests were collected."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from orchestrator.domain.gate.policy import counted, some
from orchestrator.domain.gate.rule_context import (
    PlatformEvidence,
    RuleContext,
    policy_outcome,
    worst,
)
from orchestrator.domain.gate.snapshot import CellEvidence
from orchestrator.domain.gate.verdict import RuleOutcome, RuleResult
from orchestrator.domain.outcome import Outcome

_CUT_SHORT = frozenset({Outcome.CANCELLED, Outcome.ERRORED})
"""Outcomes by a cause outside of the subject, after which missing reports are unknown."""


def missing(context: RuleContext) -> Iterator[RuleResult]:
    """Yield a result for each cell that ran.

    It is ok if all tests of the jobs that count reported, and the cell collected enough tests.
    Enough is the policy's share (`min_tests_vs_baseline`) of the last green run's tests.
    """
    for platform in context.platforms:
        for cell in platform.ran:
            yield _missing(context, platform, cell)


def _missing(context: RuleContext, platform: PlatformEvidence, cell: CellEvidence) -> RuleResult:
    rule = context.policy.spec.evidence.manifest
    jobs = [one.job for one in platform.counting if one.cell is cell]
    unreported = {job.id: job.counts.missing + job.counts.not_run for job in jobs}
    gaps = {name: number for name, number in unreported.items() if number}
    cut = {job.id: job.outcome for job in jobs if job.outcome in _CUT_SHORT}
    before, now = cell.baseline_collected, cell.counts.collected
    wanted = before is not None and rule.min_tests_vs_baseline is not None
    least = math.ceil((before or 0) * (rule.min_tests_vs_baseline or 0)) if wanted else 0
    said, outcomes = [], []
    if gaps:
        told = some([_gap(name, number, cut) for name, number in sorted(gaps.items())])
        said.append(f"{counted(sum(gaps.values()), 'test')} never reported: {told}")
        its_own = gaps.keys() - cut.keys()
        outcomes.append(policy_outcome(rule.on_missing) if its_own else RuleOutcome.UNKNOWN)
    if now < least:
        said.append(f"{now} tests were collected, of at least {least} (last green run: {before})")
        outcomes.append(RuleOutcome.UNKNOWN if cut else policy_outcome(rule.on_missing))
    return RuleResult(
        id=f"missing/{cell.id}",
        kind="missing",
        blocking=platform.blocking(cell),
        outcome=worst(outcomes),
        sentence=f"{cell.id}: {'; '.join(said) or _whole(now, before)}.",
        inputs={
            "missing": gaps,
            "collected": now,
            "last_green": -1 if before is None else before,
            "least": least,
        },
        failing={**gaps, **({"tests fewer than asked for": least - now} if now < least else {})},
    )


def _gap(name: str, number: int, cut: Mapping[str, Outcome | None]) -> str:
    outcome = cut.get(name)
    return f"{number} of {name}" + (f" ({outcome.value})" if outcome else "")


def _whole(now: int, before: int | None) -> str:
    known = "no green run to compare with" if before is None else f"{before} at the last green run"
    return f"all of {counted(now, 'test')} reported ({known})"
