"""Annotations: what people write for the reports of a run."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Body, Request, Response, Security
from fastapi.openapi.models import Example
from pydantic import Field

from orchestrator.api.dependencies import ContextDep, RunId
from orchestrator.api.models import RequestModel, ResponseModel
from orchestrator.api.security import bearer, secured
from orchestrator.application.add_annotations import (
    CheckedAnnotation,
    add_annotations,
    annotations_of,
)
from orchestrator.domain.annotation import MOST_ANNOTATIONS, Annotation
from orchestrator.domain.ingested import AnnotationKind
from orchestrator.domain.lint_findings import Level
from orchestrator.domain.person import Scope

REPLAYED = "Idempotency-Replayed"
_ASKED = [Security(bearer)]
reading = APIRouter(tags=["reports"], route_class=secured(Scope.READ), dependencies=_ASKED)
writing = APIRouter(tags=["reports"], route_class=secured(Scope.RUN), dependencies=_ASKED)


class AnnotationRequest(RequestModel):
    """Something for the reports that a person wrote."""

    kind: AnnotationKind
    author: str
    """Who wrote it."""
    title: str = ""
    """One line."""
    text: str = ""
    """Markdown, at most 64 Ki characters."""
    at: str = ""
    """A date, or a time with its zone; now by default."""
    cell: str = ""
    """The cell that it is about; the whole run by default."""
    files: tuple[str, ...] = ()
    problem: str = ""
    """Of a fix: what was wrong."""
    before: str = ""
    """Of a fix: the code before."""
    after: str = ""
    """Of a fix: the code after."""
    commit: str = ""
    """Of a fix."""


class AnnotationsRequest(RequestModel):
    """What is to be kept."""

    annotations: tuple[AnnotationRequest, ...] = Field(min_length=1, max_length=MOST_ANNOTATIONS)


class DoubtResponse(ResponseModel):
    """What the results say against an annotation."""

    level: Level
    """``error``: they contradict it. ``warning``: nothing backs it."""
    message: str


class AnnotationResponse(ResponseModel):
    """Something that a person wrote, and what the results say to it."""

    kind: AnnotationKind
    author: str
    at: datetime
    title: str
    text: str
    """Markdown, not trusted."""
    cell: str
    """Empty where it is about the whole run."""
    files: list[str]
    problem: str
    before: str
    after: str
    commit: str
    doubts: list[DoubtResponse]


class AnnotationListResponse(ResponseModel):
    """Annotations of a run."""

    items: list[AnnotationResponse]


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
def list_annotations(context: ContextDep, run_id: RunId) -> AnnotationListResponse:
    """What people wrote for the run's reports, in the order it was added."""
    return _told(annotations_of(context, run_id))


@writing.post(
    "/runs/{run_id}/annotations",
    status_code=201,
    responses={
        200: {"model": AnnotationListResponse, "description": "All of them were there before"}
    },
)
def create_annotations(
    context: ContextDep, request: Request, response: Response, run_id: RunId, body: Annotations
) -> AnnotationListResponse:
    """Keep annotations, each once. A finished run's reports are published again with them."""
    written = [Annotation(**dict(one)) for one in body.annotations]
    stated = add_annotations(context, run_id, written)
    response.headers["Location"] = str(request.app.url_path_for("list_annotations", run_id=run_id))
    if not stated.added:
        response.status_code = 200
        response.headers[REPLAYED] = "true"
    return _told(stated.items)


def _told(items: tuple[CheckedAnnotation, ...]) -> AnnotationListResponse:
    return AnnotationListResponse(
        items=[AnnotationResponse.of(one.annotation, one) for one in items]
    )
