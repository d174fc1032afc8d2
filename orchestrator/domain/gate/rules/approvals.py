"""Approvals: whoever must say yes to a decision said so, to this very evidence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from orchestrator.domain.gate.case import Case
from orchestrator.domain.gate.excuses import Excuse, person
from orchestrator.domain.gate.quantities import counted, some
from orchestrator.domain.gate.verdict import Decision, RuleOutcome, RuleResult


def approvals(case: Case, decision: Decision, concerned: Sequence[Excuse]) -> Iterator[RuleResult]:
    """Where the decision, as it is without them, needs approvals.

    One that is asked for a PASS is asked for a PASS_WITH_EXCEPTIONS, too.

    Args:
        case: What the verdict is made from.
        decision: What the other rules come to.
        concerned: Exceptions and waivers for what is wrong, whether they are in force or not.
    """
    rule = case.policy.spec.approvals
    if rule is None or not rule.on:
        return
    strictest = min(Decision(word).rank for word in rule.on)
    if not strictest <= decision.rank <= Decision.PASS_WITH_EXCEPTIONS.rank:
        return
    authors = {person(one.author) for one in concerned} if rule.not_author else set()
    said = {
        person(one.by): one.by.strip()
        for one in sorted(case.snapshot.approvals, key=lambda one: (one.by, one.at))
        if one.evidence == case.evidence_digest and one.by.strip() and one.at <= case.now
    }
    counted_ = sorted(name for key, name in said.items() if key not in authors)
    is_enough = len(counted_) >= rule.need
    need = counted(rule.need, "approval")
    who = some(counted_) or "nobody"
    yield RuleResult(
        id="approval",
        kind="approval",
        blocking=True,
        outcome=RuleOutcome.OK if is_enough else RuleOutcome.UNKNOWN,
        sentence=f"{decision.value} needs {need} by others than its authors; {who} approved.",
        inputs={
            "decision": decision.value,
            "need": rule.need,
            "approved_by": counted_,
            "not_counted": sorted(name for key, name in said.items() if key in authors),
        },
        waivable=False,
    )
