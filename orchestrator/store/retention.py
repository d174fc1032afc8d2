"""Retention: finds records that no rule keeps any more, and deletes them in short transactions.

Every method is idempotent, so that a prune may be interrupted and repeated, and two may run at
once. A run's rows are deleted under the run's lock, after checking once more that it is finished
and not needed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import chain
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, delete, exists, func, or_, select, update
from sqlalchemy.orm import Session, aliased

from orchestrator.domain.cell import CellState, LeaseState, RunState
from orchestrator.domain.channel import DeliveryState
from orchestrator.domain.gate.verdict import Decision
from orchestrator.domain.retention import Amount, KeepRule, PrunedPart, RunPart
from orchestrator.domain.schedule import FiringState
from orchestrator.store.sessions import Sessions
from orchestrator.store.sql import Records, changed, insert_into, json_text, lock
from orchestrator.store.tables import (
    PRUNED_PARTS,
    RUN_EVENTS,
    ArtifactRow,
    AttemptRow,
    CellReuseRow,
    CellRow,
    DeliveryAttemptRow,
    DeliveryRow,
    EvidenceChunkRow,
    FiringRow,
    IdempotencyKeyRow,
    LeaseRow,
    PrunedBlobRow,
    PruneRow,
    RetestSessionRow,
    RunRow,
    RunSpecRow,
    ScheduleRow,
    VerdictRow,
    VerdictRunRow,
    WaiverRow,
)

BATCH = 200
"""Maximum rows of one transaction."""
FIRINGS_KEPT = 50
"""Newest firings of a schedule that are always kept: as many as its page shows."""
_PRUNE_LOCK = 7_328_417_254
"""Number of the advisory lock of prunes in Postgres."""
_POINTERS = ("evidence", "log")
"""Kinds of run events that point at logs and raw events."""
_PASSED = (Decision.PASS, Decision.PASS_WITH_EXCEPTIONS)


class RetentionStore:
    """Counts and deletes records that no rule keeps."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions
        self._turn = threading.Lock()

    @contextmanager
    def alone(self) -> Iterator[bool]:
        """Yield whether this is the only prune of the database; if so, others are locked out.

        The lock is held while the context is open.

        On SQLite the database has one controller, which is this process.
        """
        if not self._turn.acquire(blocking=False):
            yield False
            return
        try:
            with self._alone_on_server() as alone:
                yield alone
        finally:
            self._turn.release()

    @contextmanager
    def _alone_on_server(self) -> Iterator[bool]:
        if not self._sessions.is_postgres:
            yield True
            return
        engine = self._sessions.engine.execution_options(isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            locked = connection.scalar(select(func.pg_try_advisory_lock(_PRUNE_LOCK)))
            try:
                yield bool(locked)
            finally:
                if locked:
                    connection.execute(select(func.pg_advisory_unlock(_PRUNE_LOCK)))

    def last(self) -> datetime | None:
        """Return when the last prune was completed; None before the first."""
        return self._sessions.scalar(select(PruneRow.ended_at))

    def end(self, *, at: datetime) -> None:
        """Store that a prune was completed."""
        with self._sessions.write() as session:
            new = insert_into(session, PruneRow).values(pk=1, ended_at=at)
            session.execute(new.on_conflict_do_update(index_elements=["pk"], set_={"ended_at": at}))

    def of_run(self, run_id: str) -> tuple[PrunedPart, ...]:
        """Return the pruned parts of a run, without uploads that were stored again since."""
        with self._sessions.read() as session:
            parts = list(session.scalars(_pruned_parts(run_id).order_by(PRUNED_PARTS.c.part)))
            named = session.execute(_uploads(session).where(RunRow.id == run_id)).one_or_none()
            for part, digest in zip(_UPLOADS, named or (), strict=False):
                row = session.get(PrunedBlobRow, digest) if digest else None
                if row is not None:
                    parts.append(PrunedPart(part, row.at, row.rule))
        return tuple(parts)

    def pruned_blob(self, digest: str, part: RunPart) -> PrunedPart | None:
        """Return why a payload or a wheel of runs was pruned; None if it was not."""
        with self._sessions.read() as session:
            row = session.get(PrunedBlobRow, digest)
            return PrunedPart(part, row.at, row.rule) if row is not None else None

    def note_blob(self, digest: str, rule: KeepRule, *, at: datetime) -> None:
        """Store the reason before a payload or a wheel of runs is pruned."""
        with self._sessions.write() as session:
            new = insert_into(session, PrunedBlobRow).values(digest=digest, at=at, rule=rule.text)
            session.execute(
                new.on_conflict_do_update(
                    index_elements=["digest"], set_={"at": at, "rule": rule.text}
                )
            )

    def blob_is_back(self, digest: str) -> None:
        """Delete the record that a blob was pruned, because the blob is stored again or is kept."""
        with self._sessions.write() as session:
            session.execute(delete(PrunedBlobRow).where(PrunedBlobRow.digest == digest))

    def uploads_of_runs(self) -> frozenset[str]:
        """Return the digests of all payloads and wheels that runs were launched with."""
        with self._sessions.read() as session:
            found = session.execute(_uploads(session).distinct())
            return frozenset(digest for digest in chain.from_iterable(found) if digest)

    def runs(self, part: RunPart, before: datetime, *, after: str, limit: int) -> list[str]:
        """Return the ids of runs after `after` whose part can be pruned, sorted."""
        query = (
            select(RunRow.id)
            .where(RunRow.id > after, *_is_over(before), ~_is_needed(before), _HAS[part])
            .order_by(RunRow.id)
            .limit(limit)
        )
        return list(self._sessions.scalars(query))

    def kept(self, before: datetime) -> dict[str, int]:
        """Return the number of runs finished before `before` that are still needed, by reason."""
        with self._sessions.read() as session:
            counts = {
                reason: session.scalar(
                    select(func.count()).select_from(RunRow).where(*_is_over(before), needed)
                )
                for reason, needed in _reasons(before).items()
            }
        return {reason: number for reason, number in counts.items() if number}

    def expired(self, run_ids: Collection[str], before: datetime) -> list[str]:
        """Return the runs among these that no rule keeps any more."""
        mine = RunRow.id.in_(run_ids)
        query = select(RunRow.id).where(mine, *_is_over(before), ~_is_needed(before))
        return list(self._sessions.scalars(query.order_by(RunRow.id)))

    def count_logs(self, run_ids: Sequence[str]) -> Amount:
        """Count chunks of logs and raw events of runs, and the run events that point at them."""
        chunk = EvidenceChunkRow
        query = (
            select(func.count(), func.coalesce(func.sum(func.length(chunk.body)), 0))
            .join(AttemptRow, AttemptRow.pk == chunk.attempt)
            .join(CellRow, CellRow.pk == AttemptRow.cell)
            .where(CellRow.run_id.in_(run_ids))
        )
        with self._sessions.read() as session:
            rows, size = session.execute(query).one()
            points = select(func.count()).select_from(RUN_EVENTS)
            points = points.where(RUN_EVENTS.c.run_id.in_(run_ids), _POINTS_BACK)
            return Amount(rows + (session.scalar(points) or 0), int(size))

    def count_artifacts(self, run_ids: Sequence[str]) -> Amount:
        """Count artifacts of runs; their bytes are counted as blobs, which runs may share."""
        query = select(func.count()).select_from(ArtifactRow).join(CellRow)
        query = query.where(CellRow.run_id.in_(run_ids), ArtifactRow.pruned_at.is_(None))
        return Amount(self._sessions.scalar(query) or 0)

    def drop_logs(self, run_id: str, before: datetime, rule: KeepRule, *, at: datetime) -> Amount:
        """Delete some chunks of a run's logs and raw events; nothing once all are gone.

        The reason is stored first, and stays.
        """
        chunk = EvidenceChunkRow
        attempts = select(AttemptRow.pk).join(CellRow).where(CellRow.run_id == run_id)
        keys = select(chunk.attempt, chunk.stream, chunk.offset, func.length(chunk.body))
        keys = keys.where(chunk.attempt.in_(attempts))
        keys = keys.order_by(chunk.attempt, chunk.stream, chunk.offset).limit(BATCH)
        with self._sessions.write() as session:
            if not _is_still(session, run_id, before):
                return Amount()
            rows = session.execute(keys).all()
            if not rows:
                return _drop_pointers(session, run_id)
            _note(session, run_id, RunPart.LOGS, rule, at)
            last = {(attempt, stream): offset for attempt, stream, offset, _ in rows}
            for (attempt, stream), offset in last.items():
                mine = (chunk.attempt == attempt, chunk.stream == stream, chunk.offset <= offset)
                changed(session, delete(chunk).where(*mine))
            return Amount(len(rows), sum(row[3] for row in rows))

    def drop_artifacts(
        self, run_id: str, before: datetime, rule: KeepRule, *, at: datetime
    ) -> Amount:
        """Mark a run's artifacts as pruned, so that their bytes may go; names and digests stay."""
        cells = select(CellRow.pk).where(CellRow.run_id == run_id)
        mine = (ArtifactRow.cell.in_(cells), ArtifactRow.pruned_at.is_(None))
        with self._sessions.write() as session:
            if not _is_still(session, run_id, before):
                return Amount()
            rows = changed(session, update(ArtifactRow).where(*mine).values(pruned_at=at))
            if rows:
                _note(session, run_id, RunPart.ARTIFACTS, rule, at)
            return Amount(rows)

    def digests_in_use(
        self, *, payloads: datetime | None, artifacts: datetime | None
    ) -> frozenset[str]:
        """Return digests of blobs that are in use, except those of artifacts.

        Verdicts, schedules, open firings and runs use blobs. A run uses its payload and wheels
        unless it ended before `payloads`, and the evidence of its retests unless it ended before
        `artifacts`. None keeps all.
        """
        with self._sessions.read() as session:
            found: set[str | None] = set()
            proofs = select(VerdictRow.snapshot_digest, VerdictRow.envelope_digest)
            found.update(chain.from_iterable(session.execute(proofs)))
            of_run = _uploads(session).where(_is_live(payloads)).distinct()
            found.update(chain.from_iterable(session.execute(of_run)))
            document = RetestSessionRow.document
            retests = select(
                json_text(session, document, "evidence"),
                json_text(session, document, "ask", "subject_digest"),
            ).join(RunRow, RunRow.id == RetestSessionRow.run_id)
            retests = retests.where(_is_live(artifacts)).distinct()
            found.update(chain.from_iterable(session.execute(retests)))
            for one in session.scalars(select(ScheduleRow.document)):
                found.update((one.payload, one.subject_digest, one.baseline_digest))
            unended = FiringRow.state != FiringState.NOTIFIED
            for firing in session.scalars(select(FiringRow.document).where(unended)):
                if firing.resolved is not None:
                    found.update((firing.resolved.subject_digest, firing.resolved.baseline_digest))
        return frozenset(digest for digest in found if digest)

    def artifacts_in_use(self, digests: Sequence[str], before: datetime | None) -> set[str]:
        """Return the digests among these of kept artifacts; without `before` all are kept."""
        query = select(ArtifactRow.digest).where(ArtifactRow.digest.in_(digests))
        query = query.where(ArtifactRow.pruned_at.is_(None))
        if before is not None:
            query = query.join(CellRow).join(RunRow, RunRow.id == CellRow.run_id)
            query = query.where(_is_live(before))
        return set(self._sessions.scalars(query.distinct()))

    def finished_cells(self, cell_ids: Collection[str]) -> set[str]:
        """Return the cells among these that are done, in a finished run."""
        query = select(CellRow.id).join(RunRow, RunRow.id == CellRow.run_id)
        over = (CellRow.state == CellState.DONE, RunRow.state == RunState.FINISHED)
        return set(self._sessions.scalars(query.where(CellRow.id.in_(cell_ids), *over)))

    def history(self, before: datetime) -> Mapping[str, Callable[[bool], Amount]]:
        """Return functions by kind of record: they count ended records, or delete them if False."""
        return {
            "firings": lambda dry: self._rows(FiringRow, _old_firings(before), dry=dry),
            "deliveries": lambda dry: self._deliveries(before, dry=dry),
            "waivers": lambda dry: self._waivers(before, dry=dry),
            "idempotency keys": lambda dry: self._rows(
                IdempotencyKeyRow,
                select(IdempotencyKeyRow.key).where(IdempotencyKeyRow.claimed_at < before),
                dry=dry,
            ),
        }

    def _rows(self, table: Any, keys: Select[Any], *, dry: bool) -> Amount:  # noqa: ANN401
        if dry:
            return Amount(
                self._sessions.scalar(select(func.count()).select_from(keys.subquery())) or 0
            )
        [column] = table.__mapper__.primary_key
        with self._sessions.write() as session:
            found = list(session.scalars(keys.limit(BATCH)))
            return Amount(changed(session, delete(table).where(column.in_(found))))

    def _deliveries(self, before: datetime, *, dry: bool) -> Amount:
        over = (DeliveryRow.state != DeliveryState.WAITING, DeliveryRow.done_at < before)
        keys = select(DeliveryRow.pk).where(*over)
        if dry:
            return self._rows(DeliveryRow, keys, dry=True)
        with self._sessions.write() as session:
            found = list(session.scalars(keys.limit(BATCH)))
            its = DeliveryAttemptRow.delivery.in_(found)
            changed(session, delete(DeliveryAttemptRow).where(its))
            return Amount(changed(session, delete(DeliveryRow).where(DeliveryRow.pk.in_(found))))

    def _waivers(self, before: datetime, *, dry: bool) -> Amount:
        """Delete expired waivers without an approval; approved ones excused verdicts and stay.

        The newest waiver stays, since SQLite would give its number to the next one.
        """
        newest = select(func.max(WaiverRow.pk)).scalar_subquery()
        with self._sessions.read() as session:
            query = select(WaiverRow).where(WaiverRow.pk < newest).order_by(WaiverRow.pk)
            over = [
                row.pk
                for row in session.scalars(query)
                if row.document.expires < before and not row.document.approver
            ]
        if dry:
            return Amount(len(over))
        with self._sessions.write() as session:
            mine = select(WaiverRow).where(WaiverRow.pk.in_(over[:BATCH])).with_for_update()
            # Checked again, because it may have been approved meanwhile.
            still = [row.pk for row in session.scalars(mine) if not row.document.approver]
            return Amount(changed(session, delete(WaiverRow).where(WaiverRow.pk.in_(still))))

    def give_back(self, is_late: Callable[[], bool]) -> None:
        """Return free pages of a SQLite file to the disk in batches; do nothing on Postgres."""
        if not self._sessions.is_postgres:
            self._sessions.shrink(is_late)


def _is_over(before: datetime) -> tuple[ColumnElement[bool], ...]:
    return RunRow.state == RunState.FINISHED, RunRow.finished_at < before


def _is_needed(before: datetime) -> ColumnElement[bool]:
    return or_(*_reasons(before).values())


def _is_live(before: datetime | None) -> ColumnElement[bool]:
    """Return the condition that a run keeps the blobs that it refers to."""
    if before is None:
        return RunRow.id.is_not(None)
    return or_(~and_(*_is_over(before)), _is_needed(before))


def _reasons(before: datetime) -> Mapping[str, ColumnElement[bool]]:
    """Return the conditions, by reason, on which a finished run is needed without a rule."""
    lease = exists().where(LeaseRow.run_id == RunRow.id, LeaseRow.state != LeaseState.GONE)
    newest = select(func.max(VerdictRow.pk)).group_by(VerdictRow.gate, VerdictRow.lineage)
    verdicts = or_(
        VerdictRunRow.verdict.in_(newest),
        VerdictRunRow.verdict.in_(newest.where(VerdictRow.decision.in_(_PASSED))),
    )
    later, source, user = aliased(RunRow), aliased(CellRow), aliased(CellRow)
    reuse = (
        exists()
        .where(source.run_id == RunRow.id, CellReuseRow.source == source.pk)
        .where(user.pk == CellReuseRow.cell, later.id == user.run_id, later.id != RunRow.id)
        .where(or_(later.state != RunState.FINISHED, later.finished_at >= before))
    )
    return {
        "a machine of it is not proven gone": lease,
        "the newest or the last passing verdict of a gate judges it": RunRow.id.in_(
            select(VerdictRunRow.run_id).where(verdicts)
        ),
        "a run that is kept reuses its evidence": reuse,
    }


_CHUNKS = (
    exists()
    .where(CellRow.run_id == RunRow.id, AttemptRow.cell == CellRow.pk)
    .where(EvidenceChunkRow.attempt == AttemptRow.pk)
)
_FILES = exists().where(
    CellRow.run_id == RunRow.id, ArtifactRow.cell == CellRow.pk, ArtifactRow.pruned_at.is_(None)
)
_LATER = RUN_EVENTS.alias().c
_POINTS_BACK = and_(
    RUN_EVENTS.c.kind.in_(_POINTERS),
    exists().where(_LATER.run_id == RUN_EVENTS.c.run_id, _LATER.number > RUN_EVENTS.c.number),
)
"""A run event that points at logs or raw events; the run's newest one stays, for its number."""
_POINTS = exists().where(RUN_EVENTS.c.run_id == RunRow.id, _POINTS_BACK)
_HAS: Mapping[RunPart, ColumnElement[bool]] = {
    RunPart.LOGS: or_(_CHUNKS, _POINTS),
    RunPart.ARTIFACTS: _FILES,
}


def _is_still(session: Session, run_id: str, before: datetime) -> bool:
    """Lock the run and check again: an ingestion may have reopened the run for another cell."""
    mine = select(RunRow.id).where(RunRow.id == run_id)
    lock(session, mine)
    return session.scalar(mine.where(*_is_over(before), ~_is_needed(before))) is not None


def _note(session: Session, run_id: str, part: RunPart, rule: KeepRule, at: datetime) -> None:
    new = insert_into(session, PRUNED_PARTS)
    new = new.values(run_id=run_id, part=part, at=at, rule=rule.text)
    session.execute(
        new.on_conflict_do_update(
            index_elements=["run_id", "part"], set_={"at": at, "rule": rule.text}
        )
    )


def _drop_pointers(session: Session, run_id: str) -> Amount:
    """Delete some run events that pointed at deleted logs or raw events."""
    number = RUN_EVENTS.c.number
    mine = RUN_EVENTS.c.run_id == run_id
    found = list(session.scalars(select(number).where(mine, _POINTS_BACK).limit(BATCH)))
    return Amount(changed(session, delete(RUN_EVENTS).where(mine, number.in_(found))))


_UPLOADS = (RunPart.PAYLOAD, RunPart.SUBJECT, RunPart.BASELINE)


def _uploads(session: Session) -> Select[str, str | None, str | None]:
    """Select the digests of the uploads of runs, in the order of `_UPLOADS`."""
    spec = RunSpecRow.spec
    return select(
        RunRow.payload_digest,
        json_text(session, spec, "subject_digest"),
        json_text(session, spec, "baseline_digest"),
    ).join(RunSpecRow, RunSpecRow.run_id == RunRow.id)


def pruned_part(session: Session, run_id: str, part: RunPart) -> PrunedPart | None:
    """Return why a part of a run was pruned; None if it was not."""
    return session.scalar(_pruned_parts(run_id).where(PRUNED_PARTS.c.part == part))


def _pruned_parts(run_id: str) -> Select[PrunedPart]:
    return select(Records(PrunedPart, PRUNED_PARTS)).where(PRUNED_PARTS.c.run_id == run_id)


def _old_firings(before: datetime) -> Select[int]:
    """Select firings that are over and old, without the newest `FIRINGS_KEPT` of each schedule."""
    newer = aliased(FiringRow)
    later = (
        select(func.count())
        .where(newer.schedule == FiringRow.schedule, newer.due_at > FiringRow.due_at)
        .scalar_subquery()
    )
    over = (FiringRow.state == FiringState.NOTIFIED, FiringRow.due_at < before)
    return select(FiringRow.pk).where(*over, later >= FIRINGS_KEPT)
