"""Bounds of what one credential, or one address, may ask of a port in a minute."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from ipaddress import ip_network

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as Connection

from orchestrator.api.errors import ErrorAnswer, answer
from orchestrator.api.security import any_credential_of
from orchestrator.application.browser_sessions import digest_of
from orchestrator.application.tokens import SeenCredentials, noting_credentials

WINDOW_S = 60
_KEPT = 10_000
"""Maximum counted clients; the ones that came first are forgotten."""
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
        """Return what a client is told of its limit (draft-ietf-httpapi-ratelimit-headers)."""
        left = max(self.limit - count.used, 0)
        return {
            "RateLimit-Policy": f'"{self.name}";q={self.limit};w={WINDOW_S}',
            "RateLimit": f'"{self.name}";r={left};t={_wait_s(count, at)}',
        }


def _wait_s(count: _Count, at: datetime) -> int:
    return max(math.ceil(WINDOW_S - (at - count.began).total_seconds()), 1)


class RequestLimits:
    """Answers 429 to a client that has used up its minute, in place of an application.

    A credential that was accepted counts for itself. Everything else counts for the address: a
    credential that is not known yet, and each one that is refused, wherever in the request it came.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        now: Callable[[], datetime],
        requests: int,
        guesses: int,
        sign_in: str = "",
    ) -> None:
        """Store the limits.

        Args:
            app: The application.
            now: The clock.
            requests: Maximum requests in a minute.
            guesses: Maximum refused credentials of an address in a minute.
            sign_in: The path of the form that takes a token, whatever cookie comes with it.
        """
        self._app = app
        self._now = now
        self._requests = _Counts("requests", requests)
        self._guesses = _Counts("guesses", guesses)
        self._accepted: dict[str, None] = {}
        self._sign_in = sign_in

    async def __call__(self, scope: Connection, receive: Receive, send: Send) -> None:
        """Answer 429, or as the application does."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        at, address = self._now(), _address(scope)
        given = any_credential_of(Request(scope))
        named = digest_of(given.secret) if given else ""
        is_form = scope["method"] == "POST" and scope["path"] == self._sign_in
        is_known = named in self._accepted and not is_form
        guesses = self._guesses.of(address, at)
        requests = self._requests.of(named if is_known else address, at)
        may_guess = not is_known and (is_form or bool(named))
        for counts, count in ((self._guesses, guesses),) * may_guess + (
            (self._requests, requests),
        ):
            if counts.is_used_up(count):
                await _refuse(counts, count, at, scope["path"])(scope, receive, send)
                return
        requests.used += 1
        with noting_credentials() as seen:

            async def limited(message: Message) -> None:
                if message["type"] == "http.response.start":
                    guesses.used += seen.is_refused
                    self._remember(seen)
                    headers = MutableHeaders(scope=message)
                    headers.update(self._requests.headers(requests, at))
                await send(message)

            await self._app(scope, receive, limited)

    def _remember(self, seen: SeenCredentials) -> None:
        for digest, is_accepted in seen.checked.items():
            self._accepted.pop(digest, None)
            if is_accepted:
                self._accepted[digest] = None
        if len(self._accepted) > _KEPT:
            del self._accepted[next(iter(self._accepted))]


def _refuse(counts: _Counts, count: _Count, at: datetime, path: str) -> Response:
    seconds = _wait_s(count, at)
    headers = counts.headers(count, at) | {"Retry-After": str(seconds)}
    refusal = ErrorAnswer(429, "too-many-requests", "There were too many requests", headers)
    what = "credentials of this address were refused" if counts.name == "guesses" else "requests"
    return answer(path, refusal, f"more than {counts.limit} {what} in a minute; wait {seconds} s")


def _address(scope: Connection) -> str:
    """Return the client's address; of IPv6 its network, whose every address one client may have."""
    address: str = (scope.get("client") or ("",))[0].partition("%")[0]
    if ":" not in address:
        return address
    return str(ip_network((address, _IPV6_NETWORK), strict=False))
