"""Sign in and out, with a token or at an OpenID Connect issuer."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Callable
from typing import Annotated, TypeVar
from urllib.parse import urlsplit

from anyio import CapacityLimiter, to_thread
from fastapi import APIRouter, Form, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from starlette.concurrency import run_in_threadpool

from orchestrator.application.browser_sessions import (
    NewSession,
    begin_session_at_issuer,
    cookie_of,
    end_session,
)
from orchestrator.application.context import Context
from orchestrator.application.ports.identity_provider import (
    REQUEST_LIFE_S,
    AuthorizationRequest,
    IdentityProvider,
    IssuerUnreachableError,
    SignInRefusedError,
)
from orchestrator.application.tokens import sign_in_with_token
from orchestrator.dashboard import urls
from orchestrator.dashboard.responses import PageMissingError, pages_of
from orchestrator.dashboard.session import (
    Viewer,
    check_site,
    forget,
    is_encrypted,
    keep,
    needs,
)
from orchestrator.domain.caller_identity import Scope
from orchestrator.store.audit_recorder import explain

logger = logging.getLogger(__name__)
router = APIRouter()
T = TypeVar("T")
_UNKNOWN = (
    "This token is unknown, expired or revoked. A link that `seatrial serve` prints signs in once,"
    " in its first minutes."
)
THREADS = 4
"""Maximum threads that wait for the issuer at once."""


@router.get(urls.SIGN_IN)
async def show_sign_in(
    request: Request,
    token: str = "",
    next: str = urls.BOARD,  # noqa: A002
    project: str = "",
) -> Response:
    """Show the sign-in form, filled in with the token of the link that `serve` prints.

    A GET request signs nobody in, because any site can make a browser send one.
    """
    return _form(request, next, "", token=token, project=project)


@router.post(urls.SIGN_IN)
async def sign_in(
    request: Request,
    token: Annotated[str, Form()] = "",
    next: Annotated[str, Form()] = urls.BOARD,  # noqa: A002
) -> Response:
    """Start a session with a token. Raises ForeignFormError for another site's form."""
    check_site(request)
    return await _signed_in(request, token, next)


@router.get(urls.SIGN_IN_AT_ISSUER)
async def sign_in_at_issuer(
    request: Request,
    next: str = urls.BOARD,  # noqa: A002
    project: str = "",
) -> Response:
    """Redirect the browser to the issuer with a new authorization request."""
    context: Context = request.app.state.context
    issuer = _issuer(context)
    if project not in ("", context.sign_in.project):
        raise PageMissingError(f"there is no project {project}")
    if urlsplit(context.sign_in.public_url).netloc != request.headers.get("host", ""):
        # The issuer redirects browsers to the public address, so the cookie must be set there.
        address = urls.with_query(urls.SIGN_IN_AT_ISSUER, next=_local(next), project=project)
        return RedirectResponse(f"{context.sign_in.public_url}{address}", 303)
    try:
        made = await _at_issuer(request, issuer.authorize)
    except IssuerUnreachableError as error:
        return _unreachable(request, next, error)
    response = RedirectResponse(made.url, 303)
    _keep_request(request, response, made, _local(next))
    return response


@router.get(urls.SIGNED_IN_AT_ISSUER)
async def signed_in_at_issuer(request: Request) -> Response:
    """Verify the issuer's response to this browser's request, and start a session."""
    context: Context = request.app.state.context
    issuer = _issuer(context)
    made = _kept_request(request)
    if made is None:
        said = "The sign-in was begun in another window, or too long ago. Begin it again."
        return _refused_at_issuer(request, urls.BOARD, said)

    def begin() -> NewSession:
        identity = issuer.identify(
            str(request.url),
            state=made["state"],
            nonce=made["nonce"],
            code_verifier=made["code_verifier"],
        )
        return begin_session_at_issuer(context, identity)

    try:
        session = await _at_issuer(request, begin)
    except SignInRefusedError as error:
        said = f"The sign-in at {issuer.host} was refused: {error}."
        logger.warning("%s", said)
        response = _refused_at_issuer(request, made["next"], said)
    except IssuerUnreachableError as error:
        response = _unreachable(request, made["next"], error)
    else:
        response = await _began(request, session, made["next"])
    response.delete_cookie(_request_cookie(request), path=urls.SIGN_IN_AT_ISSUER, httponly=True)
    return response


@router.post(urls.SIGN_OUT)
async def sign_out(
    request: Request,
    viewer: Annotated[Viewer, needs(Scope.READ)],
) -> Response:
    """End the session, delete its cookie, and redirect to the issuer's logout if there is one."""
    context: Context = request.app.state.context

    def end() -> str | None:
        id_token = end_session(context, viewer.credential.secret)
        issuer = context.sign_in.issuer
        return issuer.logout_url(id_token) if issuer and id_token else None

    away = await _at_issuer(request, end) if viewer.credential.is_session else None
    response: Response = RedirectResponse(urls.SIGN_IN, 303)
    if away is not None:
        # `form-action` allows a form to redirect to this site only, so a page redirects.
        words = {"address": away, "host": _issuer(context).host, "nonce": request.state.nonce}
        response = HTMLResponse(pages_of(request).show("signed_out.html.j2", words))
    forget(request, response)
    return response


async def _signed_in(request: Request, token: str, after: str) -> Response:
    context: Context = request.app.state.context
    session = await run_in_threadpool(sign_in_with_token, context, token.strip())
    if session is None:
        return _form(request, after, _UNKNOWN)
    return await _began(request, session, after)


async def _began(request: Request, session: NewSession, after: str) -> Response:
    """Redirect with the new session's cookie, and end the browser's earlier session."""
    earlier = request.cookies.get(cookie_of(request.headers.get("host", "")))
    if earlier:
        await run_in_threadpool(end_session, request.app.state.context, earlier)
    response = RedirectResponse(_local(after), 303)
    keep(request, response, session)
    return response


async def _at_issuer(request: Request, call: Callable[[], T]) -> T:
    """Call the issuer in one of `THREADS` threads, so that others stay free for pages and REST."""
    limiter: CapacityLimiter = request.app.state.issuer_threads
    return await to_thread.run_sync(call, limiter=limiter)


def _issuer(context: Context) -> IdentityProvider:
    if context.sign_in.issuer is None:
        raise PageMissingError("this controller has no issuer to sign in at")
    return context.sign_in.issuer


def _unreachable(request: Request, after: str, error: IssuerUnreachableError) -> Response:
    logger.error("nobody can sign in: %s", error)
    said = "The issuer cannot be asked now; the controller's log says why. A token signs you in."
    return _refused_at_issuer(request, after, said, status=502)


def _refused_at_issuer(
    request: Request, after: str, refused: str, *, status: int = 401
) -> Response:
    return _form(request, after, refused, status=status, is_of_issuer=True)


def _form(
    request: Request,
    after: str,
    refused: str,
    *,
    status: int = 401,
    is_of_issuer: bool = False,
    token: str = "",
    project: str = "",
) -> Response:
    context: Context = request.app.state.context
    issuer = context.sign_in.issuer
    explain(refused)
    words = {
        "after": _local(after),
        "token": token,
        "project": context.sign_in.project and (project or context.sign_in.project),
        "refused": refused,
        "is_of_issuer": is_of_issuer,
        "host": issuer.host if issuer else "",
        "nonce": request.state.nonce,
    }
    shown = pages_of(request).show("sign_in.html.j2", words)
    return HTMLResponse(shown, status if refused else 200)


def _request_cookie(request: Request) -> str:
    return f"{cookie_of(request.headers.get('host', ''))}_sign_in"


def _keep_request(
    request: Request, response: Response, made: AuthorizationRequest, after: str
) -> None:
    """Store the authorization request in a cookie: the same browser must bring the response."""
    kept = {
        "state": made.state,
        "nonce": made.nonce,
        "code_verifier": made.code_verifier,
        "next": after,
    }
    packed = base64.urlsafe_b64encode(json.dumps(kept).encode()).decode("ascii")
    response.set_cookie(
        _request_cookie(request),
        f"{request.app.state.context.sign_in.mark}{packed}",
        max_age=REQUEST_LIFE_S,
        path=urls.SIGN_IN_AT_ISSUER,
        httponly=True,
        samesite="lax",
        secure=is_encrypted(request),
    )


def project_of_request(request: Request) -> str:
    """Return the project of the browser's pending sign-in; empty for the first project."""
    return request.cookies.get(_request_cookie(request), "").rpartition(".")[0]


def _kept_request(request: Request) -> dict[str, str] | None:
    try:
        packed = request.cookies.get(_request_cookie(request), "").rpartition(".")[2]
        raw = base64.urlsafe_b64decode(packed)
        kept = json.loads(raw)
    except ValueError:
        return None
    names = ("state", "nonce", "code_verifier", "next")
    is_whole = isinstance(kept, dict) and all(
        isinstance(kept.get(name), str) and kept[name] for name in names
    )
    return kept if is_whole else None


def _local(address: str) -> str:
    """Return a path of this site; links to other sites are dropped."""
    is_ours = address.startswith("/") and not address.startswith(("//", "/\\"))
    return address if is_ours and address.isprintable() else urls.BOARD
