"""The audit log: reads it, verifies its chain, and adds entries of calls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields

from pydantic import ValidationError
from sqlalchemy import Select, or_, select

from orchestrator.domain.audit import (
    BEGINNING,
    AuditEntry,
    AuditFilters,
    AuditOutcome,
    AuditVerification,
    ChainedEntry,
)
from orchestrator.store.audit_recorder import ENTRY, AuditedChange, Call, append, digest_of
from orchestrator.store.errors import DamagedError
from orchestrator.store.sessions import Sessions
from orchestrator.store.sql import ListPage, PageAsked
from orchestrator.store.tables import AuditRow

_BATCH = 500


class AuditStore:
    """The audit log. Entries are never changed or deleted."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def add(
        self,
        call: Call,
        changes: Sequence[AuditedChange],
        outcome: AuditOutcome,
        status: int | None,
    ) -> None:
        """Append entries of a call. Not idempotent."""
        with self._sessions.write() as session:
            append(session, call, list(changes), outcome, status)

    def page(
        self, filters: AuditFilters, *, limit: int, before: int | None = None
    ) -> ListPage[ChainedEntry, int]:
        """Return entries, newest first; `before` is a cursor."""
        asked = PageAsked(limit, before)
        found = self._sessions.page(_asked(filters), AuditRow.number, asked, newest_first=True)
        return found.each(_entry)

    def lines(self, filters: AuditFilters) -> Iterator[str]:
        """Yield entries as lines of JSON, oldest first, each with its digest as the last field."""
        for row in self._rows(filters):
            yield f'{row.document[:-1]}, "digest": "{row.digest}"}}\n'

    def verify(self, *, head: str = "") -> AuditVerification:
        """Read every entry, and compare it with its digest and with the entry before it.

        `head` is an earlier digest that an entry must have, so that a cut-off log is detected.
        """
        return verify_chain(self._rows(AuditFilters()), head=head)

    def _rows(self, filters: AuditFilters) -> Iterator[AuditRow]:
        """Yield rows, oldest first, in short transactions."""
        last = 0
        while True:
            query = _asked(filters).where(AuditRow.number > last)
            with self._sessions.read() as session:
                rows = session.scalars(query.order_by(AuditRow.number).limit(_BATCH)).all()
            yield from rows
            if len(rows) < _BATCH:
                return
            last = rows[-1].number


def verify_chain(rows: Iterable[AuditRow], *, head: str = "") -> AuditVerification:
    """Compare rows, oldest first, as `AuditStore.verify`."""
    number, last = 0, BEGINNING
    is_found = head in ("", BEGINNING)
    for row in rows:
        fault = _fault(row, number + 1, last)
        if fault:
            return AuditVerification(number, last, number + 1, fault)
        number, last = row.number, row.digest
        is_found = is_found or last == head
    if is_found:
        return AuditVerification(number, last)
    return AuditVerification(number, last, number + 1, f"no entry has the digest {head}")


def _asked(filters: AuditFilters) -> Select[AuditRow]:
    query = select(AuditRow)
    if filters.since is not None:
        query = query.where(AuditRow.at >= filters.since)
    if filters.actor:
        query = query.where(AuditRow.actor == filters.actor)
    if path := filters.resource.strip("/"):
        below = AuditRow.resource.startswith(f"{path}/", autoescape=True)
        query = query.where(or_(AuditRow.resource == path, below))
    return query


def _entry(row: AuditRow) -> ChainedEntry:
    try:
        entry = ENTRY.validate_json(row.document)
    except ValidationError as error:
        said = f"entry {row.number} of the audit log cannot be read back: `seatrial audit verify`"
        raise DamagedError(said) from error
    known = {one.name: getattr(entry, one.name) for one in fields(AuditEntry)}
    return ChainedEntry(**known, digest=row.digest)


def _fault(row: AuditRow, number: int, previous: str) -> str:
    """Return the reason why a row is not the next one of the chain; empty if it is."""
    if row.number != number:
        return f"the entry is missing: number {row.number} is next"
    if digest_of(row.document) != row.digest:
        return "the entry is not what was written: its digest is another"
    try:
        entry = ENTRY.validate_json(row.document)
    except ValidationError:
        return "the entry cannot be read"
    if entry.previous != previous:
        return "the entry before it is not the one that it was written after"
    shown = (row.number, row.at, row.actor, row.resource)
    if shown != (entry.number, entry.at, entry.actor, entry.resource):
        return "its columns are not those of the entry"
    return ""
