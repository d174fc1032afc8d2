"""Rules of RFC 9110 for reads: HEAD answers as GET, and `If-None-Match: *` is answered 304."""

from __future__ import annotations

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as Connection

_SAFE = frozenset({"GET", "HEAD"})
_OF_A_BODY = (b"content-length", b"content-type", b"content-encoding", b"content-disposition")


class HeadAsGet:
    """Answers HEAD as GET without the body, if no route handles HEAD itself."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Connection, receive: Receive, send: Send) -> None:
        """Pass the request on; if HEAD is refused as a method, pass it on again as GET."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return
        is_refused = False

        async def unless_refused(message: Message) -> None:
            nonlocal is_refused
            is_refused = is_refused or message.get("status") == 405
            if not is_refused:
                await send(message)

        async def without_body(message: Message) -> None:
            if message["type"] == "http.response.start":
                await _end(send, message)

        await self._app({**scope}, receive, unless_refused)
        if is_refused:
            as_get = {**scope, "method": "GET"}
            try:
                await self._app(as_get, receive, without_body)
            finally:
                scope.update(as_get | {"method": "HEAD"})


class NoneMatchAny:
    """Answers 304 to `If-None-Match: *` if the application answers 200 (RFC 9110, 13.1.2)."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Connection, receive: Receive, send: Send) -> None:
        """Pass the request on; answer 304 to a read with that header if the resource exists."""
        is_read = scope["type"] == "http" and scope["method"] in _SAFE
        if not is_read or Headers(scope=scope).get("if-none-match", "").strip() != "*":
            await self._app(scope, receive, send)
            return
        is_over = False

        async def unmodified(message: Message) -> None:
            nonlocal is_over
            if message["type"] == "http.response.start" and message["status"] == 200:
                is_over = True
                kept = [one for one in message["headers"] if one[0].lower() not in _OF_A_BODY]
                await _end(send, {**message, "status": 304, "headers": kept})
            elif not is_over:
                await send(message)

        await self._app(scope, receive, unmodified)


async def _end(send: Send, start: Message) -> None:
    """End a response after its headers, because an event stream would not end by itself."""
    await send(start)
    await send({"type": "http.response.body", "body": b""})
