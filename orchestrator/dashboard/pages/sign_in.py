"""Sign in and out."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Form, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from starlette.concurrency import run_in_threadpool

from orchestrator.application.context import Context
from orchestrator.application.tokens import begin_session, end_session
from orchestrator.dashboard import urls
from orchestrator.dashboard.responses import pages_of
from orchestrator.dashboard.session import Viewer, forget, keep, needs
from orchestrator.domain.caller_identity import Scope

router = APIRouter()


@router.get(urls.SIGN_IN)
async def show_sign_in(request: Request, token: str = "", next: str = urls.BOARD) -> Response:  # noqa: A002
    """Ask for a token, or take the one of the link that `serve` prints."""
    if token:
        return await _signed_in(request, token, next)
    return _form(request, next, "")


@router.post(urls.SIGN_IN)
async def sign_in(
    request: Request,
    token: Annotated[str, Form()] = "",
    next: Annotated[str, Form()] = urls.BOARD,  # noqa: A002
) -> Response:
    """Start a session with a token."""
    return await _signed_in(request, token, next)


@router.post(urls.SIGN_OUT)
async def sign_out(
    request: Request,
    viewer: Annotated[Viewer, needs(Scope.READ)],
) -> Response:
    """End the browser's session, and let it forget it."""
    context: Context = request.app.state.context
    if viewer.credential.is_session:
        await run_in_threadpool(end_session, context, viewer.credential)
    response = RedirectResponse(urls.SIGN_IN, 303)
    forget(request, response)
    return response


async def _signed_in(request: Request, token: str, after: str) -> Response:
    context: Context = request.app.state.context
    begun = await run_in_threadpool(begin_session, context, token.strip())
    if begun is None:
        return _form(request, after, "This token is unknown, expired or revoked.")
    response = RedirectResponse(_local(after), 303)
    keep(request, response, *begun)
    return response


def _form(request: Request, after: str, refused: str) -> Response:
    words = {"after": _local(after), "refused": refused, "nonce": request.state.nonce}
    shown = pages_of(request).show("sign_in.html.j2", words)
    return HTMLResponse(shown, 401 if refused else 200)


def _local(address: str) -> str:
    """Return a path of this site; links to other sites are dropped."""
    is_ours = address.startswith("/") and not address.startswith(("//", "/\\"))
    return address if is_ours and address.isprintable() else urls.BOARD
