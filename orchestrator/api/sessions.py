"""Browser sessions: list, revoke."""

from __future__ import annotations

from fastapi import APIRouter, Response, Security

from orchestrator.api.dependencies import ContextDep
from orchestrator.api.errors import NotFoundError
from orchestrator.api.models import ListResponse
from orchestrator.api.security import bearer, secured
from orchestrator.application import browser_sessions
from orchestrator.domain.browser_session import BrowserSession
from orchestrator.domain.caller_identity import Scope

router = APIRouter(
    tags=["sessions"], route_class=secured(Scope.ADMIN), dependencies=[Security(bearer)]
)


@router.get("/sessions")
def list_sessions(context: ContextDep) -> ListResponse[BrowserSession]:
    """List the browsers that are signed in, without secrets, which are not stored."""
    return ListResponse(items=browser_sessions.list_sessions(context))


@router.delete("/sessions/{session_id}", status_code=204, response_class=Response)
def revoke_session(context: ContextDep, session_id: str) -> None:
    """Revoke a browser session: the browser has to sign in again."""
    if not browser_sessions.revoke_session(context, session_id):
        raise NotFoundError(f"there is no session {session_id!r}; GET /api/v1/sessions lists them")
