"""What people say to gates, and the keys that verdicts are signed with."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Security
from fastapi.responses import Response

from orchestrator.api.dependencies import ContextDep
from orchestrator.api.gate_requests import Approve, Review, Waive
from orchestrator.api.gate_responses import (
    ApprovalListResponse,
    ApprovalResponse,
    KeyListResponse,
    KeyResponse,
    ReviewListResponse,
    ReviewResponse,
    WaiverListResponse,
    WaiverResponse,
)
from orchestrator.api.gate_serializers import tell_approval, tell_key, tell_review, tell_waiver
from orchestrator.api.identity import CallerDep
from orchestrator.api.security import bearer, secured
from orchestrator.application.gate_policies import find_policy
from orchestrator.application.ports.stores import Scope
from orchestrator.application.review_payload import NewReview, review_payload
from orchestrator.application.sign_off import NewWaiver, approve, approve_waiver, waive
from orchestrator.application.signing_keys import keyring, retire_key, rotate_key

_ASKED = [Security(bearer)]
reading = APIRouter(tags=["gates"], route_class=secured(Scope.READ), dependencies=_ASKED)
writing = APIRouter(tags=["gates"], route_class=secured(Scope.GATE), dependencies=_ASKED)
keeping = APIRouter(tags=["gates"], route_class=secured(Scope.ADMIN), dependencies=_ASKED)
OfGate = Annotated[str | None, Query(description="Only of this gate")]


@reading.get("/waivers")
def list_waivers(context: ContextDep, gate: OfGate = None) -> WaiverListResponse:
    """Every waiver, those that are over too."""
    at = context.clock.now()
    found = context.stores.gates.waivers(gate=gate)
    return WaiverListResponse(items=[tell_waiver(one, at=at) for one in found])


@writing.post("/waivers", status_code=201)
def create_waiver(context: ContextDep, body: Waive, caller: CallerDep) -> WaiverResponse:
    """Ask to waive one rule of a gate for some days: it counts once somebody else approves it.

    It is shown in every verdict that it changes.
    """
    new = NewWaiver(
        gate=body.gate,
        rule=body.rule,
        reason=body.reason,
        author=caller,
        days=body.days,
        verdict=body.verdict,
        only_this=body.only_this,
    )
    return tell_waiver(waive(context, new), at=context.clock.now())


@writing.post("/waivers/{waiver_id}/approve")
def approve_one_waiver(context: ContextDep, waiver_id: str, caller: CallerDep) -> WaiverResponse:
    """Approve a waiver that somebody else asked for; doing so again changes nothing."""
    approved = approve_waiver(context, waiver_id, by=caller)
    return tell_waiver(approved, at=context.clock.now())


@reading.get("/payload-reviews")
def list_payload_reviews(
    context: ContextDep,
    payload: Annotated[
        str | None, Query(pattern="^[0-9a-f]{64}$", description="sha256: only of this payload")
    ] = None,
) -> ReviewListResponse:
    """Who said that they read a payload, and what they hold it for; those that are over too."""
    at = context.clock.now()
    found = context.stores.gates.reviews(None if payload is None else [payload])
    return ReviewListResponse(items=[tell_review(one, at=at) for one in found])


@writing.post("/payload-reviews", status_code=201)
def create_payload_review(context: ContextDep, body: Review, caller: CallerDep) -> ReviewResponse:
    """Say that you read a payload. Gates that ask for its level count it from now on."""
    new = NewReview(
        payload=body.payload,
        level=body.level,
        by=caller,
        days=body.days,
        note=body.note,
    )
    return tell_review(review_payload(context, new), at=context.clock.now())


@reading.get("/approvals")
def list_approvals(
    context: ContextDep, gate: Annotated[str, Query(description="Of this gate")]
) -> ApprovalListResponse:
    """Every approval of a gate's evidence."""
    find_policy(context, gate)
    found = context.stores.gates.approvals(gate)
    return ApprovalListResponse(items=[tell_approval(gate, one) for one in found])


@writing.post("/approvals", status_code=201)
def create_approval(context: ContextDep, body: Approve, caller: CallerDep) -> ApprovalResponse:
    """Say yes to the evidence of a verdict: the gate's next evaluation of it counts this."""
    return tell_approval(body.gate, approve(context, body.gate, by=caller, verdict=body.verdict))


@reading.get("/keys")
def list_keys(context: ContextDep) -> KeyListResponse:
    """The public keys that verdicts were and are signed with."""
    at = context.clock.now()
    found = context.stores.gates.signing_keys()
    return KeyListResponse(items=[tell_key(key, at=at) for key in found])


@reading.get("/keyring", response_class=Response)
def get_keyring(context: ContextDep) -> Response:
    """The same as the file that `seatrial gate verify --key` takes."""
    return Response(keyring(context), media_type="application/json")


@keeping.post("/keys/rotate", status_code=201)
def rotate_keys(context: ContextDep) -> KeyResponse:
    """Sign with a new key from now on; the one before is retired, and still proves its verdicts."""
    return tell_key(rotate_key(context), at=context.clock.now())


@keeping.post("/keys/{key_id}/retire")
def retire_signing_key(context: ContextDep, key_id: str) -> KeyResponse:
    """End a key now; doing so again changes nothing."""
    return tell_key(retire_key(context, key_id), at=context.clock.now())
