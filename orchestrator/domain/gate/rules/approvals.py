"""Approvals: the required people approved this evidence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set

from orchestrator.domain.gate.exceptions import Exemption
from orchestrator.domain.gate.policy import ApprovalRule, counted, some
from orchestrator.domain.gate.rule_context import RuleContext
from orchestrator.domain.gate.tolerance import FLAKY, GIVEN_UP
from orchestrator.domain.gate.verdict import Decision, RuleOutcome, RuleResult

ALONE = "a maintainer who works alone says `approvals: {on: []}` in the policy"
"""How one person alone decides."""


def approvals(
    context: RuleContext,
    decision: Decision,
    results: Sequence[RuleResult],
    concerned: Sequence[Exemption],
) -> Iterator[RuleResult]:
    """Yield a result where the decision without approvals needs approvals.

    A policy that requires an approval for a PASS requires it for a PASS_WITH_EXCEPTIONS, too. Where
    the policy does not say, an excuse by one person alone needs an approval: by a stored known
    issue or quarantine, by an exception whose approver is only typed, by a change of the payload.

    Args:
        context: What the verdict is made from.
        decision: What the other rules come to.
        results: Of the other rules.
        concerned: Exceptions and waivers for what is wrong, whether they are in force or not.
    """
    rule = context.policy.spec.approvals
    if rule is None and context.terms.approved and not _is_agreed(context, results):
        rule = ApprovalRule()
    if rule is None or not rule.on:
        return
    strictest = min(Decision(word).rank for word in rule.on)
    if not strictest <= decision.rank <= Decision.PASS_WITH_EXCEPTIONS.rank:
        return
    said = _approvals(context)
    authors = _authors(context, concerned) if rule.not_author else set()
    signed = _approvals(context, signed=True) if context.terms.signed else said
    barred = authors | (said.keys() - signed.keys())
    yes = sorted(name for key, name in said.items() if key not in barred)
    idle = sorted(name for key, name in said.items() if key in barred)
    is_enough = len(yes) >= rule.need
    explain = _explained if context.terms.explained else _as_before
    needs = f"{decision.value} needs {counted(rule.need, 'approval')}"
    step = "" if is_enough else _step(context.policy.metadata.name, authors)
    yield RuleResult(
        id="approval",
        kind="approval",
        blocking=True,
        outcome=RuleOutcome.OK if is_enough else RuleOutcome.UNKNOWN,
        sentence=explain(needs, authors, yes, idle, step),
        inputs={
            "decision": decision.value,
            "need": rule.need,
            "approved_by": yes,
            "not_counted": idle,
            **({"authors": sorted(authors)} if context.terms.explained else {}),
        },
        waivable=False,
    )


def _step(gate: str, authors: Set[str]) -> str:
    """Describe how to approve, and who can."""
    how = f"by another person gives one; {ALONE}" if authors else "gives one"
    return f" `seatrial gate approve {gate}` {how}."


def _as_before(needs: str, authors: Set[str], yes: list[str], idle: list[str], step: str) -> str:
    """Describe missing approvals as the first two versions of the rule did."""
    return f"{needs} by others than its authors; {some(yes) or 'nobody'} approved this evidence."


def _explained(needs: str, authors: Set[str], yes: list[str], idle: list[str], step: str) -> str:
    """Describe who approved, whose approval does not count and why, and how to approve."""
    others = " by somebody who did not ask for what it excuses" if authors else ""
    who = f"{some(yes)} approved this evidence" if yes else "nobody has approved this evidence yet"
    if idle:
        who = f"{some(yes)} approved this evidence" if yes else "nobody else has approved it"
        own = "an author's own or a typed approval does not count"
        who = f"{some(idle)} approved, and {own}; {who}"
    return f"{needs}{others}; {who}.{step}"


def _is_agreed(context: RuleContext, results: Sequence[RuleResult]) -> bool:
    """Whether every excuse is an approved waiver or stated in the policy.

    An exception's approver is only a name in the policy; that person has approved nothing here.
    """
    agreed = {FLAKY, GIVEN_UP, *(one.id for one in context.snapshot.waivers)}
    agreed |= {one.id for one in context.policy.spec.known_issues}
    excused = (RuleOutcome.TOLERATED, RuleOutcome.WAIVED)
    used = (one.by for one in results if one.blocking and one.outcome in excused)
    return all(agreed.issuperset(names) for names in used)


def _approvals(context: RuleContext, *, signed: bool = False) -> Mapping[str, str]:
    """Return the names of approvers of this evidence, by person.

    Optionally only those with tokens.
    """
    return {
        context.terms.person(one.by): one.by.strip()
        for one in sorted(context.snapshot.approvals, key=lambda one: (one.by, one.at))
        if one.evidence == context.evidence_digest and one.by.strip() and one.at <= context.now
        if one.token or not signed
    }


def _authors(context: RuleContext, concerned: Sequence[Exemption]) -> set[str]:
    """Return the authors of every excuse that the decision uses."""
    names = [one.author for one in concerned]
    if context.terms.signed:
        used = context.tolerance.used
        opened = [(one.id, one.author) for one in context.tolerance.issues]
        opened += [(one.id, one.author) for one in context.snapshot.quarantines]
        names += [author for name, author in opened if author and used.get(name)]
    return {context.terms.person(name) for name in names}
