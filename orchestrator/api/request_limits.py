"""Limits of a port: requests per credential or address in a minute, and waiting requests."""

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
"""Maximum number of counted clients and accepted secrets; the oldest ones are forgotten."""
MOST_WAITING = 96
"""Maximum reads that wait for their responses to begin: about a second of a controller's work."""
_READS = frozenset({"GET", "HEAD"})
_STREAM = re.compile(r".*/runs/[^/]+/events")
"""Paths of event streams, which do not count as waiting: many begin at once when a controller
restarts, and each costs little.
"""
_BUSY = "too many requests wait for their answers; send this one again in a second"
_IPV6_NETWORK = 64
"""Bits of an IPv6 address that belong to one subscriber."""


@dataclass(slots=True)
class _Count:
    began: datetime
    used: int = 0


@dataclass(slots=True)
class _Counts:
    """Counts by client in its present minute, and their limit."""

    name: str
    limit: int
    known: dict[str, _Count] = field(default_factory=dict)

    def of(self, client: str, at: datetime) -> _Count:
        """Return the client's count of the present minute."""
        count = self.known.pop(client, None)
        if count is None or not 0 <= (at - count.began).total_seconds() < WINDOW_S:
            count = _Count(at)
        self.known[client] = count
        if len(self.known) > _KEPT:
            del self.known[next(iter(self.known))]
        return count

    def is_used_up(self, count: _Count) -> bool:
        """Whether the count has reached the limit."""
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
    """Answers 429 or 503 in place of an application.

    The response is 429 for a client that has used up the limit of a minute, and 503 for a read that
    would wait behind too many others.

    Requests with an accepted credential are counted by credential. All other requests, and each
    refused credential anywhere in a request, are counted by address. Above the limit of refused
    credentials, a secret is not checked, unless it has 256 random bits, because that cannot be
    guessed.
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
            requests: Maximum requests of one client in a minute.
            guesses: Maximum refused credentials of one address in a minute.
            refuse: Returns the application that answers a refused request.
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
        """Answer 429 or 503, or as the application does. Health checks are not counted."""
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
    """Counts one request against its client's limits."""

    limits: RequestLimits
    address: str
    taken: dict[str, _Count] = field(default_factory=dict)
    """The counts in which each credential was counted, by its digest."""
    refused: _Counts | None = None
    is_waiting: bool = False
    is_busy: bool = False
    """Whether the request is refused because too many requests wait."""

    def wait(self) -> None:
        """Count the request as waiting; the caller holds the lock. Raises BusyError."""
        if self.limits.waiting >= MOST_WAITING:
            self.is_busy = True
            raise BusyError(_BUSY)
        self.limits.waiting += 1
        self.is_waiting = True

    def answer(self) -> None:
        """Count the request as answered; the caller holds the lock. Idempotent."""
        self.limits.waiting -= self.is_waiting
        self.is_waiting = False

    def count(self, counts: _Counts, client: str, what: str) -> _Count:
        """Count the request for a client; the caller holds the lock.

        Raises TooManyRequestsError.
        """
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
        """Return the limit headers of the response; the caller holds the lock."""
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
        """Count a secret before it is checked, if it may be a guess.

        Raises TooManyRequestsError.
        """
        digest = digest_of(secret)
        with self.limits.lock:
            if digest in self.taken or digest in self.limits.accepted or not can_be_guessed(secret):
                return
            what = "credentials of this address were refused"
            self.taken[digest] = self.count(self.limits.guesses, self.address, what)

    def ends(self, secret: str, *, is_accepted: bool) -> None:
        """Store whether a secret was accepted; an accepted secret is not counted as a guess."""
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
    """Return the client's IPv4 address or IPv6 network: a client may have every address of it.

    Empty for an invalid address that a proxy passes on, so that all of these are counted together.
    """
    address: str = (scope.get("client") or ("",))[0].partition("%")[0]
    if ":" not in address:
        return address
    try:
        found = IPv6Address(address)
    except ValueError:
        return ""
    return str(found.ipv4_mapped or ip_network((found, _IPV6_NETWORK), strict=False))
