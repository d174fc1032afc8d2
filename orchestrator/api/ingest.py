"""Ingest: evidence that our agent did not produce, handed in as an archive or a single file.

The body is the file itself, not a form: ``curl -X POST -T results.tar.gz`` streams it as it is.
"""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response, Security
from starlette.concurrency import run_in_threadpool

from orchestrator.api.bodies import archive_body
from orchestrator.api.deps import ContextDep, resolve_run
from orchestrator.api.guard import bearer, secured
from orchestrator.api.ingest_shapes import IngestAnswerShape
from orchestrator.api.spool import received
from orchestrator.api.telling_ingested import tell_answer
from orchestrator.application.context import Context
from orchestrator.application.ingest_artifacts import (
    BODY_LIMIT_BYTES,
    IngestAnswer,
    IngestOrder,
    ingest_artifacts,
)
from orchestrator.application.ports.stores import Scope

REPLAYED = "Idempotency-Replayed"
router = APIRouter(
    tags=["ingest"],
    route_class=secured(Scope.RUN, body_limit_bytes=None),
    dependencies=[Security(bearer)],
)
_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {"model": IngestAnswerShape, "description": "The very same was handed in before"}
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
    ] = "artifact",
) -> IngestAnswerShape:
    """Make a finished run of one cell from files of other programs, or add the cell to a run.

    The same content again answers the same run.
    """
    async with received(request, None, limit_bytes=BODY_LIMIT_BYTES) as path:
        run_id = await run_in_threadpool(resolve_run, context, run) if run else None
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


def _told(context: Context, answer: IngestAnswer) -> IngestAnswerShape:
    return tell_answer(context.stores, answer)
