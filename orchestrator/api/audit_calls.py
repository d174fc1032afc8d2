"""Entries of the audit log for the calls of an application."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as Connection

from orchestrator.api.conditional_reads import expected_version
from orchestrator.api.errors import UnmatchedError, answer_known
from orchestrator.application.context import Context
from orchestrator.application.request_audit import RequestAudit
from orchestrator.domain.caller_identity import Person
from orchestrator.store.audit_recorder import Call, recording

_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_LONGEST = 300
_LONGEST_ADDRESS = 64
"""Of an IPv6 address with its zone."""
_PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")
_LAST_PARAMETER = re.compile(r"^(.*\})(/[^{}]*)?$")
CHANGES_NOTHING = frozenset(
    {"plan", "plan_again", "plan_bisect", "lint_documents", "dry_run_gate", "try_text"}
)
"""Operations that are sent as POST for their body, and change nothing."""


class AuditCalls:
    """Records calls that change something, and refused or failed calls; not 404 and 422."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        context: Context,
        caller: Person | None = None,
        prefix: str = "",
        sign_in: str = "",
        resources: Mapping[str, str] | None = None,
    ) -> None:
        """Store the settings.

        Args:
            app: The application.
            context: What the operations work with.
            caller: Who calls where no token is asked for; None where tokens are.
            prefix: What the paths of the application begin with.
            resources: Paths of routes with the path that names what they change, if it is another.
            sign_in: The path to which an issuer sends browsers back: a GET that changes something.
        """
        self._app = app
        self._context = context
        self._audit = RequestAudit(context)
        self._caller = caller
        self._prefix = prefix
        self._sign_in = sign_in
        self._resources = resources or {}

    async def __call__(self, scope: Connection, receive: Receive, send: Send) -> None:
        """Answer as the application does; the entry is written before the answer begins."""
        if scope["type"] != "http" or (scope["method"] in _SAFE and scope["path"] != self._sign_in):
            await self._app(scope, receive, send)
            return
        call = self._call(scope)
        try:
            call.expected = expected_version(scope, self._prefix)
        except UnmatchedError as error:
            await answer_known(scope["path"], error)(scope, receive, send)
            return
        is_ended = False

        async def end(status: int) -> None:
            nonlocal is_ended
            if not is_ended and call.operation() not in CHANGES_NOTHING:
                await run_in_threadpool(self._audit.record, call, self._resource(scope), status)
            is_ended = True

        async def ending(message: Message) -> None:
            if message["type"] == "http.response.start":
                await end(message["status"])
            await send(message)

        with recording(call):
            try:
                await self._app(scope, receive, ending)
            except Exception:
                await end(500)
                raise

    def _call(self, scope: Connection) -> Call:
        return Call(
            operation=partial(_operation, scope),
            at=self._context.clock.now(),
            project=self._context.janitor.project,
            address=(scope.get("client") or ("",))[0][:_LONGEST_ADDRESS],
            agent=Headers(scope=scope).get("user-agent", "")[:_LONGEST],
            caller=self._caller,
        )

    def _resource(self, scope: Connection) -> str:
        """Return the path of what is changed: up to the last name in it, or all of it."""
        path = str(getattr(scope.get("route"), "path", "") or scope["path"])
        path = self._resources.get(path, path)
        found = _LAST_PARAMETER.match(path)
        named = scope.get("path_params", {})
        path = _PARAMETER.sub(
            lambda one: str(named.get(one[1], one[0])), found[1] if found else path
        )
        return path.removeprefix(self._prefix).strip("/")[:_LONGEST]


def _operation(scope: Connection) -> str:
    """Return the operation's id; the method for an address that is none."""
    return str(getattr(scope.get("route"), "name", "") or scope["method"])
