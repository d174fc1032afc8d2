"""Performance decisions: whether benchmarks are slower than their budgets allow.

This module has the statistical tests that are needed and the outcomes that follow from them.
`decide` is the only decision about benchmarks: a rule of the gate describes its results, and `make
gate-power` measures it. All functions are pure.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from statistics import NormalDist, geometric_mean
from typing import Protocol

from orchestrator.domain.gate.verdict import RuleOutcome
from orchestrator.domain.grouping import grouped

POWER = 0.95
"""Statistical power of `detectable` and `pairs_needed`."""
PRECISION = 0.5
"""Maximum distance of the interval's end from an estimate within the budget, as a share of it."""
FEWEST_LAUNCHES = 4
"""Minimum number of launches for an interval; the agent makes at least that many."""
_MANY = 100_000
_UNKNOWN = RuleOutcome.UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedComparison:
    """Subject against baseline over pairs of turns; ratios are slow-downs: 0.03 is 3 % slower."""

    pairs: int
    slowdown: float
    """Robust mean over the pairs; negative if the subject is faster."""
    low: float
    high: float
    """Upper end of the confidence interval; each end is exceeded with probability alpha."""
    p: float
    """One-sided p-value of the hypothesis that the subject is not slower than the margin."""
    detectable: float
    """Minimum effect that is detected with a power of 95 %."""
    launches: int = 0
    """Number of processes of each arm that confirm the pairs; 0 if there are too few."""


class Statistics(Protocol):
    """Statistical tests on paired samples."""

    def compare(
        self,
        subject: Sequence[float],
        baseline: Sequence[float],
        *,
        direction: str,
        margin: float,
        alpha: float,
    ) -> PairedComparison:
        """Test pairs, in the order of their turns, for a slow-down beyond a margin.

        Raises ValueError for unusable samples: fewer than 3 pairs, zeros, or negative
        values.
        """
        ...

    def adjusted(self, p: Sequence[float]) -> tuple[float, ...]:
        """Return p-values that are adjusted for several tests (Benjamini-Hochberg)."""
        ...


_TIME = r"(?:[num\u00b5\u03bc]?s|(?:milli|micro|nano)?seconds?|m?sec)"
_LESS_IS_BETTER = re.compile(
    rf"{_TIME}(?:/(?:it|iter|iteration|step|token|batch|op|call|request|epoch|item|sample))?"
)
_MORE_IS_BETTER = re.compile(
    r"[kKMGTPE]?FLOPS|[kKMGT]?ops|qps|rps|tps|fps|iops|\w[\w ]*/ ?(?:s|sec|second)", re.ASCII
)
_NOT_WANTED = re.compile(
    rf"(?i)error|fail|fault|miss|drop|lost|loss|retr|stall|evict|timeout|alloc|wait|\b{_TIME}\b"
    r"|^(?:j|kj|usd|gc)\b"
)
"""Units per second of which lower values may be better."""


def better_by_unit(unit: str) -> str:
    """Return ``lower`` or ``higher`` if it is certainly better by the unit; otherwise empty."""
    if _LESS_IS_BETTER.fullmatch(unit):
        return "lower"
    rate = _MORE_IS_BETTER.fullmatch(unit)
    return "higher" if rate and not _NOT_WANTED.search(unit.rpartition("/")[0]) else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetedBenchmark:
    """A measured benchmark with its budget."""

    subject: Sequence[float]
    baseline: Sequence[float]
    direction: str
    """Which values are better: ``higher`` or ``lower``."""
    budget: float | None
    """Allowed slow-down, 0.03 for 3 %; None without a budget, so that the benchmark cannot fail."""
    launches: Sequence[float] = ()
    """Number of each pair's process; empty if every turn has its own process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkResult:
    """The result of one benchmark."""

    outcome: RuleOutcome
    """OK, VIOLATED or UNKNOWN."""
    comparison: PairedComparison | None
    """The comparison, whose `detectable` accounts for all tests of the run; None if not tested."""
    adjusted: float | None
    """The p-value, adjusted over all benchmarks with a budget; None without a budget."""
    reason: str
    """The reason in a few words, without the figures of `comparison`."""
    pairs_needed: int | None = None
    """Approximate number of pairs that would decide an unknown result; None if more do not help."""


def decide(
    benchmarks: Sequence[BudgetedBenchmark],
    statistics: Statistics,
    *,
    min_pairs: int,
    alpha: float,
    fdr: float,
) -> tuple[BenchmarkResult, ...]:
    """Decide all benchmarks of a run together; return one result for each, in their order.

    VIOLATED: slower than the budget, by the interval (``low > budget``, which is ``p <=
    alpha``) and by the p-value that is adjusted for all benchmarks of the run (``<= fdr``).

    OK: the interval ends within the budget; or the estimate is within the budget, and the
    interval ends at most half a budget beyond the estimate.

    UNKNOWN: everything else; noise is never a pass.
    """
    budgets = sum(one.budget is not None for one in benchmarks)
    limits = _Limits(min_pairs, alpha, fdr, strict=min(alpha, fdr / max(1, budgets)))
    found = [_compare(one, statistics, limits) for one in benchmarks]
    tested = [
        (index, comparison.p)
        for index, comparison in enumerate(found)
        if isinstance(comparison, PairedComparison) and benchmarks[index].budget is not None
    ]
    p = statistics.adjusted([p for _, p in tested])
    adjusted = {index: one for (index, _), one in zip(tested, p, strict=True)}
    return tuple(
        _ruling(one, found[index], adjusted.get(index), limits)
        for index, one in enumerate(benchmarks)
    )


def pairs_needed(sd: float, effect: float, *, alpha: float = 0.01, power: float = POWER) -> int:
    """Return the number of pairs that detect an effect beyond the margin, for an sd of log ratios.

    It is that of one one-sided test; its second term corrects for the sd being an estimate.

    Raises ValueError if the sd is negative or the effect is not positive.
    """
    if sd < 0 or effect <= 0:
        raise ValueError(f"an sd of {sd} and an effect of {effect} cannot be sized")
    z = NormalDist().inv_cdf(1 - alpha)
    need = ((z + NormalDist().inv_cdf(power)) * sd / effect) ** 2 + z * z / 2
    return max(3, math.ceil(min(need, _MANY)))


@dataclass(frozen=True, slots=True)
class _Limits:
    """A policy's limits for the tests of a run."""

    min_pairs: int
    alpha: float
    fdr: float
    strict: float
    """The p-value at which a single slow benchmark is detected."""


def _compare(
    one: BudgetedBenchmark, statistics: Statistics, limits: _Limits
) -> PairedComparison | str:
    if _pairs(one) < limits.min_pairs:
        return f"{_pairs(one)} pairs of turns, and the policy wants {limits.min_pairs}"
    margin = one.budget or 0.0

    def at(alpha: float) -> PairedComparison:
        test = partial(statistics.compare, direction=one.direction, margin=margin, alpha=alpha)
        pairs, launches = test(one.subject, one.baseline), _by_launch(one)
        return pairs if launches is None else _cautious(pairs, test(*launches))

    try:
        return replace(at(limits.alpha), detectable=at(limits.strict).detectable)
    except ValueError as error:
        return str(error)


def _by_launch(one: BudgetedBenchmark) -> tuple[list[float], list[float]] | None:
    """Return the mean of the turns of each launch, by arm; None if there are too few launches."""
    held = grouped((launch, pair) for pair, launch in enumerate(one.launches))
    if len(held) < FEWEST_LAUNCHES:
        return None
    subject, baseline = (
        [geometric_mean(arm[pair] for pair in pairs) for pairs in held.values()]
        for arm in (one.subject, one.baseline)
    )
    return subject, baseline


def _cautious(pairs: PairedComparison, launches: PairedComparison) -> PairedComparison:
    """Return the worse values of both tests, because turns of one process share a memory layout."""
    return replace(
        pairs,
        low=min(pairs.low, launches.low),
        high=max(pairs.high, launches.high),
        p=max(pairs.p, launches.p),
        detectable=max(pairs.detectable, launches.detectable),
        launches=launches.pairs,
    )


def _pairs(one: BudgetedBenchmark) -> int:
    return min(len(one.subject), len(one.baseline))


def _ruling(
    one: BudgetedBenchmark, found: PairedComparison | str, adjusted: float | None, limits: _Limits
) -> BenchmarkResult:
    if isinstance(found, str):
        return _untested(one, found, limits)
    if one.budget is None or adjusted is None:
        outcome, reason = RuleOutcome.OK, "no budget is set for it"
        return BenchmarkResult(outcome=outcome, comparison=found, adjusted=None, reason=reason)
    outcome, reason = _judge(found, one.budget, adjusted, limits)
    return BenchmarkResult(
        outcome=outcome,
        comparison=found,
        adjusted=adjusted,
        reason=reason,
        pairs_needed=_needed(found, one.budget, limits) if outcome is _UNKNOWN else None,
    )


def _untested(one: BudgetedBenchmark, why: str, limits: _Limits) -> BenchmarkResult:
    return BenchmarkResult(
        outcome=RuleOutcome.OK if one.budget is None else _UNKNOWN,
        comparison=None,
        adjusted=None,
        reason=why,
        pairs_needed=limits.min_pairs if _pairs(one) < limits.min_pairs else None,
    )


def _judge(
    comparison: PairedComparison, budget: float, adjusted: float, limits: _Limits
) -> tuple[RuleOutcome, str]:
    if comparison.low > budget and comparison.p <= limits.alpha and adjusted <= limits.fdr:
        return RuleOutcome.VIOLATED, "slower than its budget allows"
    if comparison.high <= budget:
        return RuleOutcome.OK, "within its budget, by the whole interval"
    if comparison.slowdown > budget:
        return _UNKNOWN, "seems slower than its budget allows, and is not certain"
    if comparison.high - comparison.slowdown > PRECISION * budget:
        return _UNKNOWN, "too noisy to tell"
    return RuleOutcome.OK, "within its budget, by the estimate"


def _needed(comparison: PairedComparison, budget: float, limits: _Limits) -> int | None:
    """Return the number of pairs that would decide, by the observed noise; None if too many."""
    wide = math.log1p(comparison.high) - math.log1p(comparison.slowdown)
    sd = wide * math.sqrt(comparison.pairs) / NormalDist().inv_cdf(1 - limits.alpha)
    beyond = math.log1p(comparison.slowdown) - math.log1p(budget)
    if beyond > 0:
        needed = pairs_needed(sd, beyond, alpha=limits.strict)
    else:
        goal = math.log1p(PRECISION * budget)
        needed = math.ceil(comparison.pairs * (wide / goal) ** 2) if goal > 0 else _MANY
    return None if needed >= _MANY else max(needed, comparison.pairs + 1)
