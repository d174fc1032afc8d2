"""Logs, read from their compressed chunks."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from orchestrator.store.errors import CorruptEvidenceError, UnknownIdError
from orchestrator.store.sessions import Sessions
from orchestrator.store.tables import AttemptRow, CellRow, EvidenceChunkRow, EvidenceStream


@dataclass(frozen=True, slots=True)
class AttemptLog:
    """Size and state of an attempt's log."""

    attempt_id: str
    number: int
    """The attempt's number, from 1."""
    size_bytes: int
    is_over: bool
    """Whether the attempt is closed, so that the log is complete."""


class LogStore:
    """Logs of attempts; append-only."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def of_cell(self, cell_id: str) -> list[AttemptLog]:
        """Return the logs of a cell's attempts, in order, empty ones included."""
        query = (
            select(AttemptRow.id, AttemptRow.number, AttemptRow.log_bytes, AttemptRow.closed_at)
            .join(CellRow, CellRow.pk == AttemptRow.cell)
            .where(CellRow.id == cell_id)
            .order_by(AttemptRow.number)
        )
        with self._sessions.read() as session:
            return [
                AttemptLog(attempt, number, size, closed_at is not None)
                for attempt, number, size, closed_at in session.execute(query)
            ]

    def read(self, attempt_id: str, *, after: int, limit: int) -> bytes:
        """Return bytes from an offset on. Raises UnknownIdError."""
        query = select(AttemptRow.pk, AttemptRow.log_bytes).where(AttemptRow.id == attempt_id)
        with self._sessions.read() as session:
            found = session.execute(query).one_or_none()
            if found is None:
                raise UnknownIdError("attempt", attempt_id)
            attempt_pk, size = found
            low = max(after, 0)
            high = min(low + max(limit, 0), size)
            return log_part(session, attempt_pk, low, high) if low < high else b""


def log_part(session: Session, attempt_pk: int, low: int, high: int) -> bytes:
    """Return bytes from `low` to `high`. Raises CorruptEvidenceError where some are missing."""
    mine = (
        EvidenceChunkRow.attempt == attempt_pk,
        EvidenceChunkRow.stream == EvidenceStream.LOG,
    )
    # The chunk that holds `low`: without it every chunk before would be looked at.
    offset = EvidenceChunkRow.offset
    holds = select(func.max(offset)).where(*mine, offset <= low)
    query = (
        select(offset, EvidenceChunkRow.body)
        .where(*mine, offset >= holds.scalar_subquery(), offset < high)
        .order_by(offset)
    )
    rows = session.execute(query).all()
    whole = b"".join(unpack(body) for _, body in rows)
    first = rows[0].offset if rows else high
    if first > low or first + len(whole) < high:
        raise CorruptEvidenceError(f"bytes {low} to {high} of a log are not all stored")
    return whole[low - first : high - first]


def unpack(body: bytes) -> bytes:
    """Return the uncompressed bytes. Raises CorruptEvidenceError."""
    try:
        return zlib.decompress(body)
    except zlib.error as error:
        raise CorruptEvidenceError(f"a stored chunk cannot be unpacked: {error}") from error
