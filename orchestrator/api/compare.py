"""Two runs set against each other, rendered from what is stored at the time of asking."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response, Security

from orchestrator.api.dependencies import ContextDep, resolve_run
from orchestrator.api.errors import NotFoundError
from orchestrator.api.reports import MEDIA_TYPES, POLICY
from orchestrator.api.security import bearer, secured
from orchestrator.application.compare_runs import compared_evidence
from orchestrator.domain.person import Scope
from orchestrator.domain.problems import nearest

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
    """What changed from one run to another: tests, figures, environments and costs."""
    if format not in MEDIA_TYPES:
        raise NotFoundError(f"reports are not made as {format!r}{nearest(format, MEDIA_TYPES)}")
    older, newer = (resolve_run(context, name) for name in (base, head))
    text = context.render(KIND, compared_evidence(context, older, newer), None, format)
    return Response(
        text, media_type=MEDIA_TYPES[format], headers={"Content-Security-Policy": POLICY}
    )
