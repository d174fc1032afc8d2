"""Making results: the outcome that a policy's word means, and what several come to."""

from __future__ import annotations

from collections.abc import Iterable

from orchestrator.domain.gate.policy import OnTrouble
from orchestrator.domain.gate.verdict import RuleOutcome, RuleResult

_SEVERITY = (
    RuleOutcome.OK,
    RuleOutcome.TOLERATED,
    RuleOutcome.WAIVED,
    RuleOutcome.UNKNOWN,
    RuleOutcome.VIOLATED,
)


def policy_outcome(word: OnTrouble) -> RuleOutcome:
    """What trouble comes to; whoever asks sees to it that `advisory` blocks nothing."""
    return RuleOutcome.UNKNOWN if word == "inconclusive" else RuleOutcome.VIOLATED


def worst(outcomes: Iterable[RuleOutcome]) -> RuleOutcome:
    """The most severe; OK of nothing."""
    return max(outcomes, key=_SEVERITY.index, default=RuleOutcome.OK)


def is_bad(result: RuleResult) -> bool:
    """Whether it keeps a release from passing, if it is blocking."""
    return result.outcome in (RuleOutcome.VIOLATED, RuleOutcome.UNKNOWN)
