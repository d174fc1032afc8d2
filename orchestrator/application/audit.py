"""The end of a call: what it changed outside of the database, and how it was refused."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from orchestrator.application.context import Context
from orchestrator.domain.audit import AuditOutcome
from orchestrator.store.audit_recorder import AuditedChange, Call
from orchestrator.store.errors import StoreError

logger = logging.getLogger(__name__)

UNKNOWN_A_MINUTE = 60
"""Maximum entries of unknown callers in a minute, since anybody could fill the disk with them."""
_REFUSED = frozenset({401, 403, 409})


@dataclass(slots=True)
class CallEnds:
    """Records the ends of calls."""

    context: Context
    _minute_began: datetime | None = field(default=None, init=False)
    _unknown: int = field(default=0, init=False)

    def end(self, call: Call, resource: str, status: int) -> None:
        """Record a call that stored no entry with a change, or did not end well.

        A call that nothing was found for, or that could not be understood, changed nothing and is
        not recorded. A database that does not answer is logged: it must not keep a machine alive.
        """
        outcome = AuditOutcome.REFUSED if call.is_refused else _outcome(status)
        if outcome is None or (call.is_recorded and not call.changes and status < 400):
            return
        if call.caller is None and self._are_too_many(call):
            return
        changes = call.changes or [AuditedChange(resource)]
        try:
            self.context.stores.audit.add(call, changes, outcome, status)
        except StoreError as error:
            said = "no entry in the audit log for %s (%s, status %d): %s"
            logger.error(said, call.operation(), resource, status, error)

    def _are_too_many(self, call: Call) -> bool:
        """Count unknown callers; True if this one is only logged."""
        if self._minute_began is None or call.at - self._minute_began >= timedelta(minutes=1):
            self._minute_began, self._unknown = call.at, 0
        self._unknown += 1
        if self._unknown <= UNKNOWN_A_MINUTE:
            return False
        logger.warning("refused: %s of an unknown caller at %s", call.operation(), call.address)
        return True


def _outcome(status: int) -> AuditOutcome | None:
    if status < 400:
        return AuditOutcome.DONE
    if status in _REFUSED:
        return AuditOutcome.REFUSED
    return AuditOutcome.FAILED if status >= 500 else None
