"""Exceptions of a policy and waivers, which excuse violations of a rule for a limited time."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from orchestrator.domain.gate.exception_terms import ExemptionTerms
from orchestrator.domain.gate.policy import (
    GateException,
    GatePolicy,
    counted,
    some,
)
from orchestrator.domain.gate.rule_context import RuleContext, is_bad
from orchestrator.domain.gate.snapshot import Waiver
from orchestrator.domain.gate.verdict import RuleOutcome, RuleResult

_NAMED = 200
"""Maximum number of failing items that a result lists; the others are in a digest."""
UNBOUND = "it does not say what it excuses"
"""Why an exception without `failing` does not count."""
_LONGEST_WAIVER = timedelta(days=30)
"""Maximum duration of a waiver in version 1 of the rules."""


@dataclass(frozen=True, slots=True)
class Exemption:
    """An exception or a waiver of one rule."""

    id: str
    rule: str
    reason: str
    author: str
    approved_by: tuple[str, ...]
    until: str
    """Its last day or moment, for a person."""
    fault: str = ""
    """Why it does not count; empty if it counts."""
    failing: Mapping[str, int] | None = None
    """The failing items that it excuses, with their counts; None excuses all items of the rule."""
    why: str = "it does not name"
    """Why it excuses no other items, as the end of a sentence."""

    @property
    def sentence(self) -> str:
        """The exception or waiver in one sentence."""
        approved = ", ".join(self.approved_by)
        return f"Waived by {self.id} until {self.until}: {self.reason} (approved by {approved})."


def exemptions(context: RuleContext) -> tuple[Exemption, ...]:
    """Return all exceptions and waivers: first the policy's, then waivers, each sorted by id."""
    gate = context.policy.metadata.name
    written = sorted(context.policy.spec.exceptions, key=lambda one: one.id)
    given = sorted((w for w in context.snapshot.waivers if w.gate == gate), key=lambda one: one.id)
    return (
        *(_of_exception(one, context) for one in written),
        *(_of_waiver(one, context) for one in given),
    )


def apply_exemptions(
    results: Iterable[RuleResult], known: Sequence[Exemption]
) -> Iterator[RuleResult]:
    """Yield the results; a waivable bad result becomes waived if one exemption excuses all of it.

    That is an exemption for the rule, without a fault, that covers every failing item. If none
    does, the sentence of the result names what is not excused.
    """
    for result in results:
        meant = [one for one in known if one.rule == result.id and not one.fault]
        if not (meant and is_bad(result) and result.waivable):
            yield result
            continue
        found = next((one for one in meant if not unexcused(result, one.failing)), None)
        if found is None:
            more = ((one, some(unexcused(result, one.failing))) for one in meant)
            told = "".join(
                f" {one.id} does not excuse {new}, which {one.why}." for one, new in more
            )
            yield replace(result, sentence=f"{result.sentence}{told}")
        else:
            yield replace(
                result,
                outcome=RuleOutcome.WAIVED,
                sentence=f"{result.sentence} {found.sentence}",
                by=(*result.by, found.id),
            )


def unexcused(result: RuleResult, failing: Mapping[str, int] | None) -> list[str]:
    """Return the failing items that are not excused, as ``moe.py::one`` or ``x (3)``."""
    if failing is None:
        return []
    more = {name: n for name, n in result.failing.items() if n > failing.get(name, 0)}
    return as_words(more)


def as_words(failing: Mapping[str, int]) -> list[str]:
    """Return the items in words; counts above 1 follow in parentheses."""
    return [name if n == 1 else f"{name} ({n})" for name, n in sorted(failing.items())]


def with_failing(result: RuleResult, terms: ExemptionTerms) -> RuleResult:
    """Return the result with its failing items; without them if waivers are not bound to items."""
    if not (terms.bound and is_bad(result)):
        return replace(result, failing={})
    failing = result.failing or {result.id: 1}
    names, rest = sorted(failing)[:_NAMED], sorted(failing)[_NAMED:]
    kept = {name: failing[name] for name in names}
    if rest:
        digest = hashlib.sha256("\0".join(rest).encode()).hexdigest()[:16]
        kept[f"{len(rest)} more, together {digest}"] = sum(failing[name] for name in rest)
    return replace(result, failing=kept)


def _of_exception(one: GateException, context: RuleContext) -> Exemption:
    terms, policy = context.terms, context.policy
    others = tuple(
        name
        for name in one.approved_by
        if not terms.name_fault(name) and not terms.is_same(name, one.author)
    )
    late = (context.now.date() - one.expires).days
    fault = "" if others else "nobody but its author approved it"
    fault = fault or terms.end_fault(policy, one.expires, context.now.date())
    if late > 0:
        fault = f"it expired {counted(late, 'day')} ago"
    elif not _is_named(one, policy):
        fault = "the platform's `when_unavailable` names another exception"
    elif not fault and terms.bound and not one.failing:
        fault = UNBOUND
    until, failing = one.expires.isoformat(), one.failing if terms.bound else None
    return Exemption(one.id, one.rule, one.reason, one.author, others, until, fault, failing)


def _is_named(one: GateException, policy: GatePolicy) -> bool:
    """Whether the exception may apply: a platform that names one accepts no other."""
    wanted = {
        f"platform/{rule.id}": rule.when_unavailable.exception
        for rule in policy.spec.platforms
        if rule.when_unavailable.exception
    }
    return wanted.get(one.rule, one.id) == one.id


def _of_waiver(one: Waiver, context: RuleContext) -> Exemption:
    now = context.now
    fault = _approval_fault(one, now, context.terms) or _life_fault(one, context)
    if now >= one.expires:
        fault = f"it expired {counted((now - one.expires).days, 'day')} ago"
    elif now < one.at:
        fault = "it was given later"
    elif one.evidence not in ("", context.evidence_digest):
        fault = "it was given for other evidence"
    elif not fault and context.terms.bound and not one.failing:
        fault = "it does not say what it is for: ask for another one"
    until = f"{one.expires:%Y-%m-%d %H:%M} UTC"
    failing = one.failing if context.terms.bound else None
    return Exemption(
        id=one.id,
        rule=one.rule,
        reason=one.reason,
        author=one.author,
        approved_by=(one.approver,),
        until=until,
        fault=fault,
        failing=failing,
        why="is new since it was asked for",
    )


def _approval_fault(one: Waiver, now: datetime, terms: ExemptionTerms) -> str:
    """Return why a waiver lacks another person's approval; empty if it has one."""
    if terms.signed:
        if not one.approver:
            return "nobody has approved it"
        if one.approved_at is None or not (one.author_token and one.approver_token):
            return "its author and its approver were typed, and no token stands behind the names"
        if one.approved_at > now:
            return "it was approved later"
    if not one.approver.strip() or terms.is_same(one.author, one.approver):
        return "its author cannot approve it"
    return ""


def _life_fault(one: Waiver, context: RuleContext) -> str:
    if one.expires <= one.at:
        return "it ends before it begins"
    if context.terms.ages:
        return context.terms.age_fault(context.policy, one.at.date(), context.now.date())
    if one.expires - one.at > _LONGEST_WAIVER:
        return f"it is for more than {_LONGEST_WAIVER.days} days"
    return ""
