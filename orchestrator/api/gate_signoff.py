"""Sign-offs of gates: waivers, reviews, approvals, and signing keys."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Body, Query, Security
from fastapi.openapi.models import Example
from fastapi.responses import Response

from orchestrator.api.dependencies import ContextDep, NumberedPageDep
from orchestrator.api.models import ListResponse, NumberedPageResponse, RequestModel
from orchestrator.api.security import CallerDep, bearer, secured
from orchestrator.application.context import Context
from orchestrator.application.gate_policies import find_policy
from orchestrator.application.payloads import NewReview, review_payload
from orchestrator.application.sign_off import (
    NewWaiver,
    approval_page,
    approve,
    approve_waiver,
    request_waiver,
)
from orchestrator.application.signing_keys import keyring, retire_key, rotate_key
from orchestrator.domain.caller_identity import Scope
from orchestrator.domain.copied_fields import extended
from orchestrator.domain.field_limits import Filled, Word
from orchestrator.domain.gate.payload_review import PayloadReviewResponse, review_answer
from orchestrator.domain.gate.snapshot import ApprovalResponse, WaiverResponse
from orchestrator.domain.gate.verdict import KeyResponse, key_answer
from orchestrator.store.gates import StoredWaiver


class ApprovalRequest(RequestModel):
    """An approval of a verdict's evidence. The caller is the approver."""

    gate: Filled
    verdict: Word = ""
    """Id of the verdict, ``V-0001``; the gate's newest verdict by default."""


_WAIVE: dict[str, Example] = {
    "week": {
        "summary": "For a week",
        "value": {
            "gate": "release",
            "rule": "platform/aws-a10g",
            "reason": "The region is out of machines; its last run was green.",
            "days": 7,
        },
    }
}
_REVIEW: dict[str, Example] = {
    "quarter": {
        "summary": "For a quarter",
        "value": {
            "payload": "0f1e2d3c" * 8,
            "level": "reviewed",
            "days": 90,
            "note": "conftest.py and the plugins, and what changed since 0.4.39",
        },
    }
}
_APPROVE: dict[str, Example] = {
    "newest": {"summary": "The newest verdict", "value": {"gate": "release"}}
}
Waive = Annotated[NewWaiver, Body(openapi_examples=_WAIVE)]
Review = Annotated[NewReview, Body(openapi_examples=_REVIEW)]
Approve = Annotated[ApprovalRequest, Body(openapi_examples=_APPROVE)]


_ASKED = [Security(bearer)]
reading = APIRouter(tags=["gates"], route_class=secured(Scope.READ), dependencies=_ASKED)
writing = APIRouter(tags=["gates"], route_class=secured(Scope.GATE), dependencies=_ASKED)
keeping = APIRouter(tags=["gates"], route_class=secured(Scope.ADMIN), dependencies=_ASKED)
OfGate = Annotated[str | None, Query(description="Only of this gate")]


@reading.get("/waivers")
def list_waivers(
    context: ContextDep, page: NumberedPageDep, gate: OfGate = None
) -> NumberedPageResponse[WaiverResponse]:
    """List the waivers by id, expired ones included."""
    at = context.clock.now()
    found = context.stores.gates.waivers(gate=gate, page=page)
    items = [_waiver(context, one, at=at) for one in found]
    return NumberedPageResponse(items=items, next=found.next)


@writing.post("/waivers", status_code=201)
def create_waiver(context: ContextDep, body: Waive, caller: CallerDep) -> WaiverResponse:
    """Request a waiver of one rule; the waiver counts once another person approves it.

    Every verdict that the waiver changes shows it.
    """
    asked = request_waiver(context, body, author=caller)
    return _waiver(context, asked, at=context.clock.now())


@writing.post("/waivers/{waiver_id}/approve")
def approve_one_waiver(context: ContextDep, waiver_id: str, caller: CallerDep) -> WaiverResponse:
    """Approve another person's waiver; idempotent. 409 if a third person has approved it."""
    approved = approve_waiver(context, waiver_id, by=caller)
    return _waiver(context, approved, at=context.clock.now())


@reading.get("/payload-reviews")
def list_payload_reviews(
    context: ContextDep,
    page: NumberedPageDep,
    payload: Annotated[
        str | None, Query(pattern="^[0-9a-f]{64}$", description="sha256: only of this payload")
    ] = None,
) -> NumberedPageResponse[PayloadReviewResponse]:
    """List the reviews of payloads by id, expired ones included."""
    at = context.clock.now()
    found = context.stores.gates.reviews(None if payload is None else [payload], page)
    every = context.stores.gates.reviews({one.payload for one in found})
    items = [review_answer(one, every, at) for one in found]
    return NumberedPageResponse(items=items, next=found.next)


@writing.post("/payload-reviews", status_code=201)
def create_payload_review(
    context: ContextDep, body: Review, caller: CallerDep
) -> PayloadReviewResponse:
    """Add your review of a payload; gates that require its level count it from now on."""
    made = review_payload(context, body, by=caller)
    return review_answer(made, [made], context.clock.now())


@reading.get("/approvals")
def list_approvals(
    context: ContextDep,
    page: NumberedPageDep,
    gate: Annotated[str, Query(description="Of this gate")],
) -> NumberedPageResponse[ApprovalResponse]:
    """List the approvals of a gate's evidence, oldest first."""
    find_policy(context, gate)
    found = context.stores.gates.approvals(gate, page=page)
    items = [extended(ApprovalResponse, one, gate=gate) for one in found]
    return NumberedPageResponse(items=items, next=found.next)


@writing.post("/approvals", status_code=201)
def create_approval(context: ContextDep, body: Approve, caller: CallerDep) -> ApprovalResponse:
    """Approve the evidence of a verdict; the gate's next evaluation counts it."""
    return approve(context, body.gate, by=caller, verdict=body.verdict)


@reading.get("/keys")
def list_keys(context: ContextDep) -> ListResponse[KeyResponse]:
    """List the public signing keys."""
    at = context.clock.now()
    found = context.stores.gates.signing_keys()
    return ListResponse(items=[key_answer(key, at) for key in found])


@reading.get("/keyring", response_class=Response)
def get_keyring(context: ContextDep) -> Response:
    """Return the public keys as the file for `seatrial gate verify --key`."""
    return Response(keyring(context), media_type="application/json")


@keeping.post("/keys/rotate", status_code=201)
def rotate_keys(context: ContextDep) -> KeyResponse:
    """Create a signing key, and retire the previous key, which still verifies its verdicts."""
    return key_answer(rotate_key(context), context.clock.now())


@keeping.post("/keys/{key_id}/retire")
def retire_signing_key(context: ContextDep, key_id: str) -> KeyResponse:
    """Retire a signing key now; idempotent."""
    return key_answer(retire_key(context, key_id), context.clock.now())


def _waiver(context: Context, stored: StoredWaiver, *, at: datetime) -> WaiverResponse:
    waiver = stored.waiver
    return extended(
        WaiverResponse,
        waiver,
        verdict=stored.verdict,
        evidence_digest=stored.evidence_digest,
        is_expired=at >= waiver.expires,
        approval_page=approval_page(context, waiver.gate),
    )
