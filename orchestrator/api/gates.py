"""Gates: policies, evaluations and verdicts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, Path, Query, Response, Security
from fastapi.responses import StreamingResponse

from orchestrator.api.dependencies import ContextDep, KeyHeader, resolve_run
from orchestrator.api.gate_requests import (
    DryRun,
    DryRunRequest,
    Evaluate,
    EvaluateRequest,
    PutPolicy,
)
from orchestrator.api.gate_responses import (
    DecidedResponse,
    PolicyListResponse,
    PolicyResponse,
    ReplayResponse,
    VerdictListResponse,
    VerdictResponse,
)
from orchestrator.api.gate_serializers import (
    tell_decided,
    tell_policy,
    tell_replay,
    tell_verdict,
    tell_verdict_briefly,
)
from orchestrator.api.identity import CallerDep
from orchestrator.api.security import bearer, secured
from orchestrator.application.context import Context
from orchestrator.application.evaluate_gate import dry_run, evaluate_gate
from orchestrator.application.gate_policies import find_policy, put_policy
from orchestrator.application.launch_run import KeyReusedError
from orchestrator.application.notify_verdict import announce_verdict
from orchestrator.application.ports.gates import StoredVerdict
from orchestrator.application.ports.stores import Scope
from orchestrator.application.replay_verdict import find_verdict, replay

_ASKED = [Security(bearer)]
reading = APIRouter(tags=["gates"], route_class=secured(Scope.READ), dependencies=_ASKED)
writing = APIRouter(tags=["gates"], route_class=secured(Scope.GATE), dependencies=_ASKED)
GateName = Annotated[str, Path(description="As the policy names it", examples=["release"])]
VerdictId = Annotated[str, Path(description="As in V-0001", examples=["V-0001"])]
Limit = Annotated[int, Query(ge=1, le=200, description="Verdicts of a page")]
STATEMENTS = "application/vnd.in-toto+jsonl"


@reading.get("/gates")
def list_gates(context: ContextDep) -> PolicyListResponse:
    """The present policy of every gate."""
    return PolicyListResponse(items=[tell_policy(one) for one in context.stores.gates.policies()])


@reading.get("/gates/{name}")
def get_gate(context: ContextDep, name: GateName) -> PolicyResponse:
    """The gate's present policy."""
    return tell_policy(find_policy(context, name))


@writing.put("/gates/{name}")
def put_gate(
    context: ContextDep, name: GateName, body: PutPolicy, caller: CallerDep
) -> PolicyResponse:
    """Make this the gate's policy; the same again changes nothing, older ones are kept."""
    put = put_policy(context, body.policy, body.name, gate=name, by=caller.name)
    return tell_policy(put)


@reading.get("/gates/{name}/policies")
def list_gate_policies(context: ContextDep, name: GateName) -> PolicyListResponse:
    """Every policy that the gate had, newest first."""
    find_policy(context, name)
    history = context.stores.gates.policy_history(name)
    return PolicyListResponse(items=[tell_policy(one) for one in history])


@writing.post("/gates/{name}/evaluate", status_code=201)
def evaluate(
    context: ContextDep,
    name: GateName,
    key: KeyHeader,
    response: Response,
    body: Evaluate = None,
) -> VerdictResponse:
    """Decide now, sign the verdict and keep it. The same key again is the same verdict."""
    asked = body or EvaluateRequest()
    find_policy(context, name)
    runs = [resolve_run(context, run) for run in asked.runs]
    stored = evaluate_gate(
        context,
        name,
        runs=runs,
        lineage=asked.lineage,
        version=asked.policy_digest,
        key=f"api:{key}",
    )
    _refuse_other(stored, name, runs, asked)
    announce_verdict(context, stored)
    response.headers["Location"] = f"/api/v1/verdicts/{stored.id}"
    return tell_verdict(stored)


@reading.post("/gates/{name}/dry-run")
def dry_run_gate(context: ContextDep, name: GateName, body: DryRun = None) -> DecidedResponse:
    """What would be decided; nothing is stored and nothing is signed."""
    asked = body or DryRunRequest()
    policy = asked.policy if asked.policy is not None else find_policy(context, name).text
    runs = [resolve_run(context, run) for run in asked.runs]
    now = asked.at(context.clock.now())
    return tell_decided(dry_run(context, policy, runs, now, name=asked.name))


@reading.get("/gates/{name}/verdicts")
def list_verdicts(
    context: ContextDep,
    name: GateName,
    limit: Limit = 50,
    before: Annotated[str | None, Query(description="`next` of the page before")] = None,
    lineage: Annotated[str | None, Query(description="Only of this line")] = None,
) -> VerdictListResponse:
    """The gate's verdicts, newest first."""
    find_policy(context, name)
    gates = context.stores.gates
    found = gates.verdicts(gate=name, lineage=lineage, limit=limit + 1, before=before)
    shown = found[:limit]
    return VerdictListResponse(
        items=[tell_verdict_briefly(one) for one in shown],
        next=shown[-1].id if len(found) > limit else None,
    )


@reading.get("/verdicts/{verdict_id}")
def get_verdict(context: ContextDep, verdict_id: VerdictId) -> VerdictResponse:
    """A verdict with every rule."""
    return tell_verdict(find_verdict(context, verdict_id))


@reading.get("/verdicts/{verdict_id}/statement", response_class=StreamingResponse)
def get_statement(context: ContextDep, verdict_id: VerdictId) -> Response:
    """The signed statements: a DSSE envelope a line, the verdict's first."""
    stored = find_verdict(context, verdict_id)
    return _file(context, stored.envelope_digest, f"{stored.id}.intoto.jsonl", STATEMENTS)


@reading.get("/verdicts/{verdict_id}/evidence", response_class=StreamingResponse)
def get_frozen_evidence(context: ContextDep, verdict_id: VerdictId) -> Response:
    """Everything that the verdict was made from, as canonical JSON."""
    stored = find_verdict(context, verdict_id)
    return _file(context, stored.snapshot_digest, f"{stored.id}.evidence.json", "application/json")


@reading.get("/verdicts/{verdict_id}/replay")
def replay_verdict(context: ContextDep, verdict_id: VerdictId) -> ReplayResponse:
    """Evaluate it again with the policy, the evidence and the time of then."""
    return tell_replay(replay(context, verdict_id))


def _refuse_other(
    stored: StoredVerdict, gate: str, runs: Sequence[str], asked: EvaluateRequest
) -> None:
    """Raise KeyReusedError where the key belongs to another request."""
    same_runs = not runs or set(runs) == set(stored.runs)
    same_line = stored.gate == gate and stored.lineage == (asked.lineage or gate)
    same_policy = asked.policy_digest in ("", stored.verdict.policy_digest)
    if not (same_runs and same_line and same_policy):
        raise KeyReusedError(f"the key made {stored.id}, which is about something else")


def _file(context: Context, digest: str, name: str, media: str) -> Response:
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(context.blobs.open(digest), media_type=media, headers=headers)
