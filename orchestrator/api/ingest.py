"""Ingest: uploads of other programs' results, as an archive or a single file.

The body is the file itself and no form: ``curl -X POST -T results.tar.gz`` streams the file.
"""

from __future__ import annotations

import errno
import hashlib
import tempfile
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, Annotated, Any

from fastapi import APIRouter, Query, Request, Response, Security
from starlette.concurrency import run_in_threadpool

from orchestrator.api.dependencies import ContextDep, resolve_run
from orchestrator.api.errors import DigestMismatchError, SpoolFullError
from orchestrator.api.security import bearer, bounded, secured
from orchestrator.application.context import Context
from orchestrator.application.describe_run import find_run
from orchestrator.application.ingest_artifacts import (
    IngestOrder,
    IngestResult,
    ingest_artifacts,
)
from orchestrator.application.ports.uploads import IntakeError
from orchestrator.domain.caller_identity import Scope
from orchestrator.domain.document_problems import nearest
from orchestrator.domain.ingested import UPLOAD_LIMIT_BYTES
from orchestrator.domain.run_record import IngestResponse
from orchestrator.store.stores import Stores


def archive_body(what: str) -> dict[str, object]:
    """Return the OpenAPI description of an uploaded file."""
    return {
        "requestBody": {
            "required": True,
            "content": {
                "application/octet-stream": {
                    "schema": {"type": "string", "format": "binary"},
                    "examples": {"file": {"summary": what, "value": "(the bytes of the file)"}},
                }
            },
        }
    }


_PIECE_BYTES = 1024 * 1024
"""Bytes that are buffered before a thread writes them."""


@asynccontextmanager
async def received(
    request: Request, digest: str | None, *, limit_bytes: int, scratch: Path
) -> AsyncIterator[Path]:
    """Receive the whole body into a temporary file, which exists while the block runs.

    The file is in a folder below `scratch` that only its owner can read.

    Raises BodyTooLargeError, DigestMismatchError if the body does not have the given digest,
    SpoolFullError, or ClientDisconnect if the upload is cut off; the file is removed then, too.
    """
    folder = await run_in_threadpool(
        tempfile.TemporaryDirectory, prefix="seatrial-upload-", dir=scratch
    )
    try:
        path = Path(folder.name) / "body"
        file = await run_in_threadpool(path.open, "wb")
        try:
            found = await _receive(request, file, limit_bytes)
        finally:
            await run_in_threadpool(file.close)
        if digest not in (None, found):
            raise DigestMismatchError(f"the bytes that came have the sha256 {found}")
        yield path
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise SpoolFullError("there is no room left to receive uploads") from error
        raise
    finally:
        folder.cleanup()


async def _receive(request: Request, file: IO[bytes], limit_bytes: int) -> str:
    seen = hashlib.sha256()
    piece = bytearray()
    async for chunk in bounded(request, limit_bytes):
        piece += chunk
        if len(piece) >= _PIECE_BYTES:
            await run_in_threadpool(_keep, file, seen, piece)
            piece = bytearray()
    await run_in_threadpool(_keep, file, seen, piece)
    return seen.hexdigest()


def _keep(file: IO[bytes], seen: hashlib._Hash, piece: bytearray) -> None:
    seen.update(piece)
    file.write(piece)


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
    """Create a finished run of one cell from files of other programs, or add the cell to a run.

    A repeated upload of the same content returns the same run.
    """
    _check_form(request)
    async with received(
        request, None, limit_bytes=UPLOAD_LIMIT_BYTES, scratch=context.scratch
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
    return await run_in_threadpool(_response, context, answer)


def _check_form(request: Request) -> None:
    """Validate the parameters before the body is read."""
    if request.headers.get("content-type", "").startswith("multipart/"):
        raise IntakeError("the body is a form: send the file as it is (`curl -X POST -T FILE`)")
    for key, times in Counter(key for key, _ in request.query_params.multi_items()).items():
        if key not in _QUERY:
            raise IntakeError(f"there is no {key!r} in the query{nearest(key, _QUERY)}")
        if times > 1:
            raise IntakeError(f"{key!r} occurs {times} times in the query: give it once")


def _response(context: Context, answer: IngestResult) -> IngestResponse:
    return to_ingest_response(context.stores, answer)


def to_ingest_response(stores: Stores, answer: IngestResult) -> IngestResponse:
    """Return the response of an ingestion."""
    run = find_run(stores, answer.run_id)
    cell = next(one for one in stores.cells.of_run(run.id) if one.name == answer.cell)
    return IngestResponse(
        run=run.id,
        cell=cell.name,
        state=run.state,
        outcome=cell.outcome,
        replayed=answer.replayed,
        ingested=stores.ingests.of_run(run.id)[cell.id],
    )
