"""API tokens: list, make, revoke."""

from __future__ import annotations

import re

from fastapi import APIRouter, Response, Security

from orchestrator.api.dependencies import ContextDep
from orchestrator.api.errors import NotFoundError
from orchestrator.api.run_requests import NewToken
from orchestrator.api.run_responses import NewTokenResponse, TokenListResponse
from orchestrator.api.run_serializers import tell_token
from orchestrator.api.security import bearer, secured
from orchestrator.application.ports.stores import Scope
from orchestrator.application.tokens import create_token as make_token

_ID = re.compile(r"[0-9A-Za-z-]{1,64}")
router = APIRouter(
    tags=["tokens"], route_class=secured(Scope.ADMIN), dependencies=[Security(bearer)]
)


@router.get("/tokens")
def list_tokens(context: ContextDep) -> TokenListResponse:
    """Every token, without the secrets, which are not kept."""
    return TokenListResponse(items=[tell_token(token) for token in context.stores.tokens.list()])


@router.post("/tokens", status_code=201)
def create_token(context: ContextDep, body: NewToken) -> NewTokenResponse:
    """Make a token. Its secret is in this answer and nowhere else."""
    token, secret = make_token(context, body.name, body.wanted, days=body.days)
    return NewTokenResponse(**dict(tell_token(token)), secret=secret)


@router.delete("/tokens/{token_id}", status_code=204, response_class=Response)
def revoke_token(context: ContextDep, token_id: str) -> None:
    """Revoke a token; doing so again changes nothing."""
    tokens = context.stores.tokens
    known = _ID.fullmatch(token_id) and any(one.id == token_id for one in tokens.list())
    if not known:
        raise NotFoundError(f"there is no token {token_id!r}; GET /api/v1/tokens lists them")
    tokens.revoke(token_id, at=context.clock.now())
