"""What a person may do to a gate: let it decide, waive one of its rules, approve its evidence."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, Response

from orchestrator.application.evaluate_gate import evaluate_gate
from orchestrator.application.gather_evidence import WrongProductError
from orchestrator.application.notify_verdict import announce_verdict
from orchestrator.application.ports.signer import KeyUnusableError
from orchestrator.application.replay_verdict import VerdictMissingError, find_verdict
from orchestrator.application.sign_off import (
    NewWaiver,
    WaiverMissingError,
    approve,
    approve_waiver,
    waive,
)
from orchestrator.dashboard import urls
from orchestrator.dashboard.pages.gates.gate import gate_page
from orchestrator.dashboard.pages.gates.signoffs import Refused
from orchestrator.dashboard.responses import Asked, AskedDep
from orchestrator.dashboard.session import Viewer, needs
from orchestrator.domain.person import Scope
from orchestrator.domain.problems import InvalidDocumentError

router = APIRouter()
Decider = Annotated[Viewer, needs(Scope.GATE)]
Word = Annotated[str, Form(max_length=2_000)]
_GATE = urls.GATES + "/{gate}"


@router.post(_GATE + "/verdicts")
def decide(
    asked: AskedDep, gate: str, viewer: Decider, key: Word = "", runs: Word = ""
) -> Response:
    """Decide now, sign and keep it; a form that is sent twice decides once."""
    wanted = find_verdict(asked.context, runs).runs if runs else ()
    once = f"page:{viewer.name}:{gate}:{key or asked.context.new_id()}"
    try:
        made = evaluate_gate(asked.context, gate, runs=wanted, key=once)
    except (KeyUnusableError, WrongProductError) as error:
        return gate_page(asked, gate, Refused("verdict", [("", str(error))]))
    announce_verdict(asked.context, made)
    return asked.go(urls.verdict_url(made.id))


@router.post(_GATE + "/waivers")
def add_waiver(
    asked: AskedDep,
    gate: str,
    viewer: Decider,
    rule: Word = "",
    reason: Word = "",
    days: Word = "",
    verdict: Word = "",
    only_this: Word = "",
) -> Response:
    """Ask to waive a rule; a form that is sent twice asks once."""
    written = {"rule": rule, "reason": reason, "days": days}
    new = NewWaiver(
        gate=gate,
        rule=rule.strip(),
        reason=reason,
        author=viewer.person,
        days=int(days) if days.isascii() and days.isdigit() else 0,
        verdict=verdict,
        only_this=bool(only_this),
    )
    try:
        known = _standing(asked, new) or waive(asked.context, new).waiver.id
    except InvalidDocumentError as error:
        problems = [(str(one.path[0]) if one.path else "", one.message) for one in error.problems]
        kept = {**written, "verdict": verdict, "only_this": only_this}
        return gate_page(asked, gate, Refused("waiver", problems, kept))
    except VerdictMissingError as error:
        return gate_page(asked, gate, Refused("waiver", [("", str(error))], written))
    return asked.go(f"{urls.gate_url(gate)}#{known}")


@router.post(_GATE + "/waivers/{waiver}/approve")
def approve_one_waiver(asked: AskedDep, gate: str, viewer: Decider, waiver: str) -> Response:
    """Approve what somebody else asked for; again changes nothing."""
    try:
        approve_waiver(asked.context, waiver, by=viewer.person)
    except (InvalidDocumentError, WaiverMissingError) as error:
        return gate_page(asked, gate, Refused("waivers", [("", str(error))]))
    return asked.go(f"{urls.gate_url(gate)}#{waiver}")


@router.post(_GATE + "/approvals")
def add_approval(asked: AskedDep, gate: str, viewer: Decider, verdict: Word = "") -> Response:
    """Say yes to the evidence of a verdict; once a person."""
    try:
        approve(asked.context, gate, by=viewer.person, verdict=verdict)
    except VerdictMissingError as error:
        return gate_page(asked, gate, Refused("approval", [("", str(error))]))
    return asked.go(f"{urls.gate_url(gate)}#approvals")


def _standing(asked: Asked, new: NewWaiver) -> str:
    """The waiver in time that says the very same; the form was sent twice."""
    for one in asked.context.stores.gates.waivers(gate=new.gate):
        waiver = one.waiver
        said = (waiver.rule, waiver.author_token, waiver.reason)
        same = said == (new.rule, new.author.token, new.reason.strip())
        until = (waiver.expires - waiver.at).days
        if same and until == new.days and asked.now < waiver.expires and not waiver.evidence:
            return "" if new.only_this else waiver.id
    return ""
