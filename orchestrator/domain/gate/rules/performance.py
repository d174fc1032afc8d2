"""Rule on performance: no benchmark is slower than its budget allows; noise never passes."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence

from orchestrator.domain.gate.performance import (
    BenchmarkResult,
    BudgetedBenchmark,
    PairedComparison,
    better_by_unit,
    decide,
)
from orchestrator.domain.gate.policy import (
    BenchmarkBudget,
    PerformanceRule,
    as_percent,
    figure,
    like,
    percent,
    some,
)
from orchestrator.domain.gate.rule_context import PlatformEvidence, RuleContext, RuledJob
from orchestrator.domain.gate.rules.jobs import degraded
from orchestrator.domain.gate.snapshot import CellEvidence, Pairs, ViolatedBefore
from orchestrator.domain.gate.tolerance import FLAKY
from orchestrator.domain.gate.verdict import RuleOutcome, RuleResult
from orchestrator.domain.paired_samples import launches_of

MEASURED = ("performance", "degraded")
"""Kinds of rules on measurements, whose results may differ in another run."""
Measured = tuple[CellEvidence, Pairs, BenchmarkBudget | None]


def performance(context: RuleContext) -> Iterator[RuleResult]:
    """Yield a result for each benchmark, and for each job and budget without a benchmark."""
    return _performance(context, _untestable)


def performance_v2(context: RuleContext) -> Iterator[RuleResult]:
    """Yield the results of versions 1 and 2, which do not compare unit and direction."""
    return _performance(context, _of_itself)


def measured_again(context: RuleContext) -> Iterator[RuleResult]:
    """Yield a result for each rule that another run of the subject violated and this one meets.

    A rule without a result in this run counts as met.

    Otherwise a run could be repeated until its measurements are good enough.
    """
    before = context.snapshot.violated_before
    now = (
        {one.id: one for rule in (performance, degraded) for one in rule(context)} if before else {}
    )
    for one in before:
        found = now.get(one.rule)
        if found is None or found.outcome is RuleOutcome.OK:
            yield _violated_first(context.policy.metadata.name, one)


def _violated_first(gate: str, before: ViolatedBefore) -> RuleResult:
    rule = f"{FLAKY}/{before.rule}"
    return RuleResult(
        id=rule,
        kind="flaky",
        blocking=True,
        outcome=RuleOutcome.VIOLATED,
        sentence=(
            f"{before.rule} was violated in run {some(list(before.runs))} of the same subject"
            f" ({before.verdict}: {before.sentence.rstrip('.')}), and is not in this one. If the"
            " machine of that run was disturbed, another person approves a waiver that says so:"
            f" `seatrial gate waive {gate} {rule}`."
        ),
        inputs={"verdict": before.verdict, "runs": list(before.runs)},
        failing={before.rule: 1},
    )


def _performance(
    context: RuleContext, untestable: Callable[[Measured], str]
) -> Iterator[RuleResult]:
    """Yield the results; `untestable` returns why a benchmark cannot be tested, or an empty text.

    Blocking and advisory platforms are two separate families of tests, so that advisory ones do
    not make the others more or less strict.
    """
    rule = context.policy.spec.performance
    if rule is None:
        return
    for level in ("blocking", "advisory"):
        platforms = [platform for platform in context.platforms if platform.rule.level == level]
        rows = [row for platform in platforms for row in _measured(rule, platform)]
        measured = [row for row in rows if not untestable(row)]
        for row, ruling in zip(measured, _decide(context, rule, measured), strict=True):
            yield _result(rule, row, ruling, is_blocking=level == "blocking")
        for row in filter(untestable, rows):
            ruling = BenchmarkResult(
                outcome=RuleOutcome.UNKNOWN,
                comparison=None,
                adjusted=None,
                reason=untestable(row),
            )
            yield _result(rule, row, ruling, is_blocking=level == "blocking")
        yield from _without(rule, platforms, is_blocking=level == "blocking")
    yield from _unused(rule, context)


def _of_itself(row: Measured) -> str:
    cell, _, budget = row
    is_own = cell.own_baseline and budget is not None
    return "compared with itself: baseline and subject are the same" if is_own else ""


def _untestable(row: Measured) -> str:
    _, pairs, budget = row
    better = better_by_unit(pairs.unit)
    if budget is None or better in ("", pairs.direction):
        is_timed = budget is not None and better
        return _of_itself(row) or (_constant(pairs) if is_timed else "")
    return (
        f"its direction says that {pairs.direction} is better, and of the unit {pairs.unit}"
        f" {better} is: correct its direction, or its unit"
    )


def _constant(pairs: Pairs) -> str:
    """Return a sentence if all samples of both arms are equal, so that none was measured."""
    samples = {*pairs.subject, *pairs.baseline}
    if len(samples) > 1 or len(pairs.subject) < 2:
        return ""
    return f"every sample of both arms is {figure(samples.pop())} {pairs.unit}: none was measured"


def _measured(rule: PerformanceRule, platform: PlatformEvidence) -> Iterator[Measured]:
    for cell in platform.ran:
        for pairs in sorted(cell.pairs, key=lambda pairs: (pairs.job, pairs.metric)):
            yield cell, pairs, _budget(rule, f"{pairs.job}/{pairs.metric}")


def _budget(rule: PerformanceRule, name: str) -> BenchmarkBudget | None:
    return next((budget for budget in rule.budgets if like(budget.match, name)), None)


def _decide(
    context: RuleContext, rule: PerformanceRule, measured: Sequence[Measured]
) -> tuple[BenchmarkResult, ...]:
    asked = [
        BudgetedBenchmark(
            subject=pairs.subject,
            baseline=pairs.baseline,
            direction=pairs.direction,
            budget=float(percent(budget.max_regression)) if budget else None,
            launches=launches_of(pairs),
        )
        for _, pairs, budget in measured
    ]
    return decide(
        asked,
        context.statistics,
        min_pairs=rule.min_pairs,
        alpha=float(rule.alpha),
        fdr=float(rule.fdr),
    )


def _result(
    rule: PerformanceRule, row: Measured, ruling: BenchmarkResult, *, is_blocking: bool
) -> RuleResult:
    cell, pairs, budget = row
    is_open = ruling.outcome is RuleOutcome.UNKNOWN
    shown = budget is None or (is_open and rule.on_inconclusive == "advisory")
    return RuleResult(
        id=f"performance/{pairs.job}/{pairs.metric}@{cell.id}",
        kind="performance",
        blocking=is_blocking and not shown,
        outcome=_inconclusive_outcome(rule) if is_open else ruling.outcome,
        sentence=_sentence(pairs, budget, ruling, cell),
        inputs=_inputs(pairs, budget, ruling),
        failing=_failing(ruling),
    )


def _failing(ruling: BenchmarkResult) -> dict[str, int]:
    """Return the slow-down in whole per cent; or the reason of a result that is not violated."""
    found = ruling.comparison
    if found is None or ruling.outcome is not RuleOutcome.VIOLATED:
        return {ruling.reason: 1}
    return {"% slower": math.ceil(found.slowdown * 100)}


def _inconclusive_outcome(rule: PerformanceRule) -> RuleOutcome:
    return RuleOutcome.VIOLATED if rule.on_inconclusive == "fail" else RuleOutcome.UNKNOWN


def _sentence(
    pairs: Pairs, budget: BenchmarkBudget | None, ruling: BenchmarkResult, cell: CellEvidence
) -> str:
    name = f"{pairs.job}/{pairs.metric} on {cell.id}"
    allowed = f" (budget {budget.max_regression})" if budget else ""
    said = [f"{name}: {ruling.reason}{allowed}"]
    found = ruling.comparison
    if found is not None:
        said.append(_compared(found))
    if ruling.pairs_needed is not None:
        said.append(f"about {ruling.pairs_needed} pairs would tell")
    return "; ".join([*said, *pairs.remarks]) + "."


def _compared(comparison: PairedComparison) -> str:
    processes = f" from {comparison.launches} processes of each arm" if comparison.launches else ""
    return (
        f"{as_percent(comparison.slowdown)} slower, from {as_percent(comparison.low)} to "
        f"{as_percent(comparison.high)}, in {comparison.pairs} pairs{processes}; "
        f"minimum detectable effect {as_percent(comparison.detectable)}"
    )


def _inputs(
    pairs: Pairs, budget: BenchmarkBudget | None, ruling: BenchmarkResult
) -> dict[str, object]:
    found = ruling.comparison
    told: dict[str, object] = {
        "unit": pairs.unit,
        "direction": pairs.direction,
        "budget": budget.max_regression if budget else "",
        "match": budget.match if budget else "",
        "pairs": len(pairs.subject),
        "reason": ruling.reason,
        "remarks": list(pairs.remarks),
    }
    if found is not None:
        told |= {
            "slowdown": figure(found.slowdown),
            "low": figure(found.low),
            "high": figure(found.high),
            "p": figure(found.p),
            "detectable": figure(found.detectable),
        }
        if found.launches:
            told["launches"] = found.launches
    if ruling.adjusted is not None:
        told["p_adjusted"] = figure(ruling.adjusted)
    if ruling.pairs_needed is not None:
        told["pairs_needed"] = ruling.pairs_needed
    return told


def _without(
    rule: PerformanceRule, platforms: Sequence[PlatformEvidence], *, is_blocking: bool
) -> Iterator[RuleResult]:
    """Yield a result for each job of kind ``benchmark`` that a budget matches, without pairs.

    Such a job has no benchmark with a budget that was paired with a baseline.
    """
    for platform in platforms:
        for one in platform.jobs:
            paired = any(_budget(rule, f"{p.job}/{p.metric}") for p in _pairs(one))
            if one.job.kind == "benchmark" and _is_meant(rule, one.job.id) and not paired:
                yield _open(rule, one.name, is_blocking=is_blocking)


def _pairs(one: RuledJob) -> Iterator[Pairs]:
    return (pairs for pairs in one.cell.pairs if pairs.job == one.job.id)


def _is_meant(rule: PerformanceRule, job: str) -> bool:
    return any(like(budget.match.partition("/")[0], job) for budget in rule.budgets)


def _unused(rule: PerformanceRule, context: RuleContext) -> Iterator[RuleResult]:
    """Yield a result for each budget that matches no paired benchmark of a blocking platform.

    There are none if no blocking platform ran.
    """
    blocking = [
        platform
        for platform in context.platforms
        if platform.rule.level == "blocking" and platform.ran
    ]
    met = {
        budget.match
        for platform in blocking
        for _, _, budget in _measured(rule, platform)
        if budget
    }
    for budget in rule.budgets if blocking else ():
        if budget.match not in met:
            yield _open(rule, budget.match, is_blocking=True)


def _open(rule: PerformanceRule, what: str, *, is_blocking: bool) -> RuleResult:
    return RuleResult(
        id=f"performance/{what}",
        kind="performance",
        blocking=is_blocking and rule.on_inconclusive != "advisory",
        outcome=_inconclusive_outcome(rule),
        sentence=f"{what} was not measured beside a baseline on the same machine.",
        inputs={"pairs": 0, "min_pairs": rule.min_pairs},
        failing={"not measured beside a baseline": 1},
    )
