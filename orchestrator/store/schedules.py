"""Schedules and their firings."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from operator import attrgetter

from sqlalchemy import and_, delete, func, or_, select, update
from sqlalchemy.orm import Session, aliased
from sqlalchemy.sql.elements import ColumnElement

from orchestrator.domain.gate.verdict import StoredPolicy
from orchestrator.domain.grouping import grouped
from orchestrator.domain.schedule import Firing, FiringState, Schedule
from orchestrator.store.gates import keep_policy
from orchestrator.store.sessions import Sessions
from orchestrator.store.sql import ListPage, PageAsked, changed, database_time_s, insert_into
from orchestrator.store.tables import FiringRow, ScheduleRow


class ScheduleTakenError(ValueError):
    """Another schedule has this name."""


@dataclass(frozen=True, slots=True)
class DueSchedule:
    """A due schedule."""

    schedule: Schedule
    next_due_at: datetime


_NOBODY = ""


class ScheduleStore:
    """Schedules and their firings.

    Each method is one transaction.
    """

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def add(
        self, schedule: Schedule, *, next_due_at: datetime, policy: StoredPolicy | None = None
    ) -> None:
        """Store a new schedule, together with its gate's `policy`.

        Raises ScheduleTakenError if another schedule has the name, and the errors of
        `GateStore.put_policy`.
        """
        row = {"name": schedule.name, "document": schedule, "next_due_at": next_due_at}
        with self._sessions.write() as session:
            insert = insert_into(session, ScheduleRow).values(row).on_conflict_do_nothing()
            if not changed(session, insert):
                known = session.get_one(ScheduleRow, schedule.name).document
                _refuse_taken(known, schedule)
            if policy is not None:
                keep_policy(session, policy)

    def replace(
        self, schedule: Schedule, *, next_due_at: datetime, policy: StoredPolicy | None = None
    ) -> bool:
        """Change a schedule, together with its gate's `policy`; its firings stay.

        Its pause and its creation are unchanged. Return False for an unknown schedule; the policy
        is not stored then. Raises the errors of `GateStore.put_policy`.
        """
        with self._sessions.write() as session:
            row = session.get(ScheduleRow, schedule.name, with_for_update=True)
            if row is None:
                return False
            known = row.document
            row.document = replace(schedule, created_at=known.created_at, paused_at=known.paused_at)
            row.next_due_at = None if known.paused_at else next_due_at
            if policy is not None:
                keep_policy(session, policy)
            return True

    def get(self, name: str) -> Schedule | None:
        """Return the schedule, or None."""
        with self._sessions.read() as session:
            row = session.get(ScheduleRow, name)
            return row.document if row else None

    def list(self, page: PageAsked[str] | None = None) -> ListPage[Schedule, str]:
        """Return schedules by name."""
        found = self._sessions.page(select(ScheduleRow), ScheduleRow.name, page)
        return found.each(attrgetter("document"))

    def pause(self, name: str, *, at: datetime) -> Schedule | None:
        """Pause a schedule; None for an unknown one."""
        with self._sessions.write() as session:
            row = session.get(ScheduleRow, name, with_for_update=True)
            if row is not None and row.document.paused_at is None:
                row.document, row.next_due_at = replace(row.document, paused_at=at), None
            return row.document if row else None

    def resume(self, name: str, *, next_due_at: datetime) -> Schedule | None:
        """Resume a schedule from this time on; one that is not paused is unchanged."""
        with self._sessions.write() as session:
            row = session.get(ScheduleRow, name, with_for_update=True)
            if row is not None and row.document.paused_at is not None:
                row.document = replace(row.document, paused_at=None)
                row.next_due_at = next_due_at
            return row.document if row else None

    def remove(self, name: str) -> bool:
        """Delete a schedule and its firings; False for an unknown one. Runs and verdicts stay."""
        with self._sessions.write() as session:
            # The schedule's row first, so that nobody can add a firing any more.
            if session.get(ScheduleRow, name, with_for_update=True) is None:
                return False
            session.execute(delete(FiringRow).where(FiringRow.schedule == name))
            session.execute(delete(ScheduleRow).where(ScheduleRow.name == name))
            return True

    def due(self, now: datetime) -> Sequence[DueSchedule]:
        """Return schedules that are not paused and due at `now`."""
        query = select(ScheduleRow).where(ScheduleRow.next_due_at <= now)
        with self._sessions.read() as session:
            rows = session.scalars(query.order_by(ScheduleRow.next_due_at, ScheduleRow.name))
            return [DueSchedule(r.document, r.next_due_at) for r in rows if r.next_due_at]

    def claim(self, due: DueSchedule, firings: Sequence[Firing], *, next_due_at: datetime) -> bool:
        """Store due firings and the next due time; True for exactly one of concurrent callers."""
        name = due.schedule.name
        with self._sessions.write() as session:
            mine = (ScheduleRow.name == name, ScheduleRow.next_due_at == due.next_due_at)
            step = update(ScheduleRow).where(*mine).values(next_due_at=next_due_at)
            if not changed(session, step):
                return False
            for firing in firings:
                _insert(session, firing)
            return True

    def trigger(self, firing: Firing) -> Firing:
        """Store a manual firing; calls within one second are one firing."""
        with self._sessions.write() as session:
            _insert(session, firing)
            return _firing(session.scalars(select(FiringRow).where(*_is(firing))).one())

    def firings(self, name: str, *, limit: int = 50) -> builtins.list[Firing]:
        """Return the firings of a schedule, latest first."""
        query = select(FiringRow).where(FiringRow.schedule == name)
        with self._sessions.read() as session:
            rows = session.scalars(query.order_by(FiringRow.due_at.desc()).limit(limit))
            return [_firing(row) for row in rows]

    def latest(self, *, limit: int) -> Mapping[str, builtins.list[Firing]]:
        """Return the newest firings by schedule, latest first."""
        mine = aliased(FiringRow)
        due = select(mine.due_at).where(mine.schedule == ScheduleRow.name)
        last = due.order_by(mine.due_at.desc()).limit(1).offset(limit - 1).scalar_subquery()
        first = due.order_by(mine.due_at).limit(1).scalar_subquery()
        since = select(ScheduleRow.name, func.coalesce(last, first).label("at")).subquery()
        query = (
            select(FiringRow)
            .join(since, and_(FiringRow.schedule == since.c.name, FiringRow.due_at >= since.c.at))
            .order_by(FiringRow.schedule, FiringRow.due_at.desc())
        )
        return grouped((row.schedule, _firing(row)) for row in self._sessions.scalars(query))

    def open(self) -> builtins.list[Firing]:
        """Return open firings of all schedules, earliest first."""
        query = select(FiringRow).where(FiringRow.state != FiringState.NOTIFIED)
        with self._sessions.read() as session:
            rows = session.scalars(query.order_by(FiringRow.due_at, FiringRow.pk))
            return [_firing(row) for row in rows]

    def firing(self, name: str, due_at: datetime) -> Firing | None:
        """Return the present firing."""
        query = select(FiringRow).where(FiringRow.schedule == name, FiringRow.due_at == due_at)
        with self._sessions.read() as session:
            row = session.scalars(query).one_or_none()
            return _firing(row) if row else None

    def take(self, firing: Firing, holder: str, *, lease_s: float) -> Firing | None:
        """Claim a firing for `lease_s` seconds of the database's clock, and return it.

        None if another controller holds the firing, or the firing is over.
        """
        with self._sessions.write() as session:
            now_s = database_time_s(session)
            free = or_(FiringRow.claimed_by == _NOBODY, FiringRow.claim_expires_s <= now_s)
            mine = (*_is(firing), FiringRow.state != FiringState.NOTIFIED, free)
            held = {"claimed_by": holder, "claim_expires_s": now_s + lease_s}
            if not changed(session, update(FiringRow).where(*mine).values(held)):
                return None
            return _firing(session.scalars(select(FiringRow).where(*_is(firing))).one())

    def renew(self, firing: Firing, holder: str, *, lease_s: float) -> bool:
        """Extend a claim; False if another controller has claimed the firing."""
        with self._sessions.write() as session:
            mine = (*_is(firing), FiringRow.claimed_by == holder)
            until_s = database_time_s(session) + lease_s
            return (
                changed(session, update(FiringRow).where(*mine).values(claim_expires_s=until_s)) > 0
            )

    def save(self, firing: Firing, holder: str) -> bool:
        """Store the firing; return False and change nothing if the claim is lost."""
        with self._sessions.write() as session:
            return _save(session, firing, holder)

    def begin(self, firing: Firing, holder: str) -> bool:
        """Store a firing that launches its run now, like `save`.

        Return False if another firing has precedence: of concurrent firings only one begins.
        """
        with self._sessions.write() as session:
            if _before(session, firing):
                return False
            return _save(session, firing, holder)

    def give_back(self, firing: Firing, holder: str) -> None:
        """Release the claim; do nothing if another controller has claimed the firing."""
        with self._sessions.write() as session:
            mine = (*_is(firing), FiringRow.claimed_by == holder)
            changed(session, update(FiringRow).where(*mine).values(claimed_by=_NOBODY))

    def supersede(self, firing: Firing) -> None:
        """Request the end of every firing with precedence over this one."""
        with self._sessions.write() as session:
            for row in _before(session, firing):
                row.superseded = True


def _refuse_taken(known: Schedule, schedule: Schedule) -> None:
    if replace(known, created_at=schedule.created_at) != schedule:
        raise ScheduleTakenError(
            f"there is a schedule {schedule.name!r} already: change it with `schedule add"
            " --replace`, or choose another name"
        )


def _is(firing: Firing) -> tuple[ColumnElement[bool], ...]:
    return FiringRow.schedule == firing.schedule, FiringRow.due_at == firing.due_at


def _before(session: Session, firing: Firing) -> list[FiringRow]:
    """Select the firings with precedence over this one, locked until the transaction ends."""
    # Lock the schedule's row first, as everywhere, so that concurrent firings are serialised.
    session.get(ScheduleRow, firing.schedule, with_for_update=True)
    still = FiringRow.schedule == firing.schedule, FiringRow.state != FiringState.NOTIFIED
    query = select(FiringRow).where(*still).order_by(FiringRow.pk).with_for_update()
    return [row for row in session.scalars(query) if row.document.goes_before(firing)]


def _save(session: Session, firing: Firing, holder: str) -> bool:
    mine = (*_is(firing), FiringRow.claimed_by == holder)
    values = {"state": firing.state, "document": firing}
    return changed(session, update(FiringRow).where(*mine).values(values)) > 0


def _insert(session: Session, firing: Firing) -> None:
    row = {
        "schedule": firing.schedule,
        "due_at": firing.due_at,
        "state": firing.state,
        "superseded": False,
        "claimed_by": _NOBODY,
        "claim_expires_s": 0.0,
        "document": firing,
    }
    session.execute(insert_into(session, FiringRow).values(row).on_conflict_do_nothing())


def _firing(row: FiringRow) -> Firing:
    return replace(row.document, superseded=row.superseded)
