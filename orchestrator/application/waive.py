"""What people say to a gate: waivers for rules, and approvals of evidence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

from orchestrator.application.context import Context
from orchestrator.application.gate_policies import find_policy, policy_of
from orchestrator.application.ports.gates import StoredPolicy, StoredVerdict, StoredWaiver
from orchestrator.application.replay_verdict import VerdictMissingError, find_verdict
from orchestrator.domain.gate.evaluate import evaluate
from orchestrator.domain.gate.excuses import LONGEST_WAIVER, same_person
from orchestrator.domain.gate.rule_names import rule_fault
from orchestrator.domain.gate.snapshot import Approval, Snapshot, Waiver
from orchestrator.domain.problems import InvalidDocumentError, Problem, nearest

LONGEST_DAYS = LONGEST_WAIVER.days


@dataclass(frozen=True, slots=True, kw_only=True)
class NewWaiver:
    """A waiver to add."""

    gate: str
    rule: str
    reason: str
    author: str
    approver: str
    days: int
    only_this: bool = False
    """It is for the evidence of the gate's newest verdict only."""


def waive(context: Context, new: NewWaiver) -> StoredWaiver:
    """Store it, from now on. Not idempotent.

    Raises GateMissingError; InvalidDocumentError, and nothing is stored.
    """
    policy = find_policy(context, new.gate)
    last = _last(context, new.gate)
    problems = list(_problems(context, new, policy, last))
    if problems:
        raise InvalidDocumentError("the waiver", problems)
    at = context.clock.now()
    seen = last.verdict.evidence_digest if last else ""
    waiver = Waiver(
        id="",
        gate=new.gate,
        rule=new.rule,
        reason=new.reason.strip(),
        author=new.author.strip(),
        approver=new.approver.strip(),
        at=at,
        expires=at + timedelta(days=new.days),
        evidence=seen if new.only_this else "",
    )
    given = StoredWaiver(waiver=waiver, verdict=last.id if last else "", seen=seen)
    return context.stores.gates.add_waiver(given)


def approve(context: Context, gate: str, *, by: str, verdict: str = "") -> Approval:
    """Say yes to the evidence of a verdict, the gate's newest one by default; once a person.

    Raises GateMissingError, VerdictMissingError, InvalidDocumentError.
    """
    find_policy(context, gate)
    meant = find_verdict(context, verdict) if verdict else _last(context, gate)
    if meant is None or meant.gate != gate:
        raise VerdictMissingError(
            f"the gate {gate!r} has no such verdict to approve: `seatrial gate check {gate}` makes"
            " one, `seatrial gate history` lists them"
        )
    if not by.strip():
        raise InvalidDocumentError("the approval", [Problem(("by",), "must say who approves")])
    yes = Approval(by=by.strip(), at=context.clock.now(), evidence=meant.verdict.evidence_digest)
    return context.stores.gates.add_approval(gate, yes)


def _problems(
    context: Context, new: NewWaiver, policy: StoredPolicy, last: StoredVerdict | None
) -> Iterator[Problem]:
    for name in ("reason", "author", "approver"):
        if not getattr(new, name).strip():
            yield Problem((name,), "must not be empty")
    if same_person(new.author, new.approver):
        yield Problem(("approver",), "must be somebody else than the author")
    if not 1 <= new.days <= LONGEST_DAYS:
        yield Problem(("days",), f"must be from 1 to {LONGEST_DAYS}")
    if new.only_this and last is None:
        yield Problem(("only_this",), "the gate has no verdict yet, so there is no evidence")
    fault = _rule_fault(context, new.rule, policy, last)
    if fault:
        yield Problem(("rule",), fault)


def _rule_fault(
    context: Context, rule: str, policy: StoredPolicy, last: StoredVerdict | None
) -> str:
    """Why nobody can waive it, and what to do instead; empty where it can be waived."""
    rules = _rules(context, policy, last)
    fault = rule_fault(rule, policy_of(policy))
    if rule in rules and not fault:
        return _stuck_fault(rule, last)
    known = nearest(rule, rules)
    return fault or f"there is no rule {rule!r} in the policy or the newest verdict{known}"


def _stuck_fault(rule: str, last: StoredVerdict | None) -> str:
    """Where nobody looked there is nothing to waive; what a run finds may be."""
    told = next((one for one in last.verdict.rules if one.id == rule), None) if last else None
    if last is None or told is None or told.waivable:
        return ""
    return (
        f"nothing waives {rule!r} as {last.id} has it: {told.sentence} Run what is asked for and"
        f" check again (`seatrial run`, `seatrial gate check {last.gate}`), or take it out of the"
        " policy"
    )


def _rules(context: Context, policy: StoredPolicy, last: StoredVerdict | None) -> tuple[str, ...]:
    """Ids of those that the policy has of itself, and of those that evidence gave rise to."""
    own = evaluate(
        policy_of(policy),
        Snapshot(product=policy.product, subject={}, runs=(), cells=()),
        context.clock.now(),
        statistics=context.gate.statistics,
        policy_digest=policy.digest,
        evidence_digest="",
        tool="",
    )
    rules = (*own.rules, *(last.verdict.rules if last else ()))
    return tuple(dict.fromkeys(rule.id for rule in rules))


def _last(context: Context, gate: str) -> StoredVerdict | None:
    return next(iter(context.stores.gates.verdicts(gate=gate, limit=1)), None)
