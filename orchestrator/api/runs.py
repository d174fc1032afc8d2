"""Runs: plan, launch, list, show, cancel, rerun, compare, annotate."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Body, Query, Request, Response, Security
from fastapi.openapi.models import Example
from pydantic import Field

from orchestrator.api.dependencies import (
    ContextDep,
    KeyHeader,
    NumberedPageDep,
    RunId,
    idempotency_key,
    resolve_run,
)
from orchestrator.api.errors import NotFoundError
from orchestrator.api.models import (
    ListResponse,
    NumberedPageResponse,
    PageResponse,
    RequestModel,
    document_source,
)
from orchestrator.api.reports import MEDIA_TYPES, POLICY
from orchestrator.api.security import bearer, secured
from orchestrator.application import describe_run as listing
from orchestrator.application.add_annotations import add_annotations, annotations_of
from orchestrator.application.compare_cells import compared_evidence
from orchestrator.application.context import Context
from orchestrator.application.describe_run import describe_run
from orchestrator.application.end_run import cancel_run
from orchestrator.application.launch_run import BUILTIN, Launched, LaunchOrder, launch_run
from orchestrator.application.plan_run import plan_run
from orchestrator.application.ports.documents import Source
from orchestrator.application.rerun_run import Only, plan_rerun, rerun_run
from orchestrator.domain.annotation import MOST_ANNOTATIONS, Annotation
from orchestrator.domain.caller_identity import Scope
from orchestrator.domain.cell import Run
from orchestrator.domain.commit import Commit
from orchestrator.domain.document_problems import nearest
from orchestrator.domain.launch_plan import Plan
from orchestrator.domain.lint_findings import CheckedAnnotation
from orchestrator.domain.retests import RetestLimits, RetestOptions
from orchestrator.domain.run_record import RunResponse, RunSummary, run_answer, summary_answer
from orchestrator.store.runs import RunsAsked

KIND = "compare"

RunName = Annotated[
    str, Query(description="A run's id, the beginning of it, or `latest`", max_length=64)
]

router = APIRouter(
    tags=["reports"], route_class=secured(Scope.READ), dependencies=[Security(bearer)]
)


@router.get(
    "/compare",
    response_class=Response,
    responses={200: {"content": {media.partition(";")[0]: {} for media in MEDIA_TYPES.values()}}},
)
def compare_runs(
    context: ContextDep,
    base: RunName,
    head: RunName,
    format: Annotated[  # noqa: A002 - the word of the other routes
        str, Query(description="`json`, `md` or `html`", max_length=10)
    ] = "json",
) -> Response:
    """Compare two runs: tests, metrics, environments and costs."""
    if format not in MEDIA_TYPES:
        raise NotFoundError(f"reports are not made as {format!r}{nearest(format, MEDIA_TYPES)}")
    older, newer = (resolve_run(context, name) for name in (base, head))
    text = context.render(KIND, compared_evidence(context, older, newer), None, format)
    return Response(
        text, media_type=MEDIA_TYPES[format], headers={"Content-Security-Policy": POLICY}
    )


MATRIX_TEXT = """\
apiVersion: seatrial/v1
kind: Matrix
metadata: {name: local}
subject: {name: torchbridge, version: "0.4.40"}
platforms:
  - {id: local-cpu, provider: local}
jobs:
  - {id: moe, on: all}
"""
_MATRIX_OBJECT = {
    "apiVersion": "seatrial/v1",
    "kind": "Matrix",
    "metadata": {"name": "local"},
    "subject": {"name": "torchbridge", "version": "0.4.40"},
    "platforms": [{"id": "local-cpu", "provider": "local"}],
    "jobs": [{"id": "moe", "on": "all"}],
}
_DIGEST = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"


Matrix = Annotated[Any, *document_source("Matrix")]


class RunRequest(RequestModel):
    """A matrix to launch, with its uploads."""

    matrix: Matrix
    """Text of a matrix file, or the same document as an object; its schema is at ``GET
    /schema/matrix``.
    """
    name: str = Field(default="matrix", min_length=1, max_length=200)
    """File name of the matrix, for messages."""
    payload: str = Field(default=BUILTIN, pattern=f"^({BUILTIN}|[0-9a-f]{{64}})$")
    """``builtin``, or the digest of an uploaded archive."""
    subject: str | None = Field(default=None, pattern="^[0-9a-f]{64}$")
    """Digest of the uploaded wheel, where the matrix names one."""
    baseline: str | None = Field(default=None, pattern="^[0-9a-f]{64}$")
    """Digest of the uploaded baseline, a wheel or a payload, where the matrix names one."""
    hold_minutes: float = Field(default=0.0, ge=0, le=1440, allow_inf_nan=False)
    """Minutes for which the machine of a cell that does not pass is held for a person."""
    retests: RetestLimits | None = None
    """Options for retests; null for none."""
    reuse_hours: float | None = Field(default=None, gt=0, le=8760, allow_inf_nan=False)
    """Jobs that passed with identical inputs within so many hours are not run; null runs all jobs.
    """

    commit: Commit = Field(default_factory=Commit)
    """The tested commit: shown with the run, and a filter of lists of runs."""
    untrusted: bool = False
    """Whether the code is untrusted: it gets no secrets, and its results decide nothing."""

    def order(self) -> LaunchOrder:
        """Return the launch order."""
        source: Source = self.matrix
        return LaunchOrder(
            matrix=source,
            name=self.name,
            payload=self.payload,
            subject_digest=self.subject,
            baseline_digest=self.baseline,
            hold_minutes=self.hold_minutes,
            retests=RetestOptions(**asdict(self.retests)) if self.retests else None,
            reuse_max_age_s=self.reuse_hours * 3600 if self.reuse_hours is not None else None,
            commit=self.commit,
            untrusted=self.untrusted,
        )


class RerunRequest(RequestModel):
    """The jobs to run again."""

    only: Only | None = None
    """Jobs by cell; null means every job of the run."""
    hold_minutes: float = Field(default=0.0, ge=0, le=1440, allow_inf_nan=False)
    """Minutes for which the machine of a cell that does not pass is held for a person."""


_LAUNCH_EXAMPLES: dict[str, Example] = {
    "text": {
        "summary": "A matrix file's text, with the payload that comes with Seatrial",
        "value": {"matrix": MATRIX_TEXT, "name": "local.yaml", "payload": BUILTIN},
    },
    "object": {
        "summary": "The matrix as an object, with an uploaded payload and wheel",
        "value": {"matrix": _MATRIX_OBJECT, "payload": _DIGEST, "subject": _DIGEST},
    },
    "hold": {
        "summary": "With the machines of cells that do not pass kept for half an hour",
        "value": {"matrix": MATRIX_TEXT, "hold_minutes": 30},
    },
    "reuse": {
        "summary": "Only what changed since it passed, at most a day and a half ago",
        "value": {"matrix": MATRIX_TEXT, "reuse_hours": 36},
    },
    "retests": {
        "summary": "With failing tests run again, and looked into, on their machine",
        "value": {"matrix": MATRIX_TEXT, "retests": {"reruns": 2, "diagnose": True}},
    },
}
_RERUN_EXAMPLES: dict[str, Example] = {
    "failed": {"summary": "Only what failed or timed out", "value": {"only": "failed"}},
    "all": {"summary": "Everything", "value": {"only": None}},
}
Launch = Annotated[RunRequest, Body(openapi_examples=_LAUNCH_EXAMPLES)]
Rerun = Annotated[RerunRequest | None, Body(openapi_examples=_RERUN_EXAMPLES)]


REPLAYED = "Idempotency-Replayed"
_ASKED = [Security(bearer)]
reading = APIRouter(tags=["runs"], route_class=secured(Scope.READ), dependencies=_ASKED)
writing = APIRouter(tags=["runs"], route_class=secured(Scope.RUN), dependencies=_ASKED)
_LAUNCHED: dict[int | str, dict[str, Any]] = {
    202: {
        "description": "The run exists, and its cells begin",
        "headers": {
            "Location": {"schema": {"type": "string"}, "description": "Of the run"},
            REPLAYED: {
                "schema": {"type": "string", "const": "true"},
                "description": "Present when the key was used before: nothing was launched now",
            },
        },
    }
}


@writing.post("/plan")
def plan(
    context: ContextDep,
    body: Launch,
    check_hosts: Annotated[
        bool, Query(description="Sign in on your own hosts, and look for what the jobs need")
    ] = False,
) -> Plan:
    """Plan a launch: cells, places, and the maximum cost. Launches nothing.

    A check of hosts stores the agent's archive in their work folders, as a run does.
    """
    return plan_run(context, body.order(), with_hosts=check_hosts)


@writing.post("/runs", status_code=202, responses=_LAUNCHED)
def launch(
    context: ContextDep, body: Launch, key: KeyHeader, request: Request, response: Response
) -> RunResponse:
    """Launch a matrix. Everything is validated first; a refusal changes nothing."""
    claim = idempotency_key(key, "POST /runs", body)
    return _answer(context, launch_run(context, body.order(), claim), request, response)


@reading.get("/runs")
def list_runs(
    context: ContextDep,
    limit: Annotated[int, Query(ge=1, le=200)] = 20,
    before: Annotated[str | None, Query(pattern="^[!-~]{1,200}$")] = None,
    commit: Annotated[str, Query(description="Begins so", pattern="^[0-9a-f]{0,64}$")] = "",
    branch: Annotated[str, Query(max_length=250)] = "",
    author: Annotated[str, Query(max_length=200)] = "",
) -> PageResponse[RunSummary]:
    """List runs, newest first; optionally only those of a commit, a branch or an author."""
    at = context.clock.now()
    asked = RunsAsked(commit=commit, branch=branch, author=author)
    listed, cursor = listing.list_runs(
        context.stores, limit=limit, before=before, at=at, filters=asked
    )
    items = [summary_answer(one.run, one.counts, one.cost) for one in listed]
    return PageResponse(items=items, next=cursor)


@reading.get("/runs/{run_id}")
def show_run(context: ContextDep, run_id: RunId) -> RunResponse:
    """Return a run without its single tests."""
    return run_answer(describe_run(context.stores, run_id, at=context.clock.now()))


@writing.post("/runs/{run_id}/cancel", status_code=202)
def cancel(context: ContextDep, run_id: RunId) -> Run:
    """Cancel a run: finished tests are kept, machines are released. A finished run is unchanged."""
    return cancel_run(context, run_id)


@writing.post("/runs/{run_id}/rerun/plan")
def plan_again(context: ContextDep, run_id: RunId, body: Rerun = None) -> Plan:
    """Plan a rerun, with the maximum cost. Changes nothing."""
    body = body or RerunRequest()
    return plan_rerun(context, run_id, only=body.only, hold_minutes=body.hold_minutes)


@writing.post("/runs/{run_id}/rerun", status_code=202, responses=_LAUNCHED)
def rerun(
    context: ContextDep,
    run_id: RunId,
    key: KeyHeader,
    request: Request,
    response: Response,
    body: Rerun = None,
) -> RunResponse:
    """Launch a finished run again, or only some of its jobs, as a new run."""
    body = body or RerunRequest()
    claim = idempotency_key(key, f"POST /runs/{run_id}/rerun", body)
    launched = rerun_run(context, run_id, only=body.only, key=claim, hold_minutes=body.hold_minutes)
    return _answer(context, launched, request, response)


def _answer(
    context: Context, launched: Launched, request: Request, response: Response
) -> RunResponse:
    run_id = launched.run.id
    response.headers["Location"] = request.app.url_path_for("show_run", run_id=run_id)
    if launched.replayed:
        response.headers[REPLAYED] = "true"
    return run_answer(describe_run(context.stores, run_id, at=context.clock.now()))


annotations_reading = APIRouter(
    tags=["reports"], route_class=secured(Scope.READ), dependencies=_ASKED
)
annotations_writing = APIRouter(
    tags=["reports"], route_class=secured(Scope.RUN), dependencies=_ASKED
)


class AnnotationsRequest(RequestModel):
    """Annotations to store."""

    annotations: tuple[Annotation, ...] = Field(min_length=1, max_length=MOST_ANNOTATIONS)


_EXAMPLES: dict[str, Example] = {
    "fix": {
        "summary": "A fix, about one platform",
        "value": {
            "annotations": [
                {
                    "kind": "fix",
                    "title": "FlexAttention on CUDA",
                    "text": "The mask is built on the device of the query.",
                    "author": "R. Eader",
                    "at": "2026-01-18",
                    "cell": "gcp-l4",
                    "files": ["src/attention.py"],
                    "problem": "The mask was on the CPU.",
                    "before": "mask = build()",
                    "after": "mask = build(device=query.device)",
                }
            ]
        },
    },
    "recommendation": {
        "summary": "A recommendation for the whole run, dated now",
        "value": {
            "annotations": [
                {"kind": "recommendation", "text": "Pin torch.", "author": "release team"}
            ]
        },
    },
}
Annotations = Annotated[AnnotationsRequest, Body(openapi_examples=_EXAMPLES)]


@annotations_reading.get("/runs/{run_id}/annotations")
def list_annotations(
    context: ContextDep, run_id: RunId, page: NumberedPageDep
) -> NumberedPageResponse[CheckedAnnotation]:
    """List the run's annotations in the order in which they were added."""
    every = annotations_of(context, run_id)
    begin = page.last or 0
    end = begin + page.limit
    return NumberedPageResponse(
        items=list(every[begin:end]), next=end if end < len(every) else None
    )


@annotations_writing.post(
    "/runs/{run_id}/annotations",
    status_code=201,
    responses={
        200: {
            "model": ListResponse[CheckedAnnotation],
            "description": "All of them were there before",
        }
    },
)
def create_annotations(
    context: ContextDep, request: Request, response: Response, run_id: RunId, body: Annotations
) -> ListResponse[CheckedAnnotation]:
    """Store annotations, each once, and publish a finished run's reports again."""
    stated = add_annotations(context, run_id, body.annotations)
    response.headers["Location"] = str(request.app.url_path_for("list_annotations", run_id=run_id))
    if not stated.added:
        response.status_code = 200
        response.headers[REPLAYED] = "true"
    return ListResponse(items=list(stated.items))
