"""Annotations of runs, for their reports."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Body, Request, Response, Security
from fastapi.openapi.models import Example
from pydantic import Field

from orchestrator.api.dependencies import ContextDep, RunId
from orchestrator.api.models import ListResponse, RequestModel
from orchestrator.api.security import bearer, secured
from orchestrator.application.add_annotations import add_annotations, annotations_of
from orchestrator.domain.annotation import MOST_ANNOTATIONS, Annotation
from orchestrator.domain.caller_identity import Scope
from orchestrator.domain.lint_findings import CheckedAnnotation

REPLAYED = "Idempotency-Replayed"
_ASKED = [Security(bearer)]
reading = APIRouter(tags=["reports"], route_class=secured(Scope.READ), dependencies=_ASKED)
writing = APIRouter(tags=["reports"], route_class=secured(Scope.RUN), dependencies=_ASKED)


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


@reading.get("/runs/{run_id}/annotations")
def list_annotations(context: ContextDep, run_id: RunId) -> ListResponse[CheckedAnnotation]:
    """List the run's annotations in the order in which they were added."""
    return ListResponse(items=list(annotations_of(context, run_id)))


@writing.post(
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
    """Store annotations, each once. A finished run's reports are published again."""
    stated = add_annotations(context, run_id, body.annotations)
    response.headers["Location"] = str(request.app.url_path_for("list_annotations", run_id=run_id))
    if not stated.added:
        response.status_code = 200
        response.headers[REPLAYED] = "true"
    return ListResponse(items=list(stated.items))
