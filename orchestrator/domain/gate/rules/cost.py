"""Cost: the runs were not dearer than the policy allows."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.domain.gate.rule_context import RuleContext
from orchestrator.domain.gate.rules.rule_results import policy_outcome
from orchestrator.domain.gate.verdict import RuleOutcome, RuleResult


def cost(case: RuleContext) -> Iterator[RuleResult]:
    """All machines of all runs that were looked at."""
    rule = case.policy.spec.cost
    if rule is None:
        return
    spent = case.snapshot.cost_usd
    is_over = spent > rule.max_usd
    yield RuleResult(
        id="cost",
        kind="cost",
        blocking=rule.on_exceed != "advisory",
        outcome=policy_outcome(rule.on_exceed) if is_over else RuleOutcome.OK,
        sentence=(
            f"The machines cost {spent:.2f} USD, {'more' if is_over else 'not more'} than the "
            f"{rule.max_usd:.2f} USD that the policy allows."
        ),
        inputs={"usd": str(spent), "max_usd": str(rule.max_usd)},
    )
