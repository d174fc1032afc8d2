"""Bounds of what a credential or an address may ask of a port in a minute, and of how many wait."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from http import HTTPStatus
from ipaddress import IPv6Address, ip_network
from threading import Lock

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as Connection

from orchestrator.api.security import any_credential_of
from orchestrator.application.browser_sessions import digest_of
from orchestrator.application.credentials import (
    BusyError,
    TooManyRequestsError,
    can_be_guessed,
    watching_credentials,
)

WINDOW_S = 60
_HEALTH = frozenset({"/healthz", "/readyz"})
_KEPT = 10_000
"""Maximum counted clients; the ones that came first are forgotten."""
MOST_WAITING = 96
"""Reads that may wait for the beginning of their answers: about a second of a controller's work."""
_READS = frozenset({"GET", "HEAD"})
_STREAM = re.compile(r".*/runs/[^/]+/events")
"""Many begin at once where a controller starts again; each then costs little."""
_BUSY = "too many requests wait for their answers; send this one again in a second"
_IPV6_NETWORK = 64
"""Bits of an IPv6 address that belong to one subscriber."""


@dataclass(slots=True)
class _Count:
    began: datetime
    used: int = 0


@dataclass(slots=True)
class _Counts:
    """What each client has used of a limit in its present minute."""

    name: str
    limit: int
    known: dict[str, _Count] = field(default_factory=dict)

    def of(self, client: str, at: datetime) -> _Count:
        """Return the client's count, a new one after a minute."""
        count = self.known.pop(client, None)
        if count is None or not 0 <= (at - count.began).total_seconds() < WINDOW_S:
            count = _Count(at)
        self.known[client] = count
        if len(self.known) > _KEPT:
            del self.known[next(iter(self.known))]
        return count

    def is_used_up(self, count: _Count) -> bool:
        """Whether the client has to wait."""
        return count.used >= self.limit

    def headers(self, count: _Count, at: datetime) -> dict[str, str]:
        """Return the headers that state a client's limit (draft-ietf-httpapi-ratelimit-headers)."""
        left = max(self.limit - count.used, 0)
        return {
            "RateLimit-Policy": f'"{self.name}";q={self.limit};w={WINDOW_S}',
            "RateLimit": f'"{self.name}";r={left};t={_wait_s(count, at)}',
        }


def _wait_s(count: _Count, at: datetime) -> int:
    return max(math.ceil(WINDOW_S - (at - count.began).total_seconds()), 1)


class RequestLimits:
    """Answers 429 to a client that has used up its minute, in place of an application.

    A read that would wait behind too many others gets 503 at once, instead of a late answer.

    A credential that was accepted counts for itself. Everything else counts for the address: a
    credential that is not known yet, and each one that is refused, wherever in the request it came.
    Only secrets that somebody has chosen are refused unseen: 256 random bits cannot be guessed.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        now: Callable[[], datetime],
        requests: int,
        guesses: int,
        refuse: Callable[[Connection, TooManyRequestsError | BusyError], ASGIApp],
    ) -> None:
        """Store the limits.

        Args:
            app: The application.
            now: The clock.
            requests: Maximum requests in a minute.
            guesses: Maximum refused credentials of an address in a minute.
            refuse: Returns what answers a request that was refused.
        """
        self._app = app
        self._refuse = refuse
        self.now = now
        self.requests = _Counts("requests", requests)
        self.guesses = _Counts("guesses", guesses)
        self.accepted: dict[str, None] = {}
        self.waiting = 0
        self.lock = Lock()

    async def __call__(self, scope: Connection, receive: Receive, send: Send) -> None:
        """Answer 429 or 503, or as the application does. Checks of health are not counted."""
        if scope["type"] != "http" or scope["path"] in _HEALTH:
            await self._app(scope, receive, send)
            return
        given = any_credential_of(Request(scope))
        named = digest_of(given.secret) if given else ""
        request = _LimitedRequest(self, _address(scope))
        with self.lock:
            client = named if named in self.accepted else request.address
            try:
                request.count(self.requests, client, "requests")
                if scope["method"] in _READS and not _STREAM.fullmatch(scope["path"]):
                    request.wait()
            except (TooManyRequestsError, BusyError) as error:
                app = self._refuse(scope, error)
            else:
                app = self._app

        async def limited(message: Message) -> None:
            if message["type"] == "http.response.start":
                with self.lock:
                    request.answer()
                    told = request.headers(client, message["status"])
                MutableHeaders(scope=message).update(told)
            await send(message)

        try:
            with watching_credentials(request):
                await app(scope, receive, limited)
        finally:
            with self.lock:
                request.answer()


@dataclass(slots=True)
class _LimitedRequest:
    """What one request has used of its client's limits."""

    limits: RequestLimits
    address: str
    taken: dict[str, _Count] = field(default_factory=dict)
    """Where each credential was counted, by its digest."""
    refused: _Counts | None = None
    is_waiting: bool = False
    is_busy: bool = False
    """Whether it is refused since too many wait."""

    def wait(self) -> None:
        """Count as waiting, under the lock. Raises BusyError."""
        if self.limits.waiting >= MOST_WAITING:
            self.is_busy = True
            raise BusyError(_BUSY)
        self.limits.waiting += 1
        self.is_waiting = True

    def answer(self) -> None:
        """Count as answered, under the lock; does nothing the second time."""
        self.limits.waiting -= self.is_waiting
        self.is_waiting = False

    def count(self, counts: _Counts, client: str, what: str) -> _Count:
        """Count for a client, under the lock. Raises TooManyRequestsError."""
        at = self.limits.now()
        count = counts.of(client, at)
        if counts.is_used_up(count):
            self.refused = counts
            wait_s = _wait_s(count, at)
            raise TooManyRequestsError(
                f"more than {counts.limit} {what} in a minute; wait {wait_s} s"
            )
        count.used += 1
        return count

    def headers(self, client: str, status: int) -> dict[str, str]:
        """Return the headers of a response, under the lock."""
        at, counts = self.limits.now(), self.limits.requests
        if status == HTTPStatus.TOO_MANY_REQUESTS and self.refused is not None:
            counts = self.refused
            client = self.address if counts is self.limits.guesses else client
        count = counts.of(client, at)
        told = counts.headers(count, at)
        if status == HTTPStatus.TOO_MANY_REQUESTS:
            told["Retry-After"] = str(_wait_s(count, at))
        elif self.is_busy:
            told["Retry-After"] = "1"
        return told

    def begins(self, secret: str) -> None:
        """Count a secret that may be a guess before it is checked. Raises TooManyRequestsError."""
        digest = digest_of(secret)
        with self.limits.lock:
            if digest in self.taken or digest in self.limits.accepted or not can_be_guessed(secret):
                return
            what = "credentials of this address were refused"
            self.taken[digest] = self.count(self.limits.guesses, self.address, what)

    def ends(self, secret: str, *, is_accepted: bool) -> None:
        """Remember whether a secret was accepted; one that was is no guess."""
        digest, accepted = digest_of(secret), self.limits.accepted
        with self.limits.lock:
            accepted.pop(digest, None)
            if not is_accepted:
                return
            accepted[digest] = None
            if len(accepted) > _KEPT:
                del accepted[next(iter(accepted))]
            if (count := self.taken.pop(digest, None)) is not None:
                count.used -= 1


def _address(scope: Connection) -> str:
    """Return the client's address; of IPv6 its network, whose every address one client may have.

    Whatever else a proxy passes on as an address counts together.
    """
    address: str = (scope.get("client") or ("",))[0].partition("%")[0]
    if ":" not in address:
        return address
    try:
        found = IPv6Address(address)
    except ValueError:
        return ""
    return str(found.ipv4_mapped or ip_network((found, _IPV6_NETWORK), strict=False))
