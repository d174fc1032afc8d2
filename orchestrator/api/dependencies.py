"""Dependencies of routes: the context, and the objects that a path names."""

from __future__ import annotations

import hashlib
import json
import re
from typing import Annotated

from fastapi import Depends, Header, Path, Query, Request
from pydantic import BaseModel

from orchestrator.api.errors import AmbiguousRunError, NotFoundError
from orchestrator.application.context import Context, NotedContext
from orchestrator.application.describe_run import RunMissingError
from orchestrator.application.launch_run import IdempotencyKey
from orchestrator.domain.cell import Cell
from orchestrator.domain.field_limits import ONE_LINE
from orchestrator.store.sql import PageAsked

LARGEST = 2**53 - 1
"""Maximum integer in queries, which every JSON parser and database accepts."""
_RUN = re.compile(r"[0-9A-Za-z-]{1,64}")

Digest = Annotated[
    str, Path(pattern="^[0-9a-f]{64}$", description="sha256 of the bytes, in lower-case hex")
]
KeyHeader = Annotated[
    str,
    Header(
        alias="Idempotency-Key",
        pattern="^[!-~]{1,200}$",
        description="Chosen by the client, one a request: sending the same key and body again has "
        "the effect of once.",
        examples=["5b0a1f4e-launch"],
    ),
]


async def _context(request: Request) -> Context:
    return NotedContext.from_context(request.app.state.context)


ContextDep = Annotated[Context, Depends(_context)]

_NEXT = "`next` of the page before"
_Limit = Annotated[int, Query(ge=1, le=1000, description="Maximum items of the page")]


async def _page(
    limit: _Limit = 200,
    after: Annotated[str | None, Query(max_length=300, pattern=ONE_LINE, description=_NEXT)] = None,
) -> PageAsked[str]:
    return PageAsked(limit, after)


async def _numbered_page(
    limit: _Limit = 200,
    after: Annotated[int | None, Query(ge=0, le=LARGEST, description=_NEXT)] = None,
) -> PageAsked[int]:
    return PageAsked(limit, after)


async def _newest_page(
    limit: Annotated[int, Query(ge=1, le=200, description="Maximum items of the page")] = 50,
    before: Annotated[int | None, Query(ge=1, le=LARGEST, description=_NEXT)] = None,
) -> PageAsked[int]:
    return PageAsked(limit, before)


PageDep = Annotated[PageAsked[str], Depends(_page)]
"""The requested page of a list that is ordered by names or ids."""
NumberedPageDep = Annotated[PageAsked[int], Depends(_numbered_page)]
"""The requested page of a list that is ordered by numbers, oldest first."""
NewestPageDep = Annotated[PageAsked[int], Depends(_newest_page)]
"""The requested page of a list that is ordered by numbers, newest first."""


def resolve_run(context: Context, name: str) -> str:
    """Return a run's id from its id, a prefix of it, or ``latest``.

    Raises RunMissingError or AmbiguousRunError.
    """
    matches = context.stores.runs.find(name) if _RUN.fullmatch(name) else ()
    if name in matches:
        return name
    if not matches:
        raise RunMissingError(f"there is no run {name!r}; `seatrial runs` lists them")
    if len(matches) > 1:
        raise AmbiguousRunError(name, matches)
    return matches[0]


def _run_id(
    context: ContextDep,
    run_id: Annotated[
        str, Path(description="A run's id, the beginning of it, or `latest`", examples=["latest"])
    ],
) -> str:
    return resolve_run(context, run_id)


RunId = Annotated[str, Depends(_run_id)]


def _cell(
    context: ContextDep,
    run_id: RunId,
    cell: Annotated[
        str, Path(description="`platform`, or `platform.environment`", examples=["local-cpu"])
    ],
) -> Cell:
    cells = context.stores.cells.of_run(run_id)
    for found in cells:
        if found.name == cell:
            return found
    names = ", ".join(found.name for found in cells)
    raise NotFoundError(f"run {run_id} has no cell {cell!r}; it has {names}")


CellDep = Annotated[Cell, Depends(_cell)]


def idempotency_key(key: str, route: str, body: BaseModel | None) -> IdempotencyKey:
    """Return the key with the digest of its request: route and canonical body."""
    content = body.model_dump(mode="python") if body is not None else None
    canonical = json.dumps([route, content], sort_keys=True, separators=(",", ":"), default=str)
    return IdempotencyKey(key, hashlib.sha256(canonical.encode()).hexdigest())
