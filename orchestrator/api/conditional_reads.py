"""Conditional requests and cached responses.

A response that is made from the database alone is cached for its credential and URL, with an ETag,
`"ANSWER.VERSION"`. It is current for ten seconds at most, and only while the database's change mark
is the same, because every change of the database changes the mark. While it is current, a request
with a matching If-None-Match is answered 304, and other requests get the cached response. Requests
for a response that is being made wait for it.

VERSION is the number of the latest change of the resource at the URL; If-Match compares it, in the
transaction of the change.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import secrets
from collections import OrderedDict
from dataclasses import dataclass
from datetime import datetime, timedelta
from threading import Lock

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as Connection

from orchestrator.api.errors import ForbiddenError, UnauthenticatedError, UnmatchedError
from orchestrator.api.security import Guard, credential_of
from orchestrator.application.context import Context, noting_sources
from orchestrator.application.credentials import TooManyRequestsError
from orchestrator.domain.caller_identity import Scope
from orchestrator.store.audit_recorder import ExpectedVersion
from orchestrator.store.changes import ChangeState
from orchestrator.store.errors import StoreError

AGE_S = 10
"""Maximum seconds for which a response is current; ages and costs in it change with the time."""
PROGRESS_S = 2
"""Seconds for which a response may lack the progress of a running job, except with `no-cache`."""
_KEPT_BYTES = 16 * 1024**2
_LARGEST_BYTES = 512 * 1024
_MOST_KEPT = 10_000
_SAFE = frozenset({"GET", "HEAD"})
_NEGOTIATED = ("accept", "accept-encoding", "host", "hx-request", "x-forwarded-proto")
_TAG = re.compile(r'"[0-9a-f]{32}\.([0-9]+)"')
_VERSIONED = re.compile(r"(?:schedules|gates)/[^/]+")
_OF_RUN = re.compile(r"runs/([0-9a-hjkmnp-tv-z]{26})(?:/.*)?")
_NEVER_TAGGED = re.compile(
    r"/static/.*|.*/runs/.*/(?:log(?:/raw)?|artifacts/[^/]+)|.*/runs/[^/]+/events"
)
"""Paths of files and streams, which are never cached, so that the mark is not read for them."""
_CHANGED = re.compile(r"((?:schedules|gates)/[^/]+)(?:/(?:pause|resume))?")


@dataclass(slots=True)
class _Answer:
    """A response to one credential at one URL, while it is made and afterwards."""

    state: ChangeState
    """State of the database before the response was made."""
    made_at: datetime
    tag: str
    headers: list[tuple[bytes, bytes]] | None = None
    body: bytes | None = None
    """The body; None if it is not cached, because it is too large or the request is HEAD."""

    @classmethod
    def new(cls, state: ChangeState, at: datetime) -> _Answer:
        return cls(state, at, f'"{secrets.token_hex(16)}.{state.version}"')

    def is_current(self, state: ChangeState, at: datetime, *, progress: timedelta) -> bool:
        """Whether nothing has changed since, except for jobs' progress within that time."""
        age = at - self.made_at
        if self.state.mark != state.mark or not timedelta() <= age < timedelta(seconds=AGE_S):
            return False
        return self.state.progress == state.progress or age < progress


class _Recording:
    """Records a response while it is sent."""

    def __init__(self, answer: _Answer) -> None:
        self._answer = answer
        self._parts: list[bytes] = []
        self._is_small = False

    def note(self, message: Message, *, is_stored: bool) -> bool:
        """Add the ETag to a response from the database alone, and record its headers and body.

        Return whether the body is recorded.
        """
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            if message["status"] == 200 and is_stored and "content-length" in headers:
                headers.setdefault("ETag", self._answer.tag)
                if "set-cookie" not in headers:
                    self._answer.headers = list(message["headers"])
                    self._is_small = int(headers["content-length"]) <= _LARGEST_BYTES
        elif self._is_small:
            self._parts.append(message.get("body", b""))
        return self._is_small

    def finish(self) -> bool:
        """Store the recorded body unless it is too large; return whether it is stored."""
        if self._is_small:
            self._answer.body = b"".join(self._parts)
        return self._is_small


class _Answers:
    """The cached responses: the last used ones, up to a maximum number and total size."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._kept: OrderedDict[bytes, _Answer] = OrderedDict()
        self._bytes = 0

    def get(self, key: bytes) -> _Answer | None:
        with self._lock:
            found = self._kept.get(key)
            if found is not None:
                self._kept.move_to_end(key)
            return found

    def keep(self, key: bytes, answer: _Answer) -> None:
        with self._lock:
            self._drop(self._kept.pop(key, None))
            self._kept[key] = answer
            self._bytes += len(answer.body or b"")
            while self._bytes > _KEPT_BYTES or len(self._kept) > _MOST_KEPT:
                self._drop(self._kept.popitem(last=False)[1])

    def _drop(self, answer: _Answer | None) -> None:
        self._bytes -= len(answer.body or b"") if answer else 0


@dataclass(slots=True)
class _Look:
    """The cached or new response for a request."""

    key: bytes
    answer: _Answer
    is_current: bool
    """Whether the response is cached and current; otherwise it must be made."""


class ConditionalReads:
    """Adds ETags to responses from the database, and caches the responses while they are current.

    The credential is checked at each request. A cached response is used for one credential only, so
    that no client gets data of another client, or the CSRF value of another session.
    """

    def __init__(
        self, app: ASGIApp, *, context: Context, guard: Guard | None, prefix: str = ""
    ) -> None:
        """Store the settings; paths that do not begin with `prefix` have no ETag."""
        self._app = app
        self._context = context
        self._guard = guard
        self._prefix = prefix
        self._answers = _Answers()
        self._making: dict[bytes, asyncio.Future[bool]] = {}
        """Responses being made, by key; the result is whether the response is cached."""

    async def __call__(self, scope: Connection, receive: Receive, send: Send) -> None:
        """Answer 304, or with a cached response, or as the application does."""
        is_read = scope["type"] == "http" and scope["method"] in _SAFE
        path = scope["path"] if is_read else ""
        if not is_read or not path.startswith(self._prefix) or _NEVER_TAGGED.fullmatch(path):
            await self._app(scope, receive, send)
            return
        look = await run_in_threadpool(self._look, Request(scope))
        while look is not None and not look.is_current and (made := self._making.get(look.key)):
            if not await asyncio.shield(made):
                break  # not cached: each request makes its own response
            look = await run_in_threadpool(self._look, Request(scope))
        if look is None:
            await self._app(scope, receive, send)
            return
        if look.is_current:
            given = look.answer
            if _read_part(given.tag) in _read_parts(Headers(scope=scope)):
                headers = {"ETag": given.tag, "Cache-Control": "no-store"}
                await Response(status_code=304, headers=headers)(scope, receive, send)
                return
            if given.body is not None and given.headers is not None and scope["method"] == "GET":
                start = {"type": "http.response.start", "status": 200, "headers": given.headers}
                await send(start)
                await send({"type": "http.response.body", "body": given.body})
                return
        await self._make(look, scope, receive, send)

    async def _make(self, look: _Look, scope: Connection, receive: Receive, send: Send) -> None:
        """Answer as the application does, and cache the response for the requests that wait."""
        recording, made = _Recording(look.answer), asyncio.get_running_loop().create_future()
        if scope["method"] == "GET":
            self._making[look.key] = made

        async def recorded(message: Message) -> None:
            is_begin = message["type"] == "http.response.start"
            is_small = recording.note(message, is_stored=sources.is_stored)
            if is_begin and not is_small:
                self._end(look.key, made, is_kept=False)
            elif not is_begin and not message.get("more_body"):
                is_whole = recording.finish() if scope["method"] == "GET" else False
                is_kept = look.answer.headers is not None and (is_whole or not look.is_current)
                if is_kept:
                    self._answers.keep(look.key, look.answer)
                self._end(look.key, made, is_kept=is_kept)
            await send(message)

        try:
            with noting_sources() as sources:
                await self._app(scope, receive, recorded)
        finally:
            self._end(look.key, made, is_kept=False)

    def _end(self, key: bytes, made: asyncio.Future[bool], *, is_kept: bool) -> None:
        if self._making.get(key) is made:
            del self._making[key]
        if not made.done():
            made.set_result(is_kept)

    def _look(self, request: Request) -> _Look | None:
        """Return the cached response if it is current, else a new one; None if not cacheable."""
        given = credential_of(request)
        if self._guard is not None and given is None:
            return None
        path = request.scope["path"].removeprefix(self._prefix).strip("/")
        # The query may name other runs than the path.
        of_run = None if request.url.query else _OF_RUN.fullmatch(path)
        now = self._context.clock.now()
        key = _key(request, given.secret if given else "")
        try:
            state = self._context.stores.changes.state(
                path if _VERSIONED.fullmatch(path) else "", run=of_run[1] if of_run else ""
            )
            kept = self._answers.get(key)
            if kept is None or not kept.is_current(state, now, progress=_patience(request.headers)):
                return _Look(key, _Answer.new(state, now), is_current=False)
            if self._guard is not None:
                self._guard(given, Scope.READ)
        except (StoreError, UnauthenticatedError, ForbiddenError, TooManyRequestsError):
            return None  # the application answers with the error
        return _Look(key, kept, is_current=True)


def _key(request: Request, secret: str) -> bytes:
    parts = (
        *(secret, request.scope["path"], request.url.query),
        *(request.headers.get(name, "") for name in _NEGOTIATED),
    )
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).digest()


def _patience(headers: Headers) -> timedelta:
    """Return how old the jobs' progress in a response may be.

    Zero for requests with ``Cache-Control: no-cache``, and for a part of a page, which is requested
    when something changed, and not requested again.
    """
    is_fresh = "hx-request" in headers or "no-cache" in headers.get("cache-control", "").lower()
    return timedelta(seconds=0 if is_fresh else PROGRESS_S)


def _read_part(tag: str) -> str:
    return tag.partition(".")[0]


def _read_parts(headers: Headers) -> set[str]:
    """Return the first part of each tag in If-None-Match, also of weak tags."""
    return {_read_part(found[0]) for found in _TAG.finditer(headers.get("if-none-match", ""))}


def expected_version(scope: Connection, prefix: str) -> ExpectedVersion | None:
    """Return the versions that If-Match names for a changed resource; None without it or for `*`.

    Weak and incomplete tags are ignored (RFC 9110, 13.1.1).

    Raises UnmatchedError if the path is no resource with an ETag.
    """
    said = [one.strip() for one in ",".join(Headers(scope=scope).getlist("if-match")).split(",")]
    if said in ([""], ["*"]):
        return None
    found = _CHANGED.fullmatch(scope["path"].removeprefix(prefix).strip("/"))
    if found is None:
        raise UnmatchedError("If-Match is for changes of one schedule or of a gate's policy")
    tags = [tag for one in said if (tag := _TAG.fullmatch(one))]
    return ExpectedVersion(found[1], frozenset(int(tag[1]) for tag in tags))
