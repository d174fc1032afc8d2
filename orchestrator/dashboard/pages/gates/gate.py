"""The page of one gate: its policy versions, verdicts, waivers and approvals, and their forms."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Annotated

from fastapi import APIRouter, Form, Response

from orchestrator.application.channels import announce_verdict
from orchestrator.application.evaluate_gate import VerdictMissingError, evaluate_gate, find_verdict
from orchestrator.application.gate_policies import policy_of
from orchestrator.application.gate_status import GateStatus, VerdictLineage, gate_status
from orchestrator.application.gather_evidence import WrongProductError
from orchestrator.application.ports.signer import KeyUnusableError
from orchestrator.application.sign_off import (
    NewWaiver,
    WaiverApprovedError,
    WaiverMissingError,
    approve,
    approve_waiver,
    idle_remark,
    request_waiver,
    token_fault,
)
from orchestrator.dashboard import urls
from orchestrator.dashboard.pages.gates.dry_run import DiffLine, Listing, diff_of, lines_of
from orchestrator.dashboard.pages.gates.gate_list import wait_texts
from orchestrator.dashboard.pages.gates.verdict_tables import (
    changes,
    in_words,
    rule_table,
    severity,
)
from orchestrator.dashboard.responses import (
    Format,
    Page,
    PageMissingError,
    PageRequest,
    PageRequestDep,
    cursor_of,
)
from orchestrator.dashboard.session import Viewer, needs
from orchestrator.dashboard.table import (
    Act,
    Badge,
    CellList,
    Column,
    Moment,
    Row,
    Table,
    TableCell,
    Text,
)
from orchestrator.domain.caller_identity import Person, Scope, person_key
from orchestrator.domain.document_problems import InvalidDocumentError
from orchestrator.domain.gate.exception_terms import longest_exception
from orchestrator.domain.gate.exceptions import as_words
from orchestrator.domain.gate.policy import some
from orchestrator.domain.gate.rule_context import is_bad
from orchestrator.domain.gate.snapshot import Approval
from orchestrator.domain.gate.verdict import (
    RuleOutcome,
    RuleResult,
    StoredPolicy,
    StoredVerdict,
    VerdictLine,
    reasons_of,
)
from orchestrator.store.gates import StoredWaiver

APPROVALS_SHOWN = 20
_APPROVAL_COLUMNS = (
    Column("by", "Approved by"),
    Column("at", "When"),
    Column("evidence", "Evidence"),
    Column("remark", "Remark"),
)


def approval_table(
    request: PageRequest, approvals: Sequence[Approval], read: StoredVerdict | None
) -> Table:
    """Return approvals, newest first, each with the reason why it does not count, if any."""
    shown = approvals[::-1][:APPROVALS_SHOWN]
    names = request.context.stores.browser_sessions.display_names([one.by for one in shown])
    return Table(
        id="approvals",
        caption="Approvals, newest first",
        columns=_APPROVAL_COLUMNS,
        rows=[_approval_row(one, read, names) for one in shown],
        empty="There is no approval yet.",
        total=len(approvals),
        is_caption_hidden=True,
    )


def _approval_row(one: Approval, read: StoredVerdict | None, names: Mapping[str, str]) -> Row:
    if read is None or read.verdict.evidence_digest != one.evidence:
        evidence, remark = Text("of other evidence", note=one.evidence[:12]), ""
    else:
        evidence = Text(f"of {read.id}", urls.verdict_url(read.id), note=one.evidence[:12])
        remark = idle_remark(read, one)
    said = f"It counts for nothing: {remark}." if remark else ""
    by = Text(one.by, note=names.get(one.by, ""))
    return Row((by, Moment(one.at), evidence, Text(said)))


SHOWN = 50
_COLUMNS = (
    Column("version", "Version"),
    Column("since", "Since"),
    Column("by", "Uploaded by"),
    Column("look", "Show"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyFacts:
    """The shown version of a policy."""

    shown: StoredPolicy
    is_present: bool
    since: Moment
    listing: Listing
    versions: Table
    other: StoredPolicy | None
    """The version that the shown one is compared with; None if there is none."""
    diff: list[DiffLine] | None
    """The changed lines; None if nothing is compared or the texts are too long."""
    names: Sequence[tuple[str, str]]
    """(digest, label) of each policy that can be compared."""


def policy_facts(request: PageRequest, present: StoredPolicy) -> PolicyFacts:
    """Return the policy's facts that the URL selects. Raises PageMissingError."""
    history = request.context.stores.gates.policy_history(present.gate)
    shown = _version(history, request.query.get("version", "")) or present
    other = _version(history, request.query.get("against", ""))
    return PolicyFacts(
        shown=shown,
        is_present=shown.digest == present.digest,
        since=Moment(shown.since),
        listing=lines_of(shown.text),
        versions=_table(history, present),
        other=other,
        diff=diff_of(other.text, shown.text) if other else None,
        names=_names(history),
    )


def _version(history: Sequence[StoredPolicy], digest: str) -> StoredPolicy | None:
    if not digest:
        return None
    found = next((one for one in history if one.digest == digest), None)
    if found is None:
        raise PageMissingError(f"the gate never had the policy {digest!r}")
    return found


def _names(history: Sequence[StoredPolicy]) -> list[tuple[str, str]]:
    named = {one.digest: f"{one.since:%Y-%m-%d %H:%M} · {one.digest[:12]}" for one in history}
    return list(named.items())[:SHOWN]


def _table(history: Sequence[StoredPolicy], present: StoredPolicy) -> Table:
    rows = [
        _row(one, history[number + 1] if number + 1 < len(history) else None, number == 0)
        for number, one in enumerate(history[:SHOWN])
    ]
    return Table(
        id="versions",
        caption=f"Versions of the policy of {present.gate}, newest first",
        columns=_COLUMNS,
        rows=rows,
        total=len(history),
        is_caption_hidden=True,
    )


def _row(one: StoredPolicy, before: StoredPolicy | None, is_present: bool) -> Row:
    gate = urls.gate_url(one.gate)
    ways = [Text("its text", urls.with_query(gate, version=one.digest) + "#policy")]
    if before is not None:
        asked = urls.with_query(gate, version=one.digest, against=before.digest)
        ways.append(Text("what it changed", asked + "#policy"))
    return Row(
        (
            Text(one.digest[:12], is_code=True, note="present" if is_present else ""),
            Moment(one.since),
            Text(one.by or "unknown"),
            CellList(ways),
        )
    )


OFFERED = 100
_WAIVERS = (
    Column("waiver", "Waiver"),
    Column("state", "State"),
    Column("rule", "Rule"),
    Column("reason", "Why"),
    Column("author", "Requested by"),
    Column("approver", "Approved by"),
    Column("given", "Approved"),
    Column("until", "Until"),
)
_APPROVE = Column("approve", "Approve", is_title_hidden=True)
_STATES = ("unapproved", "active", "expired")


@dataclass(frozen=True, slots=True)
class Refused:
    """A refused form, with its problems."""

    about: str
    """``waiver``, ``waivers`` (an existing one), ``approval`` or ``verdict``."""
    problems: Sequence[tuple[str, str]]
    """(field, what is wrong with it)."""
    written: Mapping[str, str] = field(default_factory=dict)
    """The submitted values of the form."""
    status: int = 422

    def of(self, name: str) -> str:
        """Return the error of a field; empty without one."""
        return "; ".join(words for one, words in self.problems if one == name)


def waiver_table(request: PageRequest, gate: str) -> Table:
    """Return the table of waivers: pending approval first, then valid ones; newest first."""
    waivers = request.context.stores.gates.waivers(gate=gate)[::-1]
    by_state = {state: [w for w in waivers if _state(request, w) == state] for state in _STATES}
    acts = request.wanted is Format.HTML and may_approve(request)
    told = ", ".join(f"{len(found)} {state}" for state, found in by_state.items())
    shown = list(chain(*by_state.values()))[:SHOWN]
    people = {name for one in shown for name in (one.waiver.author, one.waiver.approver)}
    names = request.context.stores.browser_sessions.display_names(people)
    return Table(
        id="waivers",
        caption=f"Waivers: {told}",
        columns=(*_WAIVERS, _APPROVE) if acts else _WAIVERS,
        rows=[_waiver(request, w, names, acts=acts) for w in shown],
        empty="There is no waiver yet.",
        total=len(waivers),
        is_caption_hidden=True,
    )


def may_approve(request: PageRequest) -> bool:
    """Return whether an approval of the viewer can count, by scope and kind of sign-in."""
    viewer = request.viewer
    return viewer.may(Scope.GATE) and not token_fault(request.context, viewer.person)


def waivable(rules: Sequence[RuleResult]) -> list[str]:
    """Return blocking rules that a waiver can excuse."""
    found = [rule.id for rule in rules if rule.blocking and rule.waivable and is_bad(rule)]
    return found[:OFFERED]


def _state(request: PageRequest, one: StoredWaiver) -> str:
    if request.now >= one.waiver.expires:
        return "expired"
    return "unapproved" if one.waiver.approved_at is None else "active"


def _waiver(
    request: PageRequest, one: StoredWaiver, names: Mapping[str, str], *, acts: bool
) -> Row:
    waiver, state = one.waiver, _state(request, one)
    only = f"only for the evidence of {one.verdict or 'one verdict'}" if waiver.evidence else ""
    told = some(as_words(waiver.failing))
    cells: list[TableCell] = [
        Text(waiver.id, note=only),
        Badge(state),
        Text(waiver.rule, is_code=True, note=f"for {told}" if told else ""),
        Text(waiver.reason),
        Text(waiver.author, note=names.get(waiver.author, "")),
        Text(waiver.approver, note=names.get(waiver.approver, "")),
        Moment(waiver.approved_at),
        Moment(waiver.expires),
    ]
    if acts:
        is_own = person_key(waiver.author) == person_key(request.viewer.name)
        href = urls.approve_waiver_url(waiver.gate, waiver.id)
        act = Act("Approve", href, request.viewer.csrf(), waiver.id)
        cells.append(act if state == "unapproved" and not is_own else Text(""))
    return Row(cells, id=waiver.id)


router = APIRouter()
RULES_SHOWN = 30
PAGE_SIZE = 20
WAITS_SHOWN = 10
_VERDICTS = (
    Column("verdict", "Verdict"),
    Column("decision", "Decision"),
    Column("subject", "Subject"),
    Column("changed", "Since the one before"),
    Column("runs", "Runs"),
    Column("policy", "Policy"),
    Column("decided", "Decided"),
)
_CURSOR = re.compile(r"V-0*[1-9][0-9]{0,8}")
_WRITTEN = ("rule", "reason", "days", "verdict")


@router.get(urls.GATES + "/{gate}")
def show_gate(request: PageRequestDep, gate: str) -> Response:
    """Show a gate: its lineages, policy, waivers and approvals."""
    return gate_page(request, gate)


def gate_page(request: PageRequest, gate: str, refused: Refused | None = None) -> Response:
    """Return the page; after a refused action, with the error and the submitted form.

    Raises GateMissingError, PageMissingError.
    """
    status = gate_status(request.context, gate)
    line = _line(request, status)
    newest = _newest(request, line)
    rules = sorted(newest.verdict.rules, key=severity) if newest else []
    open_ = [rule for rule in rules if rule.outcome is not RuleOutcome.OK]
    kept = [rule for rule in rules if rule.outcome is RuleOutcome.OK]
    policy = policy_facts(request, status.stored)
    parts = {
        **_rule_tables(open_, kept),
        "verdicts": _history(request, status, line),
        "waivers": waiver_table(request, gate),
        "approvals": approval_table(request, request.context.stores.gates.approvals(gate), newest),
        "versions": policy.versions,
    }
    return request.answer(
        Page(
            template="gate.html.j2",
            title=gate,
            tables=tuple(parts.values()),
            facts={
                "gate": status.stored,
                "parts": parts,
                "policy": policy,
                **_decision(request, status, line, newest),
                "rules_total": len(rules),
                "rules_ok": len(kept),
                "rules_hidden": len(rules) - len(open_[:RULES_SHOWN]) - len(kept[:RULES_SHOWN]),
                "summary": _summary(newest),
                **_form(request, status, newest, rules, refused),
            },
            data={"gate": gate, "policy": _policy_document(status)},
            section=urls.GATES,
        ),
        status=refused.status if refused else 200,
    )


def _line(request: PageRequest, status: GateStatus) -> VerdictLineage | None:
    wanted = request.query.get("lineage", "")
    names = {one.head.newest.lineage: one for one in status.lines}
    return names.get(wanted) or next(iter(status.lines), None)


def _newest(request: PageRequest, line: VerdictLineage | None) -> StoredVerdict | None:
    return request.context.stores.gates.verdict(line.head.newest.id) if line else None


def _decision(
    request: PageRequest,
    status: GateStatus,
    line: VerdictLineage | None,
    newest: StoredVerdict | None,
) -> Mapping[str, object]:
    waits = wait_texts(status)
    return {
        "owner": status.policy.metadata.owner,
        "line": line,
        "lines": [one.head.newest.lineage for one in status.lines],
        "newest": newest,
        "since": Moment(line.head.since if line else None),
        "age": Moment(newest.verdict.at if newest else None, request.now),
        "waits": waits[:WAITS_SHOWN],
        "waits_more": max(len(waits) - WAITS_SHOWN, 0),
        "schedules": [(one.schedule.name, Moment(one.next_at)) for one in status.schedules[:10]],
        "badge": urls.badge_url(status.stored.gate),
        "command": f"seatrial gate check {status.stored.gate}",
        "key": request.context.new_id(),
    }


def _rule_tables(open_: Sequence[RuleResult], kept: Sequence[RuleResult]) -> dict[str, Table]:
    bad = rule_table(
        open_[:RULES_SHOWN],
        caption="Rules that are not ok, the worst first",
        empty="Every rule is ok.",
    )
    good = rule_table(kept[:RULES_SHOWN], caption="Rules that are ok", id="rules-ok")
    return {bad.id: bad, good.id: good}


def _summary(newest: StoredVerdict | None) -> str:
    return reasons_of(newest.verdict.decision, newest.verdict.summary) if newest else ""


def _form(
    request: PageRequest,
    status: GateStatus,
    newest: StoredVerdict | None,
    rules: Sequence[RuleResult],
    refused: Refused | None,
) -> Mapping[str, object]:
    """Return the template values of the page's forms: the submitted ones, or defaults."""
    issuer = request.context.sign_in.issuer
    written = refused.written if refused and refused.about == "waiver" else {}
    shown = newest.id if newest else ""
    given = {"rule": request.query.get("rule", ""), "days": "7", "verdict": shown, **written}
    return {
        "refused": refused,
        "may_approve": may_approve(request),
        "issuer": issuer.host if issuer else "",
        "refused_about": refused.about if refused else "",
        "written": {name: given.get(name, "") for name in _WRITTEN},
        "only_this": bool(written.get("only_this")),
        "waivable": waivable(rules),
        "is_blocked": any(rule.blocking and is_bad(rule) for rule in rules),
        "longest": longest_exception(policy_of(status.stored)).days,
        "is_waiving": bool(request.query.get("rule")) or (refused and refused.about == "waiver"),
    }


def _history(request: PageRequest, status: GateStatus, line: VerdictLineage | None) -> Table:
    before = cursor_of(request, _CURSOR)
    lineage = line.head.newest.lineage if line else None
    found = request.context.stores.gates.verdict_lines(
        status.stored.gate, lineage=lineage, limit=PAGE_SIZE + 1, before=before
    )
    shown = found[:PAGE_SIZE]
    rows = [
        _verdict(request, one, found[number + 1] if number + 1 < len(found) else None)
        for number, one in enumerate(shown)
    ]
    has_more = len(found) > PAGE_SIZE
    return Table(
        id="verdicts",
        caption="Verdicts, newest first",
        columns=_VERDICTS,
        rows=rows,
        empty="The gate has not decided anything yet.",
        command=f"seatrial gate check {status.stored.gate}",
        next=f"{request.here(before=shown[-1].id)}#verdicts" if has_more else "",
        is_caption_hidden=True,
    )


def _verdict(request: PageRequest, one: VerdictLine, before: VerdictLine | None) -> Row:
    href = urls.verdict_url(one.id)
    subject = one.subject
    version = f"{urls.with_query(urls.gate_url(one.gate), version=one.policy_digest)}#policy"
    is_new = before is not None and before.policy_digest != one.policy_digest
    last = max(one.runs, default="")
    more = f"and {len(one.runs) - 1} more" if len(one.runs) > 1 else ""
    return Row(
        (
            Text(one.id, href),
            Badge(one.decision, href),
            Text(subject.get("name", ""), note=subject.get("version", "")),
            Text(in_words(changes(before.rules, one.rules)) if before else "the first one"),
            Text(last, urls.run_url(last) if last else "", is_code=True, note=more),
            Text(one.policy_digest[:12], version, is_code=True, note="changed" if is_new else ""),
            Moment(one.at, request.now),
        )
    )


def _policy_document(status: GateStatus) -> Mapping[str, object]:
    stored = status.stored
    return {
        "digest": stored.digest,
        "product": stored.product,
        "since": stored.since,
        "by": stored.by,
        "text": stored.text,
    }


Decider = Annotated[Viewer, needs(Scope.GATE)]
Word = Annotated[str, Form(max_length=2_000)]
_GATE = urls.GATES + "/{gate}"


@router.post(_GATE + "/verdicts")
def decide(
    request: PageRequestDep, gate: str, viewer: Decider, key: Word = "", runs: Word = ""
) -> Response:
    """Evaluate the gate now, and sign and store the verdict; idempotent by the form's key."""
    wanted = find_verdict(request.context, runs).runs if runs else ()
    once = f"page:{viewer.name}:{gate}:{key or request.context.new_id()}"
    try:
        made = evaluate_gate(request.context, gate, runs=wanted, key=once)
    except (KeyUnusableError, WrongProductError) as error:
        return gate_page(request, gate, Refused("verdict", [("", str(error))]))
    announce_verdict(request.context, made)
    return request.go(urls.verdict_url(made.id))


@router.post(_GATE + "/waivers")
def add_waiver(
    request: PageRequestDep,
    gate: str,
    viewer: Decider,
    rule: Word = "",
    reason: Word = "",
    days: Word = "",
    verdict: Word = "",
    only_this: Word = "",
) -> Response:
    """Request a waiver of a rule; a second identical form finds the first waiver."""
    written = {"rule": rule, "reason": reason, "days": days}
    new = NewWaiver(
        gate=gate,
        rule=rule.strip(),
        reason=reason,
        days=int(days) if days.isascii() and days.isdigit() else 0,
        verdict=verdict,
        only_this=bool(only_this),
    )
    try:
        known = (
            _known_waiver(request, new, viewer.person)
            or request_waiver(request.context, new, author=viewer.person).waiver.id
        )
    except InvalidDocumentError as error:
        problems = [(str(one.path[0]) if one.path else "", one.message) for one in error.problems]
        kept = {**written, "verdict": verdict, "only_this": only_this}
        return gate_page(request, gate, Refused("waiver", problems, kept))
    except VerdictMissingError as error:
        return gate_page(request, gate, Refused("waiver", [("", str(error))], written))
    return request.go(f"{urls.gate_url(gate)}#{known}")


@router.post(_GATE + "/waivers/{waiver}/approve")
def approve_one_waiver(
    request: PageRequestDep, gate: str, viewer: Decider, waiver: str
) -> Response:
    """Approve another person's waiver; idempotent, but refused if somebody else approved it."""
    try:
        approve_waiver(request.context, waiver, by=viewer.person)
    except WaiverApprovedError as error:
        return gate_page(request, gate, Refused("waivers", [("", str(error))], status=409))
    except (InvalidDocumentError, WaiverMissingError) as error:
        return gate_page(request, gate, Refused("waivers", [("", str(error))]))
    return request.go(f"{urls.gate_url(gate)}#{waiver}")


@router.post(_GATE + "/approvals")
def add_approval(
    request: PageRequestDep, gate: str, viewer: Decider, verdict: Word = ""
) -> Response:
    """Approve the evidence of a verdict; each person counts once."""
    try:
        approve(request.context, gate, by=viewer.person, verdict=verdict)
    except (InvalidDocumentError, VerdictMissingError) as error:
        return gate_page(request, gate, Refused("approval", [("", str(error))]))
    return request.go(f"{urls.gate_url(gate)}#approvals")


def _known_waiver(request: PageRequest, new: NewWaiver, author: Person) -> str:
    """Return the id of an active waiver with the same content; empty without one."""
    gates = request.context.stores.gates
    newest = next((one.id for one in gates.verdicts(gate=new.gate, limit=1)), "")
    for one in gates.waivers(gate=new.gate):
        waiver = one.waiver
        said = (waiver.rule, waiver.author_token, waiver.reason, one.verdict, bool(waiver.evidence))
        reason, verdict = new.reason.strip(), new.verdict or newest
        same = said == (new.rule, author.token, reason, verdict, new.only_this)
        until = (waiver.expires - waiver.at).days
        if same and until == new.days and request.now < waiver.expires:
            return waiver.id
    return ""
