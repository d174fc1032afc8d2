"""The application: REST under ``/api/v1``, and beside it health, figures and documentation."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as Connection

import orchestrator
from orchestrator.api import (
    benchmarks,
    compare,
    costs,
    docs,
    errors,
    events,
    exports,
    figures,
    gate_people,
    gates,
    history,
    ingest,
    known_issues,
    linting,
    logs,
    machines,
    payloads,
    quarantines,
    reports,
    runs,
    schedules,
    service,
    statements,
    tokens,
    trials,
    webhooks,
)
from orchestrator.api.guard import Guard, HostCheck
from orchestrator.application.context import Context

PREFIX = "/api/v1"
_CAREFUL = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
}


def create_app(
    context: Context,
    *,
    guard: Guard | None,
    allowed_hosts: tuple[str, ...] = (),
    revision: Callable[[], str] | None = None,
    operator: str = "operator",
) -> FastAPI:
    """Make the application.

    Args:
        context: What the operations work with.
        guard: Checks tokens, on every TCP port; None on the socket, whose mode is the guard.
        allowed_hosts: Names, beside those of the loopback, that a TCP port is reached by.
        revision: Tells the revision of the database's tables, for ``/readyz``.
        operator: Whose word it is where no token is asked for: the operating-system user's.

    ``app.state.streams.close()`` lets open event streams end when the server stops.
    """
    app = FastAPI(
        title="Seatrial",
        version=orchestrator.__version__,
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        generate_unique_id_function=_operation_id,
        redirect_slashes=False,
    )
    app.state.context = context
    app.state.guard = guard
    app.state.revision = revision
    app.state.operator = operator
    app.state.streams = events.Streams()
    app.state.figures = figures.RequestFigures()
    _include_routers(app)
    errors.install(app)
    docs.install(app)
    app.add_middleware(CarefulHeaders)
    app.add_middleware(figures.CountRequests, figures=app.state.figures)
    if guard is not None:
        app.add_middleware(HostCheck, allowed=allowed_hosts)
    return app


def _include_routers(app: FastAPI) -> None:
    api = (
        *(runs.writing, runs.reading, events.router, logs.router, reports.router, compare.router),
        *(payloads.reading, payloads.writing, service.router, tokens.router, ingest.router),
        *(webhooks.reading, webhooks.writing),
        *(machines.reading, machines.writing, costs.reading, costs.writing, linting.router),
        *(exports.router, statements.reading, statements.writing),
        *(history.reading, history.writing, known_issues.reading, known_issues.writing),
        *(gates.reading, gates.writing),
        *(gate_people.reading, gate_people.writing, gate_people.keeping),
        *(schedules.reading, schedules.running, schedules.writing),
        *(quarantines.reading, quarantines.writing),
        *(benchmarks.reading,),
        *(trials.reading, trials.writing),
    )
    for router in api:
        app.include_router(router, prefix=PREFIX)
    app.include_router(service.health)
    app.include_router(figures.router)


def _operation_id(route: APIRoute) -> str:
    """The function's name: it stays when paths or tags change."""
    return route.name


class CarefulHeaders:
    """Tells browsers to take nothing here for more than it is, unless the answer says more."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Connection, receive: Receive, send: Send) -> None:
        """Answer as the application does, with these headers where it set none."""

        async def careful(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _CAREFUL.items():
                    headers.setdefault(name, value)
                if scope["path"].startswith(PREFIX):
                    headers.setdefault("Cache-Control", "no-store")
            await send(message)

        await self._app(scope, receive, careful if scope["type"] == "http" else send)
