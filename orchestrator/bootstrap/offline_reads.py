"""Offline reads: REST answered within a command's process, from a home without a controller."""

from __future__ import annotations

import asyncio

import httpx

from orchestrator.adapters.files.home_folder import system_user
from orchestrator.api.app import create_app, module_of
from orchestrator.bootstrap.controller_wiring import open_to_read
from orchestrator.cli.errors import RefusedError
from orchestrator.config import Settings
from orchestrator.store.errors import StoreError


class StoredReads(httpx.BaseTransport):
    """A transport that answers with the home's REST application over a read-only database."""

    def __init__(self, settings: Settings) -> None:
        """Open the database. Raises RefusedError if its schema is of another version."""
        try:
            self._database, context = open_to_read(settings)
        except StoreError as error:
            raise RefusedError(str(error)) from error
        self._context = context
        self._made: dict[str | None, httpx.ASGITransport] = {}
        self._runner = asyncio.Runner()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Return the response, with the same bytes as a controller's."""
        return self._runner.run(self._answer(request))

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        answer = await self._application(request.url.path).handle_async_request(request)
        body = b"".join([part async for part in answer.aiter_raw()])
        return httpx.Response(
            answer.status_code, headers=answer.headers, stream=httpx.ByteStream(body)
        )

    def _application(self, path: str) -> httpx.ASGITransport:
        """Return the application with the routes of the path."""
        module = module_of(path)
        if module not in self._made:
            app = create_app(self._context, guard=None, operator=system_user(), only=module)
            self._made[module] = httpx.ASGITransport(app, raise_app_exceptions=False)
        return self._made[module]

    def close(self) -> None:
        """Close the database."""
        self._runner.close()
        self._database.close()
