"""Gates: policies, evaluations and verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Body, Path, Query, Response, Security
from fastapi.openapi.models import Example
from fastapi.responses import StreamingResponse
from pydantic import AwareDatetime, BeforeValidator, Field, WithJsonSchema

from orchestrator.api.dependencies import (
    ContextDep,
    KeyHeader,
    NewestPageDep,
    PageDep,
    resolve_run,
)
from orchestrator.api.models import (
    NumberedPageResponse,
    PageResponse,
    RequestModel,
    document_source,
)
from orchestrator.api.security import CallerDep, bearer, secured
from orchestrator.application.channels import announce_verdict
from orchestrator.application.context import Context
from orchestrator.application.evaluate_gate import (
    Replay,
    dry_run,
    evaluate_gate,
    find_verdict,
    replay,
)
from orchestrator.application.gate_policies import check_policy, find_policy
from orchestrator.application.launch_run import KeyReusedError
from orchestrator.domain.caller_identity import Scope
from orchestrator.domain.copied_fields import extended
from orchestrator.domain.field_limits import Filled, Word
from orchestrator.domain.gate.verdict import (
    ReplayResponse,
    StoredPolicy,
    StoredVerdict,
    Verdict,
    VerdictEnvelope,
    VerdictLine,
    VerdictResponse,
)

POLICY_TEXT = """\
apiVersion: seatrial/v1
kind: ReleaseGate
metadata: {name: release, product: torchbridge, owner: release-team}
spec:
  platforms:
    - {id: gcp-l4}
"""
_POLICY_OBJECT = {
    "apiVersion": "seatrial/v1",
    "kind": "ReleaseGate",
    "metadata": {"name": "release", "product": "torchbridge", "owner": "release-team"},
    "spec": {"platforms": [{"id": "gcp-l4"}]},
}


Policy = Annotated[Any, *document_source("Policy")]
Runs = Annotated[list[Filled], Field(max_length=50)]


class PolicyRequest(RequestModel):
    """A policy for a gate."""

    policy: Policy
    """Text of a policy file, or the same document as an object."""
    name: str = Field(default="policy", min_length=1, max_length=200)
    """File name of the policy, for messages."""


def _is_written_out(value: object) -> object:
    """Return the value if it is text, because a number would be parsed as seconds since 1970."""
    if isinstance(value, str) and not value.strip().lstrip("+-").replace(".", "").isdecimal():
        return value
    raise ValueError("must be a time with its zone, as 2026-01-20T12:00:00Z")


Moment = Annotated[
    AwareDatetime,
    BeforeValidator(_is_written_out),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]


class EvaluateRequest(RequestModel):
    """Parameters of an evaluation."""

    runs: Runs = Field(default=[])
    """Run ids, prefixes of them, or ``latest``; empty: the product's newest finished run."""
    lineage: Word = ""
    """Lineage of the verdict; the gate's own by default."""
    policy_digest: Word = ""
    """Digest of the policy version to use, as in the answer of its PUT.

    The present one by default.
    """
    policy: Policy | None = None
    """A policy to evaluate with; it is stored as the gate's policy together with the verdict. A
    refused call stores neither.
    """
    name: str = Field(default="policy", min_length=1, max_length=200)
    """File name of the policy, for messages."""


class DryRunRequest(RequestModel):
    """Parameters of a dry run; nothing is stored."""

    policy: Policy | None = None
    """The policy to evaluate; null uses the gate's present policy."""
    name: str = Field(default="policy", min_length=1, max_length=200)
    """File name of the policy, for messages."""
    runs: Runs = Field(default=[])
    """Run ids, prefixes of them, or ``latest``; empty: the product's newest finished run."""
    now: Moment | None = None
    """Time of the evaluation; null uses the present time."""

    def at(self, now: datetime) -> datetime:
        """Return the time of the evaluation."""
        return self.now or now


_PUT: dict[str, Example] = {
    "text": {
        "summary": "A policy file's text",
        "value": {"policy": POLICY_TEXT, "name": "release.yaml"},
    },
    "object": {"summary": "The policy as an object", "value": {"policy": _POLICY_OBJECT}},
}
_EVALUATE: dict[str, Example] = {
    "newest": {"summary": "The newest finished run of the product", "value": {"runs": []}},
    "named": {"summary": "Two runs, one of them ingested", "value": {"runs": ["01jc", "01jd"]}},
}
_DRY_RUN: dict[str, Example] = {
    "change": {
        "summary": "What another policy would have said, back then",
        "value": {"policy": POLICY_TEXT, "runs": ["latest"], "now": "2026-01-20T12:00:00Z"},
    }
}
PutPolicy = Annotated[PolicyRequest, Body(openapi_examples=_PUT)]
Evaluate = Annotated[EvaluateRequest | None, Body(openapi_examples=_EVALUATE)]
DryRun = Annotated[DryRunRequest | None, Body(openapi_examples=_DRY_RUN)]


_ASKED = [Security(bearer)]
reading = APIRouter(tags=["gates"], route_class=secured(Scope.READ), dependencies=_ASKED)
writing = APIRouter(tags=["gates"], route_class=secured(Scope.GATE), dependencies=_ASKED)
GateName = Annotated[str, Path(description="As the policy names it", examples=["release"])]
VerdictId = Annotated[str, Path(description="As in V-0001", examples=["V-0001"])]
Limit = Annotated[int, Query(ge=1, le=200, description="Verdicts of a page")]
ANNOTATIONS = "application/vnd.in-toto+jsonl"


@reading.get("/gates")
def list_gates(context: ContextDep, page: PageDep) -> PageResponse[StoredPolicy]:
    """List the present policy of each gate, by name."""
    found = context.stores.gates.policies(page)
    return PageResponse(items=found, next=found.next)


@reading.get("/gates/{name}")
def get_gate(context: ContextDep, name: GateName) -> StoredPolicy:
    """Return the gate's present policy."""
    return find_policy(context, name)


@writing.put("/gates/{name}")
def put_gate(
    context: ContextDep, name: GateName, body: PutPolicy, caller: CallerDep
) -> StoredPolicy:
    """Store this as the gate's policy; idempotent, and older versions are kept."""
    policy = check_policy(context, body.policy, body.name, gate=name, by=caller.name)
    return context.stores.gates.put_policy(policy)


@reading.get("/gates/{name}/policies")
def list_gate_policies(
    context: ContextDep, name: GateName, page: NewestPageDep
) -> NumberedPageResponse[StoredPolicy]:
    """List the versions of the gate's policy, newest first."""
    find_policy(context, name)
    found = context.stores.gates.policy_history(name, page)
    return NumberedPageResponse(items=found, next=found.next)


@writing.post("/gates/{name}/evaluate", status_code=201)
def evaluate(
    context: ContextDep,
    name: GateName,
    key: KeyHeader,
    response: Response,
    caller: CallerDep,
    body: Evaluate = None,
) -> VerdictResponse:
    """Evaluate the gate, sign the verdict and store it. Idempotent by key."""
    asked = body or EvaluateRequest()
    policy = None
    if asked.policy is None:
        find_policy(context, name)
    else:
        policy = check_policy(context, asked.policy, asked.name, gate=name, by=caller.name)
    version = policy.digest if policy else asked.policy_digest
    runs = [resolve_run(context, run) for run in asked.runs]
    stored = evaluate_gate(
        context,
        name,
        runs=runs,
        lineage=asked.lineage,
        version=version,
        policy=policy,
        key=f"api:{key}",
    )
    # A known key returns the verdict that was stored under it, even if it was evaluated for other
    # runs; a
    # check before the evaluation would miss a concurrent request with the same key.
    _refuse_other(stored, name, runs, asked.lineage, version)
    announce_verdict(context, stored)
    response.headers["Location"] = f"/api/v1/verdicts/{stored.id}"
    return _answer(stored)


@reading.post("/gates/{name}/dry-run")
def dry_run_gate(context: ContextDep, name: GateName, body: DryRun = None) -> Verdict:
    """Evaluate a policy on runs, without storing or signing the verdict."""
    asked = body or DryRunRequest()
    policy = asked.policy if asked.policy is not None else find_policy(context, name).text
    runs = [resolve_run(context, run) for run in asked.runs]
    now = asked.at(context.clock.now())
    return dry_run(context, policy, runs, now, name=asked.name)


@reading.get("/gates/{name}/verdicts")
def list_verdicts(
    context: ContextDep,
    name: GateName,
    limit: Limit = 50,
    before: Annotated[str | None, Query(description="`next` of the page before")] = None,
    lineage: Annotated[str | None, Query(description="Only of this line")] = None,
) -> PageResponse[VerdictLine]:
    """List the gate's verdicts, newest first."""
    find_policy(context, name)
    gates = context.stores.gates
    found = gates.verdict_lines(name, lineage=lineage, limit=limit + 1, before=before)
    shown = found[:limit]
    return PageResponse(
        items=shown,
        next=shown[-1].id if len(found) > limit else None,
    )


@reading.get("/verdicts/{verdict_id}")
def get_verdict(context: ContextDep, verdict_id: VerdictId) -> VerdictResponse:
    """Return a verdict with every rule."""
    stored = find_verdict(context, verdict_id)
    return _answer(stored)


@reading.get("/verdicts/{verdict_id}/statement", response_class=StreamingResponse)
def get_statement(context: ContextDep, verdict_id: VerdictId) -> Response:
    """Return the signed statements: one DSSE envelope per line, the verdict's first."""
    stored = find_verdict(context, verdict_id)
    return _file(context, stored.envelope_digest, f"{stored.id}.intoto.jsonl", ANNOTATIONS)


@reading.get("/verdicts/{verdict_id}/evidence", response_class=StreamingResponse)
def get_frozen_evidence(context: ContextDep, verdict_id: VerdictId) -> Response:
    """Return the frozen evidence of a verdict, as canonical JSON."""
    stored = find_verdict(context, verdict_id)
    return _file(context, stored.snapshot_digest, f"{stored.id}.evidence.json", "application/json")


@reading.get("/verdicts/{verdict_id}/replay")
def replay_verdict(context: ContextDep, verdict_id: VerdictId) -> ReplayResponse:
    """Evaluate a verdict again with its own policy, evidence and time."""
    return to_replay_response(replay(context, verdict_id))


def _answer(stored: StoredVerdict) -> VerdictResponse:
    envelope = {one.name: getattr(stored, one.name) for one in fields(VerdictEnvelope)}
    return extended(VerdictResponse, stored.verdict, **envelope)


def _refuse_other(
    stored: StoredVerdict, gate: str, runs: Sequence[str], lineage: str, version: str
) -> None:
    """Raise KeyReusedError if the key belongs to another request."""
    same_runs = not runs or set(runs) == set(stored.runs)
    same_line = stored.gate == gate and stored.lineage == (lineage or gate)
    same_policy = version in ("", stored.verdict.policy_digest)
    if not (same_runs and same_line and same_policy):
        raise KeyReusedError(f"the key made {stored.id}, which is about something else")


def _file(context: Context, digest: str, name: str, media: str) -> Response:
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(context.blobs.open(digest), media_type=media, headers=headers)


def to_replay_response(replay: Replay) -> ReplayResponse:
    """Return the response of a replay."""
    return ReplayResponse(
        id=replay.stored.id,
        identical=replay.is_identical,
        document_digest=replay.stored.document_digest,
        replayed_digest=replay.digest,
        decision=replay.again.decision,
    )
