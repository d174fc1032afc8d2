"""Entries of the audit log for calls: changes outside of the database, refusals and failures."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as Connection

from orchestrator.api.conditional_reads import expected_version
from orchestrator.api.errors import UnmatchedError, answer_known
from orchestrator.application.context import Context
from orchestrator.domain.audit import AuditOutcome
from orchestrator.domain.caller_identity import Person
from orchestrator.store.audit_recorder import AuditedChange, Call, recording
from orchestrator.store.errors import StoreError

logger = logging.getLogger(__name__)

REFUSED_A_MINUTE = 60
"""Maximum entries in a minute of one caller's refused or failed calls, and of all calls of unknown
callers together, so that no caller can fill the disk.
"""
_REFUSED = frozenset({401, 403, 409})


@dataclass(slots=True)
class RequestAudit:
    """Writes the audit entries of calls whose operations wrote none; limits those of refusals."""

    context: Context
    _minute_began: datetime | None = field(default=None, init=False)
    _counts: Counter[str] = field(default_factory=Counter, init=False)
    """Numbers of entries in this minute, by the caller's name (empty: all unknown callers)."""

    def record(self, call: Call, resource: str, status: int) -> None:
        """Write the audit entry of a finished request, unless the operation wrote it.

        401, 403 and 409 are refused, 5xx failed; other 4xx changed nothing and are not recorded.
        Entries above the limits of a minute are not written either. A StoreError is logged and not
        raised, so that machines can be terminated without the audit log.
        """
        outcome = AuditOutcome.REFUSED if call.is_refused else _outcome(status)
        if outcome is None or (call.is_recorded and not call.changes and status < 400):
            return
        is_limited = call.caller is None or (status >= 400 and not call.changes)
        if is_limited and self._are_too_many(call):
            return
        changes = call.changes or [AuditedChange(resource)]
        try:
            self.context.stores.audit.add(call, changes, outcome, status)
        except StoreError as error:
            said = "no entry in the audit log for %s (%s, status %d): %s"
            logger.error(said, call.operation(), resource, status, error)

    def _are_too_many(self, call: Call) -> bool:
        """Count an entry of the caller; return whether it is above the limit and only logged."""
        if self._minute_began is None or call.at - self._minute_began >= timedelta(minutes=1):
            self._minute_began = call.at
            self._counts.clear()
        name = call.caller.name if call.caller else ""
        self._counts[name] += 1
        if self._counts[name] <= REFUSED_A_MINUTE:
            return False
        who = repr(name) if name else "an unknown caller"
        logger.warning("refused: %s of %s at %s", call.operation(), who, call.address)
        return True


def _outcome(status: int) -> AuditOutcome | None:
    if status < 400:
        return AuditOutcome.DONE
    if status in _REFUSED:
        return AuditOutcome.REFUSED
    return AuditOutcome.FAILED if status >= 500 else None


_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_LONGEST = 300
_LONGEST_ADDRESS = 64
"""Maximum characters of an address: an IPv6 address with its zone."""
_PARAMETER = re.compile(r"\{(\w+)(?::\w+)?\}")
_LAST_PARAMETER = re.compile(r"^(.*\})(/[^{}]*)?$")
CHANGES_NOTHING = frozenset(
    {"plan", "plan_again", "plan_bisect", "lint_documents", "dry_run_gate", "try_text"}
)
"""POST operations that change nothing; they are POST because they have a body."""


class AuditCalls:
    """Records calls that change something, and refused or failed calls, except 404 and 422."""

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
            caller: The caller where no token is asked for; None if tokens are.
            prefix: Prefix of the application's paths.
            resources: By path of a route, the path of the resource that it changes, if that
                differs.
            sign_in: Path to which an issuer sends browsers back; a GET there changes something.
        """
        self._app = app
        self._context = context
        self._audit = RequestAudit(context)
        self._caller = caller
        self._prefix = prefix
        self._sign_in = sign_in
        self._resources = resources or {}

    async def __call__(self, scope: Connection, receive: Receive, send: Send) -> None:
        """Answer as the application does, and write the audit entry before the response begins."""
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
            project=self._context.project,
            address=(scope.get("client") or ("",))[0][:_LONGEST_ADDRESS],
            agent=Headers(scope=scope).get("user-agent", "")[:_LONGEST],
            caller=self._caller,
        )

    def _resource(self, scope: Connection) -> str:
        """Return the path of the changed resource: up to the last parameter, or all of the path."""
        path = str(getattr(scope.get("route"), "path", "") or scope["path"])
        path = self._resources.get(path, path)
        found = _LAST_PARAMETER.match(path)
        named = scope.get("path_params", {})
        path = _PARAMETER.sub(
            lambda one: str(named.get(one[1], one[0])), found[1] if found else path
        )
        return path.removeprefix(self._prefix).strip("/")[:_LONGEST]


def _operation(scope: Connection) -> str:
    """Return the operation's id; for a path without an operation, the HTTP method."""
    return str(getattr(scope.get("route"), "name", "") or scope["method"])
