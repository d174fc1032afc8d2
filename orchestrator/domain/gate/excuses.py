"""Exceptions of the policy and waivers: what people decided about a rule, for a while."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from orchestrator.domain.gate.policy import GateException, GatePolicy
from orchestrator.domain.gate.quantities import counted
from orchestrator.domain.gate.rules.result import is_bad
from orchestrator.domain.gate.snapshot import Snapshot, Waiver
from orchestrator.domain.gate.verdict import RuleOutcome, RuleResult

LONGEST_WAIVER = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class Excuse:
    """An exception or a waiver for one rule."""

    id: str
    rule: str
    reason: str
    author: str
    approved_by: tuple[str, ...]
    until: str
    """A day or a moment, for a person."""
    fault: str = ""
    """Why it does not count; empty where it does."""

    @property
    def sentence(self) -> str:
        """For whoever reads the verdict."""
        approved = ", ".join(self.approved_by)
        return f"Waived by {self.id} until {self.until}: {self.reason} (approved by {approved})."


def excuses(
    policy: GatePolicy, snapshot: Snapshot, now: datetime, *, evidence_digest: str
) -> tuple[Excuse, ...]:
    """All of them, the policy's first, in the order of their ids."""
    written = sorted(policy.spec.exceptions, key=lambda one: one.id)
    gate = policy.metadata.name
    given = sorted((w for w in snapshot.waivers if w.gate == gate), key=lambda one: one.id)
    return (
        *(_of_exception(one, policy, now) for one in written),
        *(_of_waiver(one, now, evidence_digest) for one in given),
    )


def excuse(results: Iterable[RuleResult], known: Sequence[Excuse]) -> Iterator[RuleResult]:
    """The results, those waived that an excuse in force is for."""
    for result in results:
        found = next((one for one in known if one.rule == result.id and not one.fault), None)
        if found is None or not (is_bad(result) and result.waivable):
            yield result
        else:
            yield replace(
                result,
                outcome=RuleOutcome.WAIVED,
                sentence=f"{result.sentence} {found.sentence}",
                by=(*result.by, found.id),
            )


def waiver_fault(author: str, approver: str, at: datetime, expires: datetime) -> str:
    """Why nobody may give such a waiver; empty where one may."""
    if not approver.strip() or same_person(author, approver):
        return "its author cannot approve it"
    if expires <= at:
        return "it ends before it begins"
    if expires - at > LONGEST_WAIVER:
        return f"it is for more than {LONGEST_WAIVER.days} days"
    return ""


def same_person(one: str, other: str) -> bool:
    """Whether two names are the same person's."""
    return person(one) == person(other)


def person(name: str) -> str:
    """What tells one person from another: neither case nor spaces."""
    return name.strip().casefold()


def _of_exception(one: GateException, policy: GatePolicy, now: datetime) -> Excuse:
    others = tuple(
        name for name in one.approved_by if name.strip() and not same_person(name, one.author)
    )
    late = (now.date() - one.expires).days
    fault = "" if others else "nobody but its author approved it"
    if late > 0:
        fault = f"it expired {counted(late, 'day')} ago"
    elif not _is_named(one, policy):
        fault = "the platform's `when_unavailable` names another exception"
    until = one.expires.isoformat()
    return Excuse(one.id, one.rule, one.reason, one.author, others, until, fault)


def _is_named(one: GateException, policy: GatePolicy) -> bool:
    """A platform that names an exception takes no other."""
    wanted = {
        f"platform/{rule.id}": rule.when_unavailable.exception
        for rule in policy.spec.platforms
        if rule.when_unavailable.exception
    }
    return wanted.get(one.rule, one.id) == one.id


def _of_waiver(one: Waiver, now: datetime, evidence_digest: str) -> Excuse:
    fault = waiver_fault(one.author, one.approver, one.at, one.expires)
    if now >= one.expires:
        fault = f"it expired {counted((now - one.expires).days, 'day')} ago"
    elif now < one.at:
        fault = "it was given later"
    elif one.evidence not in ("", evidence_digest):
        fault = "it was given for other evidence"
    until = one.expires.isoformat()
    return Excuse(one.id, one.rule, one.reason, one.author, (one.approver,), until, fault)
