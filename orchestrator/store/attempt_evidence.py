"""Evidence of attempts: events, artifacts and the log."""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from sqlalchemy import bindparam, case, func, insert, select, update
from sqlalchemy.orm import Session

from orchestrator.domain.event_facts import AgentEnd, Facts
from orchestrator.domain.outcome import TestOutcome
from orchestrator.domain.retention import RunPart
from orchestrator.store.column_types import short
from orchestrator.store.errors import CorruptEvidenceError, PrunedError, UnknownIdError
from orchestrator.store.retention import pruned_part
from orchestrator.store.runs import tell_all
from orchestrator.store.sessions import Sessions
from orchestrator.store.sql import attempt_row, changed, lock
from orchestrator.store.tables import (
    AttemptRow,
    CellRow,
    EvidenceChunkRow,
    EvidenceStream,
    JobResultRow,
    RunRow,
    TestCaseRow,
    TestResultRow,
)
from orchestrator.store.write_results import ATTEMPT_SPAN, TestCases, write_facts, write_tests


@dataclass(frozen=True, slots=True)
class Target:
    """Keys under which an attempt's evidence is stored; immutable."""

    attempt_pk: int
    attempt_id: str
    number: int
    cell_pk: int
    cell: str
    run_id: str
    product: str


@dataclass(frozen=True, slots=True)
class EvidencePosition:
    """The position up to which an attempt's evidence is stored."""

    seq: int = 0
    events_bytes: int = 0
    log_bytes: int = 0
    last_event_at: datetime | None = None
    """When the last event arrived, by the controller's clock."""
    end: AgentEnd | None = None
    """The agent's end, once it is stored."""
    target: Target | None = field(default=None, compare=False, repr=False)
    """The keys of the attempt's evidence; None if they were not read with the position."""
    goes_on: bool = field(default=False, compare=False, repr=False)
    """Whether neither a cause nor a cancel was stored when this position was."""


NO_FACTS = Facts()
_LEVEL = 1
"""zlib level: evidence is so repetitive that higher levels gain little."""
_CHUNKS_AT_ONCE = 16
_TARGETS_LIMIT = 10_000


class EvidenceStore:
    """Raw evidence and the facts folded from it."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._cases = TestCases(sessions)
        self._targets: dict[str, Target] = {}

    def position(self, attempt_id: str) -> EvidencePosition:
        """Return the position up to which evidence is stored; zeros without evidence.

        Raises UnknownIdError.
        """
        with self._sessions.read() as session:
            return position_of(attempt_row(session, attempt_id))

    def append(
        self,
        attempt_id: str,
        have: EvidencePosition,
        *,
        at: datetime,
        events: bytes = b"",
        facts: Facts = NO_FACTS,
        log: bytes = b"",
    ) -> EvidencePosition | None:
        """Store what follows `have`, in one transaction; return the new position.

        New tests get their rows in an earlier transaction of their own; otherwise every cell of a
        run would wait for the whole batch of the first cell.

        Args:
            attempt_id: The attempt that the evidence is of.
            have: The position that the bytes follow.
            at: Now.
            events: Whole lines of events.
            facts: The facts in these lines.
            log: Bytes of the log.

        Returns:
            The new position; None if the stored position is not `have`: nothing is stored then.

        Raises:
            UnknownIdError: There is no such attempt.
            ValueError: There are facts without the lines that state them.
        """
        if not events and _says_something(facts):
            raise ValueError("facts without the bytes that state them would be stored twice")
        if have.target is not None:
            self._remember(have.target)
        target = self._target(attempt_id)
        if not events and not log:
            return self.position(attempt_id)
        tests = self._cases.number(target.product, facts.tests, run=target.run_id)
        now = _after(have, len(events), facts, len(log), at=at)
        chunks = list(_chunks(target, have, events, log))
        with self._sessions.write(progress_of=target.run_id) as session:
            advanced = _advance(session, target, have, now, tests=len(facts.tests))
            if advanced is None:
                return None
            tests_seen, goes_on = advanced
            session.connection().execute(insert(EvidenceChunkRow), chunks)
            if events:
                first = target.number * ATTEMPT_SPAN + tests_seen - len(facts.tests)
                write_facts(session, target.cell_pk, target.attempt_pk, facts)
                write_tests(session, target.cell_pk, target.attempt_pk, tests, first=first)
            tell_all(session, target.run_id, _news(attempt_id, facts, now, log), cell=target.cell)
        return replace(now, goes_on=goes_on)

    def raw_events(self, attempt_id: str) -> Iterable[bytes]:
        """Yield the raw chunks. Raises CorruptEvidenceError."""
        return self._raw_events(self._target(attempt_id))

    def _raw_events(self, target: Target) -> Iterator[bytes]:
        expected = 0
        query = (
            select(EvidenceChunkRow.offset, EvidenceChunkRow.body)
            .where(
                EvidenceChunkRow.attempt == target.attempt_pk,
                EvidenceChunkRow.stream == EvidenceStream.EVENTS,
            )
            .order_by(EvidenceChunkRow.offset)
            .limit(_CHUNKS_AT_ONCE)
        )
        while True:
            with self._sessions.read() as session:
                rows = session.execute(query.where(EvidenceChunkRow.offset >= expected)).all()
            for offset, body in rows:
                if offset != expected:
                    where = f"of attempt {target.attempt_id} from byte {expected}"
                    raise CorruptEvidenceError(f"the events {where} are gone")
                chunk = unpack(body)
                expected += len(chunk)
                yield chunk
            if len(rows) < _CHUNKS_AT_ONCE:
                return

    def log(self, cell_id: str, *, after: int, limit: int) -> tuple[bytes, int]:
        """Return bytes of the cell's log (its attempts' logs in sequence) and the next offset."""
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
        """Settle tests without a final result, once the cell's attempt has ended.

        They become MISSING, or NOT_RUN in the jobs that gave up.
        """
        jobs = select(TestCaseRow.id).where(TestCaseRow.job.in_(list(given_up)))
        not_run = TestResultRow.test_id.in_(jobs)
        cell = select(CellRow.pk).where(CellRow.id == cell_id).scalar_subquery()
        mine = select(AttemptRow.pk).where(AttemptRow.cell == cell).order_by(AttemptRow.number)
        with self._sessions.write() as session:
            lock(session, mine)
            open_tests = update(TestResultRow).where(
                TestResultRow.cell == cell, TestResultRow.final.is_(False)
            )
            outcome = case((not_run, TestOutcome.NOT_RUN.value), else_=TestOutcome.MISSING.value)
            changed(session, open_tests.values(outcome=outcome))

    def reopen(self, cell_id: str, jobs: Sequence[str], *, tests: bool) -> None:
        """Mark finished jobs as unfinished, so that the next attempt runs them again.

        Args:
            cell_id: The cell.
            jobs: Ids of the jobs.
            tests: Whether the results of their tests become open too; else they stay final.
        """
        cell = select(CellRow.pk).where(CellRow.id == cell_id).scalar_subquery()
        mine = select(AttemptRow.pk).where(AttemptRow.cell == cell).order_by(AttemptRow.number)
        names = [short(job) for job in jobs]
        ended = update(JobResultRow).where(JobResultRow.cell == cell, JobResultRow.job.in_(names))
        cases = select(TestCaseRow.id).where(TestCaseRow.job.in_(names))
        final = update(TestResultRow).where(
            TestResultRow.cell == cell, TestResultRow.test_id.in_(cases)
        )
        with self._sessions.write() as session:
            lock(session, mine)
            if tests:
                changed(session, final.values(final=False))
            changed(session, ended.values(finished_ts=None, exit_code=None))

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
        target = target_of(row, cell, product)
        self._remember(target)
        return target

    def _remember(self, target: Target) -> None:
        if len(self._targets) >= _TARGETS_LIMIT:
            self._targets.clear()
        self._targets[target.attempt_id] = target


def _says_something(facts: Facts) -> bool:
    parts = (facts.tests, facts.jobs, facts.checks, facts.metrics, facts.notices)
    return any(parts) or facts.environment is not None or facts.end is not None


def _after(
    have: EvidencePosition, events: int, facts: Facts, log: int, *, at: datetime
) -> EvidencePosition:
    """Return the position after these numbers of bytes of events and log."""
    return EvidencePosition(
        seq=max(have.seq, facts.last_seq),
        events_bytes=have.events_bytes + events,
        log_bytes=have.log_bytes + log,
        last_event_at=at if events else have.last_event_at,
        end=facts.end or have.end,
        target=have.target,
    )


_ADVANCE = (
    update(AttemptRow)
    .where(
        AttemptRow.pk == bindparam("of_attempt"),
        AttemptRow.events_bytes == bindparam("had_events"),
        AttemptRow.log_bytes == bindparam("had_log"),
    )
    .values(
        seq=bindparam("to_seq"),
        events_bytes=bindparam("to_events"),
        log_bytes=bindparam("to_log"),
        last_event_at=bindparam("heard_at"),
        tests_seen=AttemptRow.tests_seen + bindparam("more_tests"),
    )
    .returning(
        AttemptRow.tests_seen,
        AttemptRow.cause_outcome,
        select(RunRow.cancel_requested_at)
        .where(RunRow.id == bindparam("of_run"))
        .scalar_subquery(),
    )
)


def _advance(
    session: Session, target: Target, have: EvidencePosition, now: EvidencePosition, *, tests: int
) -> tuple[int, bool] | None:
    """Advance the position in the attempt's row, if it is still at `have`.

    Returns:
        The number of tests seen so far, and whether there is neither a cause nor a cancel; None if
        another writer advanced the row.
    """
    told: dict[str, object] = {
        "of_attempt": target.attempt_pk,
        "of_run": target.run_id,
        "had_events": have.events_bytes,
        "had_log": have.log_bytes,
        "to_seq": now.seq,
        "to_events": now.events_bytes,
        "to_log": now.log_bytes,
        "heard_at": now.last_event_at,
        "more_tests": tests,
    }
    advance = _ADVANCE
    if now.end is not None:
        end = {"end_outcome": now.end.outcome, "end_detail": now.end.detail}
        advance = advance.values(**end, end_reason=now.end.reason)
    options = {"synchronize_session": False}
    found = session.execute(advance, told, execution_options=options).one_or_none()
    if found is None:
        return None
    tests_seen, cause, cancelled_at = found
    return tests_seen, cause is None and cancelled_at is None


def _chunks(
    target: Target, have: EvidencePosition, events: bytes, log: bytes
) -> Iterator[dict[str, object]]:
    """Yield rows of the new events and log."""
    new = (
        (EvidenceStream.EVENTS, have.events_bytes, events),
        (EvidenceStream.LOG, have.log_bytes, log),
    )
    for stream, offset, body in new:
        if body:
            packed = zlib.compress(body, _LEVEL)
            row = {"attempt": target.attempt_pk, "stream": stream, "offset": offset}
            yield row | {"body": packed}


def _news(
    attempt_id: str, facts: Facts, now: EvidencePosition, log: bytes
) -> list[tuple[str, dict[str, object]]]:
    """Return the run events of a batch, by kind."""
    news: list[tuple[str, dict[str, object]]] = []
    if _says_something(facts):
        news.append(("evidence", {"attempt": attempt_id, "seq": now.seq}))
    if log:
        news.append(("log", {"attempt": attempt_id, "size": now.log_bytes}))
    return news


def position_of(row: AttemptRow, target: Target | None = None) -> EvidencePosition:
    """Return the position of a row."""
    sizes = row.events_bytes, row.log_bytes
    return EvidencePosition(row.seq, *sizes, row.last_event_at, _end(row), target)


def target_of(row: AttemptRow, cell: CellRow, product: str) -> Target:
    """Return the keys under which the evidence of a row is stored."""
    return Target(row.pk, row.id, row.number, cell.pk, cell.name, cell.run_id, product)


def _end(row: AttemptRow) -> AgentEnd | None:
    if row.end_outcome is None:
        return None
    return AgentEnd(row.end_outcome, row.end_reason, row.end_detail)


def _log_spans(session: Session, cell_id: str) -> tuple[list[tuple[int, int, int]], int]:
    """Return (attempt, offset of its log in the cell's, length) of each attempt, and the total."""
    query = select(AttemptRow.pk, AttemptRow.log_bytes)
    mine = query.join(CellRow, CellRow.pk == AttemptRow.cell).where(CellRow.id == cell_id)
    spans, total = [], 0
    for attempt_pk, length in session.execute(mine.order_by(AttemptRow.number)):
        spans.append((attempt_pk, total, length))
        total += length
    return spans, total


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
        return [
            AttemptLog(attempt, number, size, closed_at is not None)
            for attempt, number, size, closed_at in self._sessions.rows(query)
        ]

    def read(self, attempt_id: str, *, after: int, limit: int) -> bytes:
        """Return bytes from an offset on. Raises UnknownIdError, PrunedError."""
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
    """Return bytes from `low` to `high`.

    Raises PrunedError if they were pruned, CorruptEvidenceError where some are missing.
    """
    mine = (
        EvidenceChunkRow.attempt == attempt_pk,
        EvidenceChunkRow.stream == EvidenceStream.LOG,
    )
    # Begin at the chunk that holds `low`; otherwise every earlier chunk would be read.
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
        _raise_if_pruned(session, attempt_pk)
        raise CorruptEvidenceError(f"bytes {low} to {high} of a log are not all stored")
    return whole[low - first : high - first]


def _raise_if_pruned(session: Session, attempt_pk: int) -> None:
    run = select(CellRow.run_id).join(AttemptRow, AttemptRow.cell == CellRow.pk)
    run_id = session.scalar(run.where(AttemptRow.pk == attempt_pk))
    found = pruned_part(session, run_id, RunPart.LOGS) if run_id else None
    if run_id and found is not None:
        raise PrunedError(found.of(run_id))


def unpack(body: bytes) -> bytes:
    """Return the uncompressed bytes. Raises CorruptEvidenceError."""
    try:
        return zlib.decompress(body)
    except zlib.error as error:
        raise CorruptEvidenceError(f"a stored chunk cannot be unpacked: {error}") from error
