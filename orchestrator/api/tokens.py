"""API tokens: list, create, revoke; browser sessions: list, revoke."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from fastapi import APIRouter, Body, Response, Security
from fastapi.openapi.models import Example
from pydantic import Field

from orchestrator.api.dependencies import ContextDep, PageDep
from orchestrator.api.errors import NotFoundError
from orchestrator.api.models import PageResponse, RequestModel
from orchestrator.api.security import bearer, secured
from orchestrator.application import browser_sessions
from orchestrator.application.tokens import create_token as make_token
from orchestrator.domain.caller_identity import BrowserSession, NewToken, Scope, Token
from orchestrator.domain.copied_fields import extended


class TokenRequest(RequestModel):
    """A token to create."""

    name: str = Field(min_length=1, max_length=100, pattern=r"^[^\x00-\x1f\x7f]+$")
    """Name of the token's owner."""
    scope: Literal["read", "run", "gate", "admin"]
    """Scope of the token; each scope includes the ones before it."""
    days: int | None = Field(default=90, ge=1, le=3650)
    """Days until the token expires; null: it does not expire."""

    @property
    def wanted(self) -> Scope:
        """Return the scope as the domain's value."""
        return Scope(self.scope)


_TOKEN_EXAMPLES: dict[str, Example] = {
    "pipeline": {
        "summary": "A token for a pipeline that launches runs",
        "value": {"name": "nightly pipeline", "scope": "run", "days": 90},
    }
}
TokenBody = Annotated[TokenRequest, Body(openapi_examples=_TOKEN_EXAMPLES)]


_ID = re.compile(r"[0-9A-Za-z-]{1,64}")
router = APIRouter(
    tags=["tokens"], route_class=secured(Scope.ADMIN), dependencies=[Security(bearer)]
)


@router.get("/tokens")
def list_tokens(context: ContextDep, page: PageDep) -> PageResponse[Token]:
    """List the tokens, oldest first, without secrets, which are not stored."""
    found = context.stores.tokens.list(page)
    return PageResponse(items=found, next=found.next)


@router.post("/tokens", status_code=201)
def create_token(context: ContextDep, body: TokenBody) -> NewToken:
    """Create a token. Only this response has the secret."""
    token, secret = make_token(context, body.name, body.wanted, days=body.days)
    return extended(NewToken, token, secret=secret)


@router.delete("/tokens/{token_id}", status_code=204, response_class=Response)
def revoke_token(context: ContextDep, token_id: str) -> None:
    """Revoke a token; idempotent."""
    tokens = context.stores.tokens
    known = _ID.fullmatch(token_id) and any(one.id == token_id for one in tokens.list())
    if not known:
        raise NotFoundError(f"there is no token {token_id!r}; GET /api/v1/tokens lists them")
    tokens.revoke(token_id, at=context.clock.now())


session_router = APIRouter(
    tags=["sessions"], route_class=secured(Scope.ADMIN), dependencies=[Security(bearer)]
)


@session_router.get("/sessions")
def list_sessions(context: ContextDep, page: PageDep) -> PageResponse[BrowserSession]:
    """List the browsers that are signed in, oldest first, without secrets, which are not stored.

    A page may have fewer items than its limit: sessions that ended are left out.
    """
    found = browser_sessions.list_sessions(context, page)
    return PageResponse(items=found, next=found.next)


@session_router.delete("/sessions/{session_id}", status_code=204, response_class=Response)
def revoke_session(context: ContextDep, session_id: str) -> None:
    """Revoke a browser session, so that the browser has to sign in again."""
    if not browser_sessions.revoke_session(context, session_id):
        raise NotFoundError(f"there is no session {session_id!r}; GET /api/v1/sessions lists them")
