"""The audit log: pages, export, and verification of its chain."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Query, Security
from fastapi.responses import StreamingResponse
from pydantic import AwareDatetime

from orchestrator.api.dependencies import ContextDep, NewestPageDep
from orchestrator.api.models import NumberedPageResponse
from orchestrator.api.security import bearer, secured
from orchestrator.domain.audit import AuditFilters, AuditVerification, ChainedEntry
from orchestrator.domain.caller_identity import Scope

_MEDIA = "application/x-ndjson"
router = APIRouter(
    tags=["audit"], route_class=secured(Scope.ADMIN), dependencies=[Security(bearer)]
)

Since = Annotated[
    AwareDatetime | None,
    Query(description="Only entries at or after this time", examples=["2026-11-01T00:00:00Z"]),
]
Actor = Annotated[str, Query(description="Name of a token's owner", max_length=300)]
Resource = Annotated[str, Query(description="`schedules`, or `schedules/nightly`", max_length=300)]


@router.get("/audit")
def list_audit_entries(
    context: ContextDep,
    page: NewestPageDep,
    since: Since = None,
    actor: Actor = "",
    resource: Resource = "",
) -> NumberedPageResponse[ChainedEntry]:
    """List entries of the audit log, newest first: who changed what, from where, and when."""
    filters = _filters(since, actor, resource)
    found = context.stores.audit.page(filters, limit=page.limit, before=page.last)
    return NumberedPageResponse(items=found, next=found.next)


@router.get(
    "/audit/export",
    response_class=StreamingResponse,
    responses={200: {"content": {_MEDIA: {}}}},
)
def export_audit_log(
    context: ContextDep, since: Since = None, actor: Actor = "", resource: Resource = ""
) -> StreamingResponse:
    """Export the audit log as lines of JSON, oldest first.

    The digest of a line is the sha256 of its text without the last field, `digest`.
    """
    lines = context.stores.audit.lines(_filters(since, actor, resource))
    return StreamingResponse(_encoded(lines), media_type=_MEDIA)


@router.get("/audit/verification")
def verify_audit_log(
    context: ContextDep,
    head: Annotated[
        str,
        Query(
            description="An earlier digest, which an entry must have", pattern="^([0-9a-f]{64})?$"
        ),
    ] = "",
) -> AuditVerification:
    """Verify, by the digests, that no entry of the audit log was changed or removed.

    A removal of the newest entries is found only with `head`.
    """
    return context.stores.audit.verify(head=head)


def _filters(since: datetime | None, actor: str, resource: str) -> AuditFilters:
    return AuditFilters(since, actor.strip(), resource)


def _encoded(lines: Iterator[str]) -> Iterator[bytes]:
    for line in lines:
        yield line.encode()
