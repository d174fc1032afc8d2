"""REST answered in the process of a command, from the files of a home that no controller holds."""

from __future__ import annotations

import asyncio

import httpx

from orchestrator.adapters.files.home_folder import system_user
from orchestrator.api.app import create_app
from orchestrator.bootstrap.controller_wiring import is_embedded, open_to_read
from orchestrator.cli.wiring import RefusedError
from orchestrator.config import Settings
from orchestrator.store.database import Database
from orchestrator.store.errors import StoreError


class StoredReads(httpx.BaseTransport):
    """The application of the home's socket over a database that is opened to read only."""

    def __init__(self, settings: Settings) -> None:
        """Raises RefusedError where there is nothing to read, or tables of another version."""
        if is_embedded(settings) and not (settings.home / "app.db").is_file():
            raise RefusedError(
                f"SEATRIAL_HOME {settings.home} holds no runs yet:"
                " `seatrial init` in a project, then `seatrial run seatrial.yaml`"
            )
        self._database: Database
        try:
            self._database, context = open_to_read(settings)
        except StoreError as error:
            raise RefusedError(str(error)) from error
        app = create_app(context, guard=None, operator=system_user())
        self._answers = httpx.ASGITransport(app, raise_app_exceptions=False)
        self._runner = asyncio.Runner()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Answer with the bytes that a controller would answer with."""
        return self._runner.run(self._answer(request))

    async def _answer(self, request: httpx.Request) -> httpx.Response:
        answer = await self._answers.handle_async_request(request)
        body = b"".join([part async for part in answer.aiter_raw()])
        return httpx.Response(
            answer.status_code, headers=answer.headers, stream=httpx.ByteStream(body)
        )

    def close(self) -> None:
        """Close the database."""
        self._runner.close()
        self._database.close()
