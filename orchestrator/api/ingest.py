"""Ingest: evidence that our agent did not produce, handed in as an archive or a single file.

The body is the file itself, not a form: ``curl -X POST -T results.tar.gz`` streams it as it is.
"""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response, Security
from starlette.concurrency import run_in_threadpool

from orchestrator.api.dependencies import ContextDep, resolve_run
from orchestrator.api.ingest_responses import IngestResponse
from orchestrator.api.ingest_serializers import tell_answer
from orchestrator.api.run_requests import archive_body
from orchestrator.api.security import bearer, secured
from orchestrator.api.uploads import received
from orchestrator.application.context import Context
from orchestrator.application.ingest_artifacts import (
    BODY_LIMIT_BYTES,
    IngestAnswer,
    IngestOrder,
    ingest_artifacts,
)
from orchestrator.application.ports.ingest_upload import IntakeError
from orchestrator.application.ports.stores import Scope
from orchestrator.domain.problems import nearest

REPLAYED = "Idempotency-Replayed"
_QUERY = ("environment", "name", "platform", "run", "subject")
router = APIRouter(
    tags=["ingest"],
    route_class=secured(Scope.RUN, body_limit_bytes=None),
    dependencies=[Security(bearer)],
)
_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {"model": IngestResponse, "description": "The very same was handed in before"}
}


@router.post(
    "/ingest",
    status_code=201,
    responses=_ANSWERS,
    openapi_extra=archive_body(".tar, .tar.gz or .zip of results; or one file, with its `name`"),
)
async def ingest(
    context: ContextDep,
    request: Request,
    response: Response,
    platform: Annotated[
        str, Query(max_length=64, description="Its id; ingest.yaml may say it instead")
    ] = "",
    subject: Annotated[
        str, Query(max_length=300, description="NAME@VERSION; ingest.yaml may say it instead")
    ] = "",
    environment: Annotated[
        str, Query(max_length=64, description="Its name; `image` by default")
    ] = "",
    run: Annotated[
        str | None, Query(description="A finished run that gets one more cell; else a new run")
    ] = None,
    name: Annotated[
        str, Query(max_length=300, description="What a single file is called where it is from")
    ] = "",
) -> IngestResponse:
    """Make a finished run of one cell from files of other programs, or add the cell to a run.

    The same content again answers the same run.
    """
    _check_form(request)
    async with received(
        request, None, limit_bytes=BODY_LIMIT_BYTES, scratch=context.scratch
    ) as path:
        run_id = await run_in_threadpool(resolve_run, context, run) if run is not None else None
        order = IngestOrder(
            body=path,
            name=name,
            platform=platform,
            subject=subject,
            environment=environment,
            run_id=run_id,
        )
        answer = await run_in_threadpool(ingest_artifacts, context, order)
    response.headers["Location"] = request.app.url_path_for("show_run", run_id=answer.run_id)
    if answer.replayed:
        response.status_code = 200
        response.headers[REPLAYED] = "true"
    return await run_in_threadpool(_told, context, answer)


def _check_form(request: Request) -> None:
    """Refuse what would be taken for something else, before anything of the body is read."""
    if request.headers.get("content-type", "").startswith("multipart/"):
        raise IntakeError("the body is a form: send the file as it is (`curl -X POST -T FILE`)")
    for key, times in Counter(key for key, _ in request.query_params.multi_items()).items():
        if key not in _QUERY:
            raise IntakeError(f"there is no {key!r} in the query{nearest(key, _QUERY)}")
        if times > 1:
            raise IntakeError(f"{key!r} stands in the query {times} times: say it once")


def _told(context: Context, answer: IngestAnswer) -> IngestResponse:
    return tell_answer(context.stores, answer)
