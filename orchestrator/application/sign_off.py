"""Sign-offs at a gate: waivers of rules and approvals of evidence."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Annotated
from urllib.parse import quote

from orchestrator.application.context import Context
from orchestrator.application.evaluate_gate import VerdictMissingError, find_verdict
from orchestrator.application.gate_policies import find_policy, policy_of
from orchestrator.domain.caller_identity import SOCKET, Person, person_key
from orchestrator.domain.document_problems import InvalidDocumentError, Problem, nearest
from orchestrator.domain.field_limits import STRICT, Filled, ValueLimits, Word
from orchestrator.domain.gate.exception_terms import longest_exception
from orchestrator.domain.gate.rule_context import rule_fault
from orchestrator.domain.gate.rules.approvals import ALONE
from orchestrator.domain.gate.snapshot import Approval, ApprovalResponse, Waiver
from orchestrator.domain.gate.verdict import RuleResult, StoredPolicy, StoredVerdict
from orchestrator.domain.units import utc
from orchestrator.store.audit_recorder import refuse
from orchestrator.store.gates import StoredWaiver


class WaiverMissingError(LookupError):
    """No waiver of this id is stored."""


class WaiverApprovedError(Exception):
    """Raised if another person has approved the waiver already; the text says who and when."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewWaiver:
    """A waiver for one rule of a gate, for some days. The caller is its author."""

    __pydantic_config__ = STRICT

    gate: Filled
    rule: Filled
    """Rule id, as in the verdict: ``platform/aws-a10g``."""
    reason: Annotated[str, ValueLimits(min_length=1, max_length=2000)]
    days: Annotated[int, ValueLimits(ge=1, le=36_500)]
    """Days until the waiver expires: at most the policy's `exception_max_age`."""
    verdict: Word = ""
    """Id of the verdict that the author read, ``V-0001``; the gate's newest by default."""
    only_this: bool = False
    """Whether the waiver counts only for the evidence of `verdict`."""


def request_waiver(context: Context, new: NewWaiver, *, author: Person) -> StoredWaiver:
    """Request a waiver; it counts once another person approves it. Not idempotent.

    The waiver excuses only the failures that the rule had in the verdict that the author read.

    Raises GateMissingError, VerdictMissingError, InvalidDocumentError, and nothing is stored.
    """
    policy = find_policy(context, new.gate)
    read = _read(context, new.gate, new.verdict)
    problems = list(_problems(new, policy, read))
    if problems or read is None:
        raise InvalidDocumentError("the waiver", problems)
    at = context.clock.now()
    seen = read.verdict.evidence_digest
    failing = next(one.failing for one in read.verdict.rules if one.id == new.rule)
    waiver = Waiver(
        id="",
        gate=new.gate,
        rule=new.rule,
        reason=new.reason.strip(),
        author=author.name,
        author_token=author.token,
        approver="",
        at=at,
        expires=at + timedelta(days=new.days),
        evidence=seen if new.only_this else "",
        failing=failing,
    )
    given = StoredWaiver(waiver=waiver, verdict=read.id, evidence_digest=seen)
    return context.stores.gates.add_waiver(given)


def approve_waiver(context: Context, waiver_id: str, *, by: Person) -> StoredWaiver:
    """Approve a waiver; idempotent for the person who approved it first.

    Raises WaiverMissingError, WaiverApprovedError, InvalidDocumentError.
    """
    known = next((w for w in context.stores.gates.waivers() if w.waiver.id == waiver_id), None)
    if known is None:
        raise _no_waiver(waiver_id)
    at, waiver = context.clock.now(), known.waiver
    if waiver.approved_at is not None:
        return _approved_by(known, by)
    fault = token_fault(context, by) or _own_fault(waiver, by)
    if fault:
        refuse(fault)
    if at >= waiver.expires:
        fault = f"{waiver.id} expired at {waiver.expires:%Y-%m-%d %H:%M} UTC: ask for another one"
    if fault:
        raise InvalidDocumentError("the approval", [Problem((), fault)])
    approved = context.stores.gates.approve_waiver(waiver_id, by=by, at=at)
    if approved is None:
        raise _no_waiver(waiver_id)
    return _approved_by(approved, by)


def _no_waiver(waiver_id: str) -> WaiverMissingError:
    return WaiverMissingError(
        f"there is no waiver {waiver_id!r}; `seatrial gate waivers` lists them"
    )


def _approved_by(approved: StoredWaiver, by: Person) -> StoredWaiver:
    """Return a waiver that this person approved. Raises WaiverApprovedError."""
    waiver = approved.waiver
    if person_key(waiver.approver) == person_key(by.name):
        return approved
    when = f" at {utc(waiver.approved_at)}" if waiver.approved_at else ""
    fault = f"{waiver.id} is approved already, by {waiver.approver}{when}; nothing was changed"
    refuse(fault)
    raise WaiverApprovedError(fault)


def approval_page(context: Context, gate: str) -> str:
    """Return the URL of the gate's approval page; empty if tokens may approve as well."""
    if context.sign_in.issuer is None:
        return ""
    return f"{context.sign_in.public_url}/gates/{quote(gate, safe='')}"


def token_fault(context: Context, by: Person) -> str:
    """Return why this token cannot approve; empty if the person can.

    Where people sign in at an issuer, tokens cannot approve: an administrator chooses a token's
    name, so the requester could approve their own request with a token of another name.
    """
    issuer = context.sign_in.issuer
    if issuer is None or by.is_signed_in:
        return ""
    return (
        f"{by.name!r} did not sign in at the issuer {issuer.issuer}, as people do here: only they"
        " approve, so that nobody approves with a token what they asked for themselves. Sign in at"
        f" {context.sign_in.public_url} and approve it on the gate's page"
    )


def _own_fault(waiver: Waiver, by: Person) -> str:
    """Return why this person cannot approve the waiver; empty if they can."""
    if person_key(waiver.author) != person_key(by.name):
        return ""
    return f"{waiver.author!r} asked for {waiver.id} and cannot approve it: {_others(by.token)}"


def _others(token: str) -> str:
    """Return, in words, who may approve a request of this token's owner."""
    if token != SOCKET:
        return "somebody else has to"
    return (
        "everybody who uses this home by its socket is the operating-system user that owns it."
        " For a second person run `seatrial serve`, make them a token with"
        " `seatrial token create NAME --scope gate`, and let them approve it with that"
    )


def approve(context: Context, gate: str, *, by: Person, verdict: str = "") -> ApprovalResponse:
    """Approve the evidence of a verdict, by default the gate's newest; once per person.

    The response's `remark` says why the approval does not count, if it does not.

    Raises GateMissingError, VerdictMissingError, InvalidDocumentError.
    """
    find_policy(context, gate)
    if fault := token_fault(context, by):
        refuse(fault)
        raise InvalidDocumentError("the approval", [Problem((), fault)])
    read = _read(context, gate, verdict)
    if read is None:
        raise VerdictMissingError(
            f"the gate {gate!r} has no verdict to approve yet: `seatrial gate check {gate}` makes"
            " one"
        )
    seen, at = read.verdict.evidence_digest, context.clock.now()
    yes = Approval(by=by.name, token=by.token, at=at, evidence=seen)
    given = context.stores.gates.add_approval(gate, yes)
    told = {one.name: getattr(given, one.name) for one in fields(given)}
    return ApprovalResponse(**told, gate=gate, remark=idle_remark(read, given))


def idle_remark(read: StoredVerdict, yes: Approval) -> str:
    """Return why the approval of the verdict's evidence does not count, and what to do.

    Empty if it counts.
    """
    asked = next((one for one in read.verdict.rules if one.kind == "approval"), None)
    if asked is None:
        return f"{read.id} asks for no approval"
    authors = asked.inputs.get("authors")
    if isinstance(authors, list | tuple) and person_key(yes.by) in authors:
        return (
            f"{yes.by} asked for something that {read.id} excuses, and an author's own approval"
            f" does not count: {_others(yes.token)}. Or {ALONE}"
        )
    return ""


def _problems(
    new: NewWaiver, policy: StoredPolicy, read: StoredVerdict | None
) -> Iterator[Problem]:
    if not new.reason.strip():
        yield Problem(("reason",), "must not be empty")
    longest = longest_exception(policy_of(policy)).days
    if not 1 <= new.days <= longest:
        message = f"must be from 1 to {longest}, the policy's `exception_max_age`"
        yield Problem(("days",), message)
    fault = _rule_fault(new.rule, policy, read)
    if fault:
        yield Problem(("rule",), fault)


def _rule_fault(rule: str, policy: StoredPolicy, read: StoredVerdict | None) -> str:
    """Return why a rule cannot be waived, and what to do instead; empty if it can."""
    fault = rule_fault(rule, policy_of(policy))
    if fault:
        return fault
    if read is None:
        return (
            "the gate has no verdict yet, which says what a waiver would excuse:"
            f" `seatrial gate check {policy.gate}` makes one"
        )
    found = {one.id: one for one in read.verdict.rules}
    if rule not in found:
        return f"{read.id} has no rule {rule!r}{nearest(rule, list(found))}"
    return _nothing_fault(found[rule], read)


def _nothing_fault(rule_result: RuleResult, read: StoredVerdict) -> str:
    """Return why nothing can be waived: the rule has no evidence, or nothing fails."""
    if not rule_result.waivable:
        return (
            f"the rule {rule_result.id!r} of {read.id} cannot be waived: {rule_result.sentence} Run"
            f" what is asked for and check again (`seatrial run`, `seatrial gate check"
            f" {read.gate}`), or take it out of the policy"
        )
    if not rule_result.failing:
        return (
            f"in {read.id} the rule {rule_result.id!r} is {rule_result.outcome.value}: there is"
            f" nothing to waive. `seatrial gate check {read.gate}` makes a new verdict"
        )
    return ""


def _read(context: Context, gate: str, verdict: str) -> StoredVerdict | None:
    """Return the verdict that the author read: the named one, else the gate's newest."""
    if not verdict:
        return next(iter(context.stores.gates.verdicts(gate=gate, limit=1)), None)
    found = find_verdict(context, verdict)
    if found.gate != gate:
        raise VerdictMissingError(
            f"{found.id} is of the gate {found.gate!r}, not of {gate!r}:"
            f" `seatrial gate history {gate}` lists its own"
        )
    return found
