"""What makes the performance rule of a policy senseless."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.domain.gate.policy import GatePolicy, PerformanceRule
from orchestrator.domain.gate.quantities import is_pattern, like, percent
from orchestrator.domain.manifest import IDENTIFIER
from orchestrator.domain.problems import Path, Problem

_PATH: Path = ("spec", "performance")
LEAST_PAIRS = 3
LARGEST_LEVEL = 0.2
"""Of alpha and of the false discovery rate: more is no test."""


def performance_problems(policy: GatePolicy) -> Iterator[Problem]:
    """Budgets that nothing can meet, and levels that are none."""
    rule = policy.spec.performance
    if rule is None:
        return
    if not rule.budgets:
        yield Problem((*_PATH, "budgets"), "name at least one budget, or leave the rule out")
    for index in range(len(rule.budgets)):
        yield from _budget(rule, index)
    if rule.min_pairs < LEAST_PAIRS:
        yield Problem((*_PATH, "min_pairs"), f"must be at least {LEAST_PAIRS}")
    for key in ("alpha", "fdr"):
        if not 0 < getattr(rule, key) <= LARGEST_LEVEL:
            yield Problem((*_PATH, key), f"must be more than 0 and at most {LARGEST_LEVEL}")


def _budget(rule: PerformanceRule, index: int) -> Iterator[Problem]:
    path, budget = (*_PATH, "budgets", index), rule.budgets[index]
    job, slash, metric = budget.match.partition("/")
    if not slash or not metric or not IDENTIFIER.fullmatch(job.replace("*", "x")):
        yield Problem((*path, "match"), f"{budget.match!r} fits no benchmark: write JOB/METRIC")
    try:
        if not percent(budget.max_regression):
            yield Problem((*path, "max_regression"), "must be more than 0 %")
    except ValueError as error:
        yield Problem((*path, "max_regression"), str(error))
    for other in rule.budgets[:index]:
        same = other.match == budget.match
        if same or (is_pattern(other.match) and like(other.match, budget.match)):
            message = f"never counts: {other.match!r} above it fits the same, and comes first"
            yield Problem((*path, "match"), message)
            break
