"""The end of a call: what it changed outside of the database, and how it was refused."""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from orchestrator.application.context import Context
from orchestrator.domain.audit import AuditOutcome
from orchestrator.store.audit_recorder import AuditedChange, Call
from orchestrator.store.errors import StoreError

logger = logging.getLogger(__name__)

REFUSED_A_MINUTE = 60
"""Maximum entries in a minute of one caller's refused or failed calls, and of all calls of unknown
callers together: each could fill the disk with them.
"""
_REFUSED = frozenset({401, 403, 409})


@dataclass(slots=True)
class RequestAudit:
    """Writes the entry of a call that stored none, and limits entries of refused calls."""

    context: Context
    _minute_began: datetime | None = field(default=None, init=False)
    _counts: Counter[str] = field(default_factory=Counter, init=False)
    """Entries of this minute by the caller's name; empty for unknown callers."""

    def record(self, call: Call, resource: str, status: int) -> None:
        """Write the audit entry of a finished request, unless the operation wrote it.

        401, 403 and 409 are refused, 5xx failed; other 4xx changed nothing and are not recorded.
        A StoreError is logged and not raised: otherwise a machine that was terminated, or is to be,
        would depend on the audit log.
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
        """Count the caller's entries; True if this one is only logged."""
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
