"""Access control of the API: tokens, sessions, Host header, and body size."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Annotated, Any

from fastapi import Depends, Request, Response
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as Connection

from orchestrator.api.errors import (
    BodyTooLargeError,
    ForbiddenError,
    HostRefusedError,
    UnauthenticatedError,
    answer_known,
)
from orchestrator.application.browser_sessions import cookie_of
from orchestrator.application.context import Context
from orchestrator.application.tokens import Credential, check_credential, is_valid
from orchestrator.domain.caller_identity import SOCKET, Caller, Person, Scope, missing_scope
from orchestrator.domain.loopback import is_loopback

Guard = Callable[[Credential | None, Scope], Caller]
"""Checks a request's credential against the required scope and returns its caller. Raises
UnauthenticatedError or ForbiddenError.
"""

BODY_LIMIT_BYTES = 1024 * 1024
"""Maximum size of bodies that are not uploads."""

bearer = HTTPBearer(auto_error=False, description="A token of `seatrial token create`.")
"""OpenAPI's description of bearer tokens; `secured` enforces them."""

_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]]+)(?::[0-9]+)?")
_RANK = list(Scope)
_SAFE = frozenset({"GET", "HEAD"})


def token_guard(context: Context) -> Guard:
    """Return the guard of TCP ports, which accepts API tokens and browser sessions.

    The guard raises UnauthenticatedError without a valid credential, and ForbiddenError if its
    scope does not include the needed one.
    """

    def check(given: Credential | None, needed: Scope) -> Caller:
        caller = check_credential(context, given) if given else None
        if caller is None:
            said = "the token is unknown, expired or revoked" if given else "no token was sent"
            raise UnauthenticatedError(f"{said}; send `Authorization: Bearer seatrial_...`")
        if _RANK.index(caller.scope) < _RANK.index(needed):
            raise ForbiddenError(missing_scope(caller, needed))
        return caller

    return check


def credential_of(request: Request) -> Credential | None:
    """Return the request's credential: a token, or for safe methods also a session; else None."""
    given = any_credential_of(request)
    if given is not None and given.is_session and request.method not in _SAFE:
        return None  # another site can make a browser send a request with our cookie
    return given


def any_credential_of(request: Request) -> Credential | None:
    """Return the request's credential: a token, else a session, else None."""
    scheme, _, secret = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return Credential(secret.strip()) if secret.strip() else None
    session = request.cookies.get(cookie_of(request.headers.get("host", "")))
    return Credential(session, is_session=True) if session else None


def stays_allowed(request: Request) -> Callable[[], bool]:
    """Return a function that checks later whether the request's credential is still valid.

    The check does not count as a use of the credential.
    """
    context, given = request.app.state.context, credential_of(request)
    if request.app.state.guard is None:
        return lambda: True
    return lambda: given is not None and is_valid(context, given)


def secured(needed: Scope, *, body_limit_bytes: int | None = BODY_LIMIT_BYTES) -> type[APIRoute]:
    """Return a route class that checks the scope before the body is read.

    Args:
        needed: The scope that a caller must have.
        body_limit_bytes: Maximum size of the body, which is buffered; None: the route reads it.
    """

    class Secured(APIRoute):
        def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
            handler = super().get_route_handler()

            async def guarded(request: Request) -> Response:
                guard: Guard | None = request.app.state.guard
                if guard is not None:
                    await run_in_threadpool(guard, credential_of(request), needed)
                if body_limit_bytes is not None:
                    request = await _with_body(request, body_limit_bytes)
                return await handler(request)

            return guarded

    return Secured


async def _with_body(request: Request, limit_bytes: int) -> Request:
    """Return the request with its whole body buffered."""
    parts = [part async for part in bounded(request, limit_bytes)]
    whole: Message = {"type": "http.request", "body": b"".join(parts), "more_body": False}
    unread = [whole]

    async def receive() -> Message:
        return unread.pop() if unread else await request.receive()

    return Request(request.scope, receive)


async def bounded(request: Request, limit_bytes: int) -> AsyncIterator[bytes]:
    """Yield the body in pieces.

    Raises BodyTooLargeError, at once if the declared length is too large.
    """
    refusal = f"at most {limit_bytes} bytes are taken here"
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced[:19]) > limit_bytes:
        raise BodyTooLargeError(refusal)
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit_bytes:
            raise BodyTooLargeError(refusal)
        yield chunk


class HostNameCheck:
    """Rejects requests for another host name (DNS rebinding)."""

    def __init__(self, app: ASGIApp, *, allowed: tuple[str, ...] = ()) -> None:
        """Store the host names to accept, without ports, in addition to the loopback's."""
        self._app = app
        self._allowed = {_bracketed(name.lower()) for name in allowed}

    async def __call__(self, scope: Connection, receive: Receive, send: Send) -> None:
        """Pass the request on, or reject it."""
        if scope["type"] == "http":
            named = Headers(scope=scope).getlist("host")
            if len(named) != 1 or not self._is_ours(_name(named[0])):
                said = ", ".join(named)[:200] or "missing"
                error = HostRefusedError(
                    f"the Host header is {said!r}, which is no name of this server"
                )
                await answer_known(scope["path"], error)(scope, receive, send)
                return
        await self._app(scope, receive, send)

    def _is_ours(self, name: str) -> bool:
        return name in self._allowed or is_loopback(name)


def _name(host: str) -> str:
    """Return the host name without its port, lower case; empty for an invalid header."""
    found = _HOST.fullmatch(host)
    return found[1].lower() if found else ""


def _bracketed(name: str) -> str:
    return f"[{name}]" if ":" in name and not name.startswith("[") else name


def _caller(request: Request) -> Person:
    guard: Guard | None = request.app.state.guard
    if guard is None:
        return Person(request.app.state.operator, SOCKET)
    return guard(credential_of(request), Scope.READ).person


CallerDep = Annotated[Person, Depends(_caller)]
"""Identity of the caller, from the credential and never from names in a body."""
