"""Evidence as it comes in: the raw bytes, and through `facts` what they state."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import insert, select, update
from sqlalchemy.orm import Session

from orchestrator.domain.facts import AgentEnd, Facts
from orchestrator.domain.outcome import TestOutcome
from orchestrator.store.errors import CorruptEvidenceError, UnknownIdError
from orchestrator.store.fact_rows import write_facts
from orchestrator.store.logs import log_part, unpack
from orchestrator.store.result_rows import write_tests
from orchestrator.store.run_events import tell
from orchestrator.store.sessions import Sessions
from orchestrator.store.sql import attempt_row, changed
from orchestrator.store.tables import (
    AttemptRow,
    CellRow,
    EvidenceChunkRow,
    LogChunkRow,
    RunRow,
    TestCaseRow,
    TestResultRow,
)
from orchestrator.store.test_numbers import TestCases


@dataclass(frozen=True, slots=True)
class Position:
    """How much of an attempt's evidence is stored."""

    seq: int = 0
    events_bytes: int = 0
    log_bytes: int = 0
    last_event_at: datetime | None = None
    """By our clock, when the last event came in."""
    end: AgentEnd | None = None
    """The agent's last word, once it is stored."""


_LEVEL = 1
"""Of zlib: evidence repeats itself so much that more effort hardly shrinks it."""
_CHUNKS_AT_ONCE = 16
_TARGETS_LIMIT = 10_000


@dataclass(frozen=True, slots=True)
class Target:
    """Where an attempt's evidence belongs; none of it ever changes."""

    attempt_pk: int
    attempt_id: str
    number: int
    cell_pk: int
    cell: str
    run_id: str
    product: str


class EvidenceStore:
    """Evidence as it comes in: the raw bytes, and the facts they state."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._cases = TestCases(sessions)
        self._targets: dict[str, Target] = {}

    def position(self, attempt_id: str) -> Position:
        """How much is stored; zeros of an attempt without evidence. Raises UnknownIdError."""
        with self._sessions.read() as session:
            return position_of(attempt_row(session, attempt_id))

    def append(
        self, attempt_id: str, *, offset: int, chunk: bytes, facts: Facts, at: datetime
    ) -> bool:
        """Store whole lines with their facts; False, and nothing, at another offset.

        Tests that no one has seen before get their rows first, in a transaction of their own:
        else every cell of a run would wait for the first one's whole batch.
        """
        if not chunk:
            if _says_something(facts):
                raise ValueError("facts without the bytes that state them would be stored twice")
            return self.position(attempt_id).events_bytes == offset
        target = self._target(attempt_id)
        if self.position(attempt_id).events_bytes != offset:
            return False
        tests = self._cases.number(target.product, facts.tests)
        packed = zlib.compress(chunk, _LEVEL)
        with self._sessions.write() as session:
            row = attempt_row(session, attempt_id, lock=True)
            if row.events_bytes != offset:
                return False
            first, last = row.seq + 1, max(row.seq, facts.last_seq)
            _add_chunk(session, row, chunk, packed, first_seq=first, last_seq=last)
            write_tests(session, target.cell_pk, row, tests)
            write_facts(session, target.cell_pk, row.pk, facts)
            _advance(row, chunk, facts, last_seq=last, at=at)
            session.flush()
            if _says_something(facts):
                said = {"attempt": attempt_id, "seq": last}
                tell(session, target.run_id, "evidence", cell=target.cell, data=said)
        return True

    def append_log(self, attempt_id: str, *, offset: int, chunk: bytes) -> bool:
        """Store bytes of the log at `offset`; False, and nothing, where another is due."""
        target = self._target(attempt_id)
        packed = zlib.compress(chunk, _LEVEL)
        with self._sessions.write() as session:
            row = attempt_row(session, attempt_id, lock=True)
            if row.log_bytes != offset:
                return False
            if not chunk:
                return True
            values = {"attempt": row.pk, "offset": offset, "length": len(chunk), "body": packed}
            session.execute(insert(LogChunkRow).values(values))
            row.log_bytes += len(chunk)
            session.flush()
            said = {"attempt": attempt_id, "size": row.log_bytes}
            tell(session, target.run_id, "log", cell=target.cell, data=said)
        return True

    def raw_events(self, attempt_id: str) -> Iterable[bytes]:
        """The chunks as they came. Raises CorruptEvidenceError."""
        return self._raw_events(self._target(attempt_id))

    def _raw_events(self, target: Target) -> Iterator[bytes]:
        expected = 0
        query = (
            select(EvidenceChunkRow.offset, EvidenceChunkRow.body)
            .where(EvidenceChunkRow.attempt == target.attempt_pk)
            .order_by(EvidenceChunkRow.offset)
            .limit(_CHUNKS_AT_ONCE)
        )
        while True:
            with self._sessions.read() as session:
                rows = session.execute(query.where(EvidenceChunkRow.offset >= expected)).all()
            if not rows:
                return
            for offset, body in rows:
                if offset != expected:
                    where = f"of attempt {target.attempt_id} from byte {expected}"
                    raise CorruptEvidenceError(f"the events {where} are gone")
                chunk = unpack(body)
                expected += len(chunk)
                yield chunk

    def log(self, cell_id: str, *, after: int, limit: int) -> tuple[bytes, int]:
        """Bytes of the cell's log (its attempts' logs, one after the other) and the next offset."""
        parts: list[bytes] = []
        with self._sessions.read() as session:
            spans, total = _log_spans(session, cell_id)
            start = min(max(after, 0), total)
            end = min(start + max(limit, 0), total)
            for attempt_pk, begin, length in spans:
                low, high = max(start - begin, 0), min(end - begin, length)
                if low < high:
                    parts.append(log_part(session, attempt_pk, low, high))
        return b"".join(parts), end

    def settle(self, cell_id: str, given_up: Iterable[str]) -> None:
        """Once the cell's attempt is over, decide about tests without a final result.

        They become MISSING, or NOT_RUN in the jobs that gave up.
        """
        jobs = select(TestCaseRow.id).where(TestCaseRow.job.in_(list(given_up)))
        not_run = TestResultRow.test_id.in_(jobs)
        with self._sessions.write() as session:
            attempts = select(AttemptRow).join(CellRow, CellRow.pk == AttemptRow.cell)
            mine = attempts.where(CellRow.id == cell_id).order_by(AttemptRow.number)
            rows = session.scalars(mine.with_for_update(key_share=True, of=AttemptRow)).all()
            if not rows:
                return
            open_tests = update(TestResultRow).where(
                TestResultRow.cell == rows[0].cell, TestResultRow.final.is_(False)
            )
            given = open_tests.where(not_run).values(outcome=TestOutcome.NOT_RUN.value)
            rest = open_tests.where(~not_run).values(outcome=TestOutcome.MISSING.value)
            changed(session, given)
            changed(session, rest)

    def _target(self, attempt_id: str) -> Target:
        if (known := self._targets.get(attempt_id)) is not None:
            return known
        query = (
            select(AttemptRow, CellRow, RunRow.product)
            .join(CellRow, CellRow.pk == AttemptRow.cell)
            .join(RunRow, RunRow.id == CellRow.run_id)
            .where(AttemptRow.id == attempt_id)
        )
        with self._sessions.read() as session:
            found = session.execute(query).one_or_none()
            if found is None:
                raise UnknownIdError("attempt", attempt_id)
            row, cell, product = found
        if len(self._targets) >= _TARGETS_LIMIT:
            self._targets.clear()
        target = Target(row.pk, attempt_id, row.number, cell.pk, cell.name, cell.run_id, product)
        self._targets[attempt_id] = target
        return target


def _says_something(facts: Facts) -> bool:
    parts = (facts.tests, facts.jobs, facts.checks, facts.metrics, facts.notices)
    return any(parts) or facts.environment is not None or facts.end is not None


def _add_chunk(
    session: Session,
    row: AttemptRow,
    chunk: bytes,
    packed: bytes,
    *,
    first_seq: int,
    last_seq: int,
) -> None:
    values = {
        "attempt": row.pk,
        "offset": row.events_bytes,
        "length": len(chunk),
        "first_seq": first_seq,
        "last_seq": last_seq,
        "body": packed,
    }
    session.execute(insert(EvidenceChunkRow).values(values))


def _advance(row: AttemptRow, chunk: bytes, facts: Facts, *, last_seq: int, at: datetime) -> None:
    row.seq = last_seq
    row.events_bytes += len(chunk)
    row.last_event_at = at
    row.tests_seen += len(facts.tests)
    if facts.end is not None:
        row.end_outcome = facts.end.outcome
        row.end_reason = facts.end.reason
        row.end_detail = facts.end.detail


def position_of(row: AttemptRow) -> Position:
    """What a row says."""
    return Position(row.seq, row.events_bytes, row.log_bytes, row.last_event_at, _end(row))


def _end(row: AttemptRow) -> AgentEnd | None:
    if row.end_outcome is None:
        return None
    return AgentEnd(row.end_outcome, row.end_reason, row.end_detail)


def _log_spans(session: Session, cell_id: str) -> tuple[list[tuple[int, int, int]], int]:
    """(attempt, where its log begins in the cell's, length) of each attempt, and the total."""
    query = select(AttemptRow.pk, AttemptRow.log_bytes)
    mine = query.join(CellRow, CellRow.pk == AttemptRow.cell).where(CellRow.id == cell_id)
    spans, total = [], 0
    for attempt_pk, length in session.execute(mine.order_by(AttemptRow.number)):
        spans.append((attempt_pk, total, length))
        total += length
    return spans, total
