"""Rule on approvals: the required persons approved this evidence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set

from orchestrator.domain.gate.exceptions import Exemption
from orchestrator.domain.gate.policy import ApprovalRule, counted, some
from orchestrator.domain.gate.rule_context import RuleContext
from orchestrator.domain.gate.tolerance import FLAKY, GIVEN_UP
from orchestrator.domain.gate.verdict import Decision, RuleOutcome, RuleResult

ALONE = "a maintainer who works alone says `approvals: {on: []}` in the policy"
"""How a person who works alone decides without approvals."""


def approvals(
    context: RuleContext,
    decision: Decision,
    results: Sequence[RuleResult],
    concerned: Sequence[Exemption],
) -> Iterator[RuleResult]:
    """Yield a result if the decision needs approvals.

    A policy that requires approvals for a PASS requires them for a PASS_WITH_EXCEPTIONS, too.
    If the policy has no rule, approvals are needed where one person alone excused a violation:
    with a stored known issue or quarantine, an exception whose approver was typed, or another
    payload.

    Args:
        context: The input of the rules.
        decision: The decision of the other rules.
        results: The results of the other rules.
        concerned: Exceptions and waivers of bad rules, whether they count or not.
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
    """Return how to approve, and who can, in words."""
    how = f"by another person gives one; {ALONE}" if authors else "gives one"
    return f" `seatrial gate approve {gate}` {how}."


def _as_before(needs: str, authors: Set[str], yes: list[str], idle: list[str], step: str) -> str:
    """Return the sentence of versions 1 and 2 of the rules."""
    return f"{needs} by others than its authors; {some(yes) or 'nobody'} approved this evidence."


def _explained(needs: str, authors: Set[str], yes: list[str], idle: list[str], step: str) -> str:
    """Return a sentence about who approved, whose approval does not count, and how to approve."""
    others = " by somebody who did not ask for what it excuses" if authors else ""
    who = f"{some(yes)} approved this evidence" if yes else "nobody has approved this evidence yet"
    if idle:
        who = f"{some(yes)} approved this evidence" if yes else "nobody else has approved it"
        own = "an author's own or a typed approval does not count"
        who = f"{some(idle)} approved, and {own}; {who}"
    return f"{needs}{others}; {who}.{step}"


def _is_agreed(context: RuleContext, results: Sequence[RuleResult]) -> bool:
    """Whether every excuse is an approved waiver or is in the policy.

    The approver of an exception is only a name in the policy, so that exceptions do not count
    here.
    """
    agreed = {FLAKY, GIVEN_UP, *(one.id for one in context.snapshot.waivers)}
    agreed |= {one.id for one in context.policy.spec.known_issues}
    excused = (RuleOutcome.TOLERATED, RuleOutcome.WAIVED)
    used = (one.by for one in results if one.blocking and one.outcome in excused)
    return all(agreed.issuperset(names) for names in used)


def _approvals(context: RuleContext, *, signed: bool = False) -> Mapping[str, str]:
    """Return the names of the approvers of this evidence, by person.

    With `signed`, only approvals with a token are counted.
    """
    return {
        context.terms.person(one.by): one.by.strip()
        for one in sorted(context.snapshot.approvals, key=lambda one: (one.by, one.at))
        if one.evidence == context.evidence_digest and one.by.strip() and one.at <= context.now
        if one.token or not signed
    }


def _authors(context: RuleContext, concerned: Sequence[Exemption]) -> set[str]:
    """Return the authors of all excuses of the decision."""
    names = [one.author for one in concerned]
    if context.terms.signed:
        used = context.tolerance.used
        opened = [(one.id, one.author) for one in context.tolerance.issues]
        opened += [(one.id, one.author) for one in context.snapshot.quarantines]
        names += [author for name, author in opened if author and used.get(name)]
    return {context.terms.person(name) for name in names}
