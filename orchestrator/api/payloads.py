"""Uploads: payload archives and subjects' wheels, by digest."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response, Security
from starlette.concurrency import run_in_threadpool

from orchestrator.api.dependencies import ContextDep, Digest
from orchestrator.api.errors import NotFoundError
from orchestrator.api.ingest import archive_body, received
from orchestrator.api.security import bearer, secured
from orchestrator.application.context import Context
from orchestrator.application.payloads import (
    PAYLOAD_LIMIT_BYTES,
    SUBJECT_LIMIT_BYTES,
    put_payload,
    put_subject,
)
from orchestrator.domain.caller_identity import Scope
from orchestrator.domain.manifest import PayloadResponse, StoredPayload, SubjectFileResponse

_ASKED = [Security(bearer)]
reading = APIRouter(tags=["payloads"], route_class=secured(Scope.READ), dependencies=_ASKED)
writing = APIRouter(
    tags=["payloads"],
    route_class=secured(Scope.RUN, body_limit_bytes=None),
    dependencies=_ASKED,
)


@writing.put(
    "/payloads/{sha256}",
    status_code=201,
    responses={200: {"model": PayloadResponse, "description": "It was known already"}},
    openapi_extra=archive_body("A payload: .tar.gz with payload.toml at its top"),
)
async def put_payload_archive(
    context: ContextDep, sha256: Digest, request: Request, response: Response
) -> PayloadResponse:
    """Upload a payload's archive; its digest and manifest are validated."""
    async with received(
        request, sha256, limit_bytes=PAYLOAD_LIMIT_BYTES, scratch=context.scratch
    ) as path:
        known = await run_in_threadpool(_known, context, sha256)
        if known is not None:
            response.status_code = 200
            return to_payload_response(known)
        return to_payload_response(await run_in_threadpool(put_payload, context, sha256, path))


@reading.get("/payloads/{sha256}")
def get_payload(context: ContextDep, sha256: Digest) -> PayloadResponse:
    """Return the manifest of an uploaded payload; its archive cannot be downloaded."""
    found = _known(context, sha256)
    if found is None:
        raise NotFoundError(f"payload {sha256} was not uploaded")
    return to_payload_response(found)


@reading.head("/payloads/{sha256}", response_class=Response)
def head_payload(context: ContextDep, sha256: Digest) -> None:
    """Return 200 if the payload is stored, else 404."""
    get_payload(context, sha256)


@writing.put(
    "/subjects/{sha256}",
    status_code=201,
    responses={200: {"model": SubjectFileResponse, "description": "It was known already"}},
    openapi_extra=archive_body("A subject: a wheel"),
)
async def put_subject_wheel(
    context: ContextDep, sha256: Digest, request: Request, response: Response
) -> SubjectFileResponse:
    """Upload a subject's wheel."""
    async with received(
        request, sha256, limit_bytes=SUBJECT_LIMIT_BYTES, scratch=context.scratch
    ) as path:
        if await run_in_threadpool(context.blobs.has, sha256):
            response.status_code = 200
        size = await run_in_threadpool(put_subject, context, sha256, path)
        return SubjectFileResponse(digest=sha256, size_bytes=size)


def _known(context: Context, digest: str) -> StoredPayload | None:
    """Return the payload if its archive is stored too, else None."""
    found = context.stores.payloads.get(digest)
    return found if found is not None and context.blobs.has(digest) else None


def to_payload_response(payload: StoredPayload) -> PayloadResponse:
    """Return the response of an uploaded payload."""
    manifest = payload.manifest
    return PayloadResponse(
        digest=payload.digest,
        size_bytes=payload.size_bytes,
        name=manifest.name,
        version=manifest.version,
        jobs=tuple(job.id for job in manifest.job),
    )
