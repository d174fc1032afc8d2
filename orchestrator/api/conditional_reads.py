"""Conditional requests: 304 where nothing changed since an answer, 412 where something did.

An ETag has two parts, `"READ.VERSION"`. READ is a digest of everything that the answer is made
from: the process, the credential, the address, and the mark that every change of the database
changes. VERSION is the number of the latest change of the one resource at the address; If-Match
compares it, in the transaction of the change.
"""

from __future__ import annotations

import hashlib
import re
import secrets

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as Connection

from orchestrator.api.errors import ForbiddenError, UnauthenticatedError, UnmatchedError
from orchestrator.api.security import Guard, credential_of
from orchestrator.application.context import Context, noting_sources
from orchestrator.application.credential_watch import TooManyRequestsError
from orchestrator.domain.caller_identity import Scope
from orchestrator.store.audit_recorder import ExpectedVersion
from orchestrator.store.errors import StoreError

AGE_S = 10
"""Seconds for which an answer is current where only the time goes on: ages, and costs."""
_PROCESS = secrets.token_hex(16)
"""Another version of the program, or other settings, answer differently."""
_SAFE = frozenset({"GET", "HEAD"})
_NEGOTIATED = ("accept", "host", "hx-request")
_TAG = re.compile(r'"[0-9a-f]{32}\.([0-9]+)"')
_VERSIONED = re.compile(r"(?:schedules|gates)/[^/]+")
_NEVER_TAGGED = re.compile(
    r"/static/.*|.*/runs/.*/(?:log(?:/raw)?|artifacts/[^/]+)|.*/runs/[^/]+/events"
)
"""Files and streams, for which the mark need not be read."""
_CHANGED = re.compile(r"((?:schedules|gates)/[^/]+)(?:/(?:pause|resume))?")


class ConditionalReads:
    """Gives answers from the database an ETag, and answers 304 while it is current.

    The credential is checked for each 304; the ETag is of one credential, so that nobody is told
    of what only somebody else may read, and a form's CSRF value stays with its session.
    """

    def __init__(
        self, app: ASGIApp, *, context: Context, guard: Guard | None, prefix: str = ""
    ) -> None:
        """`prefix` is what the application's paths begin with; others have no ETag."""
        self._app = app
        self._context = context
        self._guard = guard
        self._prefix = prefix

    async def __call__(self, scope: Connection, receive: Receive, send: Send) -> None:
        """Answer 304, or as the application does."""
        is_read = scope["type"] == "http" and scope["method"] in _SAFE
        path = scope["path"] if is_read else ""
        if not is_read or not path.startswith(self._prefix) or _NEVER_TAGGED.fullmatch(path):
            await self._app(scope, receive, send)
            return
        tag, is_current = await run_in_threadpool(self._look, Request(scope))
        if is_current:
            headers = {"ETag": tag, "Cache-Control": "no-store"}
            await Response(status_code=304, headers=headers)(scope, receive, send)
            return

        async def tagged(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == 200:
                headers = MutableHeaders(scope=message)
                if tag and sources.is_stored and "content-length" in headers:
                    headers.setdefault("ETag", tag)
            await send(message)

        with noting_sources() as sources:
            await self._app(scope, receive, tagged)

    def _look(self, request: Request) -> tuple[str, bool]:
        """Return the ETag, empty if there is none, and whether the client has that answer."""
        given = credential_of(request)
        if self._guard is not None and given is None:
            return "", False
        try:
            tag = self._tag(request, given.secret if given else "")
            if _read_part(tag) not in _read_parts(request.headers):
                return tag, False
            if self._guard is not None:
                self._guard(given, Scope.READ)
        except (StoreError, UnauthenticatedError, ForbiddenError, TooManyRequestsError):
            return "", False  # the application says why
        return tag, True

    def _tag(self, request: Request, secret: str) -> str:
        path = request.scope["path"].removeprefix(self._prefix).strip("/")
        state = self._context.stores.changes.state(path if _VERSIONED.fullmatch(path) else "")
        parts = (
            *(_PROCESS, secret, state.mark, request.scope["path"], request.url.query),
            str(self._context.clock.now().timestamp() // AGE_S),
            *(request.headers.get(name, "") for name in _NEGOTIATED),
        )
        digest = hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:32]
        return f'"{digest}.{state.version}"'


def _read_part(tag: str) -> str:
    return tag.partition(".")[0]


def _read_parts(headers: Headers) -> set[str]:
    """Return the first parts of If-None-Match; a proxy that compresses may have added a W/."""
    return {_read_part(found[0]) for found in _TAG.finditer(headers.get("if-none-match", ""))}


def expected_version(scope: Connection, prefix: str) -> ExpectedVersion | None:
    """Return what If-Match of a change says; None without it, and for `*`: what exists is changed.

    Only whole, strong tags count (RFC 9110, 13.1.1).

    Raises UnmatchedError at an address that is no resource with an ETag.
    """
    said = [one.strip() for one in ",".join(Headers(scope=scope).getlist("if-match")).split(",")]
    if said in ([""], ["*"]):
        return None
    found = _CHANGED.fullmatch(scope["path"].removeprefix(prefix).strip("/"))
    if found is None:
        raise UnmatchedError("If-Match is for changes of one schedule or of a gate's policy")
    tags = [tag for one in said if (tag := _TAG.fullmatch(one))]
    return ExpectedVersion(found[1], frozenset(int(tag[1]) for tag in tags))
