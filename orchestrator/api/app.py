"""The REST application under ``/api/v1``: routers, errors, health, metrics, OpenAPI document."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as Connection

import orchestrator
from orchestrator.api import controller_info, errors, events, openapi, prometheus
from orchestrator.api.audit_calls import AuditCalls
from orchestrator.api.conditional_reads import ConditionalReads
from orchestrator.api.safe_methods import HeadAsGet, NoneMatchAny
from orchestrator.api.security import Guard, HostNameCheck
from orchestrator.application.context import Context
from orchestrator.domain.caller_identity import SOCKET, Person

PREFIX = "/api/v1"
_ROUTERS = (
    *("runs:writing", "runs:reading", "events:router", "logs:router", "reports:router"),
    *(
        "runs:router",
        "payloads:reading",
        "payloads:writing",
        "controller_info:router",
        "tokens:router",
        "tokens:session_router",
    ),
    *("ingest:router", "channels:reading", "channels:writing", "machines:reading"),
    *("machines:writing", "costs:reading", "costs:writing", "reports:linting", "reports:exporting"),
    *("runs:annotations_reading", "runs:annotations_writing", "history:reading", "history:writing"),
    *("known_issues:reading", "known_issues:writing", "gates:reading", "gates:writing"),
    *("gate_signoff:reading", "gate_signoff:writing", "gate_signoff:keeping"),
    *("schedules:reading", "schedules:running", "schedules:writing"),
    *("quarantines:reading", "quarantines:writing", "history:series_reading"),
    *("retests:reading", "retests:writing", "prune:router", "audit:router"),
)
"""Modules of this package with their routers, in the order of the OpenAPI document."""
_MODULES = {
    "runs/": "runs",
    "runs/log": "logs",
    "runs/tests": "logs",
    "runs/artifacts": "logs",
    "runs/reports": "reports",
    "runs/export": "reports",
    "runs/annotations": "runs",
    "runs/slowest-tests": "history",
    "compare": "runs",
    "sessions": "tokens",
    "benchmarks": "history",
    "failure-groups": "history",
    "tests": "history",
    "aliases": "history",
    "verdicts": "gates",
} | dict.fromkeys(("waivers", "payload-reviews", "approvals", "keys", "keyring"), "gate_signoff")
"""Modules of the routes that commands read, where the module's name differs from the resource's."""
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
    only: str | None = None,
) -> FastAPI:
    """Make the application.

    Args:
        context: What the operations work with.
        guard: Checks tokens, on TCP ports; None on the socket, which its file mode protects.
        allowed_hosts: Host names that a TCP port accepts in addition to the loopback's.
        revision: Returns the revision of the database's schema, for ``/readyz``.
        operator: Name of the caller where no token is asked for: the operating-system user.
        only: The one module whose routes are needed (see `module_of`); None for all of them.

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
    app.state.figures = prometheus.RequestFigures()
    _include_routers(app, only)
    errors.install(app)
    openapi.install(app)
    caller = Person(operator, SOCKET) if guard is None else None
    app.add_middleware(HeadAsGet)
    app.add_middleware(AuditCalls, context=context, caller=caller, prefix=PREFIX)
    app.add_middleware(ConditionalReads, context=context, guard=guard, prefix=f"{PREFIX}/")
    app.add_middleware(CarefulHeaders)
    app.add_middleware(NoneMatchAny)
    app.add_middleware(prometheus.CountRequests, figures=app.state.figures)
    if guard is not None:
        app.add_middleware(HostNameCheck, allowed=allowed_hosts)
    return app


def module_of(path: str) -> str | None:
    """Return the module with the routes of a path, for `create_app`; None if all are needed.

    Declaring the routes of every module takes longer than answering one request.
    """
    noun, *below = path.removeprefix(f"{PREFIX}/").split("/")
    if noun == "runs":
        # runs/RUN/NOUN..., or runs/RUN/cells/CELL/NOUN...
        inner = "".join(below[3:4] if below[1:2] == ["cells"] else below[1:2])
        return _MODULES.get(f"runs/{inner}")
    own = noun.replace("-", "_")
    known = any(place.startswith(f"{own}:") for place in _ROUTERS)
    return _MODULES.get(noun, own if known else None)


def _include_routers(app: FastAPI, only: str | None) -> None:
    for place in _ROUTERS:
        module, _, router = place.partition(":")
        if only in (None, module):
            routes = import_module(f"orchestrator.api.{module}")
            app.include_router(getattr(routes, router), prefix=PREFIX)
    app.include_router(controller_info.health)
    app.include_router(prometheus.router)


def _operation_id(route: APIRoute) -> str:
    """Return the function's name, which is stable when paths or tags change."""
    return route.name


class CarefulHeaders:
    """Adds security headers to responses that do not set them."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Connection, receive: Receive, send: Send) -> None:
        """Answer as the application does, and add the headers that it did not set."""

        async def careful(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _CAREFUL.items():
                    headers.setdefault(name, value)
                if scope["path"].startswith(PREFIX):
                    headers.setdefault("Cache-Control", "no-store")
            await send(message)

        await self._app(scope, receive, careful if scope["type"] == "http" else send)
