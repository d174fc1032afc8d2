"""The API and the pages behind one port."""

from __future__ import annotations

from starlette.types import ASGIApp, Receive, Scope, Send

_API = ("/api/", "/docs/", "/openapi.json/", "/healthz/", "/readyz/", "/metrics/")


class AsgiDispatch:
    """Gives each request to the application that its path belongs to."""

    def __init__(self, api: ASGIApp, pages: ASGIApp) -> None:
        self._api = api
        self._pages = pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer as that one does."""
        is_page = scope["type"] == "http" and not f"{scope['path']}/".startswith(_API)
        await (self._pages if is_page else self._api)(scope, receive, send)
