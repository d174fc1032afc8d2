"""Machines: the list of leases, orphans, and hosts of providers without a cloud."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Select, delete, func, select
from sqlalchemy.orm import Session

from orchestrator.domain.cell import CellState, Lease, LeaseState, RunSpec
from orchestrator.domain.inventory import Orphan
from orchestrator.domain.machine import Machine
from orchestrator.store.column_types import short
from orchestrator.store.leases import lease_of
from orchestrator.store.sessions import Sessions
from orchestrator.store.sql import Records, changed, insert_into, is_postgres
from orchestrator.store.tables import (
    ORPHAN_SIGHTINGS,
    AttemptRow,
    CellRow,
    LeaseRow,
    RunRow,
    RunSpecRow,
    StaticHostRow,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rented:
    """A lease with its run and cell."""

    lease: Lease
    run: str
    version: str
    """Version of the subject."""
    cell: str
    """Name of the cell."""
    state: CellState
    """State of the cell."""
    attempt: int
    max_minutes: float
    """Maximum minutes of an attempt once its machine is granted."""
    hold_minutes: float
    """Maximum minutes that a machine is held afterwards."""


class MachineStore:
    """Queries of machines. Each method is one transaction."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def now(self) -> list[Rented]:
        """Return every lease that is not GONE, oldest first."""
        with self._sessions.read() as session:
            mine = LeaseRow.state != LeaseState.GONE
            return _rented(session, _leases().where(mine).order_by(LeaseRow.pk))

    def gone(self, *, limit: int) -> list[Rented]:
        """Return the last gone leases that had a machine, newest first."""
        mine = (LeaseRow.state == LeaseState.GONE, LeaseRow.machine_id != "")
        # In the order of the leases, not of their ends, because only that has an index.
        newest = select(LeaseRow.pk).where(*mine).order_by(LeaseRow.pk.desc()).limit(limit)
        query = _leases().where(LeaseRow.pk.in_(newest))
        with self._sessions.read() as session:
            return _rented(session, query.order_by(LeaseRow.gone_at.desc(), LeaseRow.pk.desc()))

    def sightings(self) -> list[Orphan]:
        """Return orphan sightings, oldest first."""
        query = select(Records(Orphan, ORPHAN_SIGHTINGS))
        ordered = query.order_by(ORPHAN_SIGHTINGS.c.first_seen, ORPHAN_SIGHTINGS.c.machine_id)
        return list(self._sessions.scalars(ordered))


def _leases() -> Select[LeaseRow, AttemptRow, CellRow, str]:
    return (
        select(LeaseRow, AttemptRow, CellRow, RunRow.subject_version)
        .join(AttemptRow, AttemptRow.pk == LeaseRow.attempt)
        .join(CellRow, CellRow.pk == AttemptRow.cell)
        .join(RunRow, RunRow.id == CellRow.run_id)
    )


def _rented(session: Session, query: Select[LeaseRow, AttemptRow, CellRow, str]) -> list[Rented]:
    rows = session.execute(query).all()
    specs = _specs(session, {cell.run_id for _, _, cell, _ in rows})
    return [
        Rented(
            lease=lease_of(lease, attempt.id),
            run=cell.run_id,
            version=version,
            cell=cell.name,
            state=cell.state,
            attempt=attempt.number,
            max_minutes=specs[cell.run_id].matrix.limits.max_minutes,
            hold_minutes=specs[cell.run_id].hold_minutes,
        )
        for lease, attempt, cell, version in rows
    ]


def _specs(session: Session, runs: Iterable[str]) -> dict[str, RunSpec]:
    """Return run specs; each is read once, since they are long."""
    query = select(RunSpecRow.run_id, RunSpecRow.spec).where(RunSpecRow.run_id.in_(sorted(runs)))
    return dict(session.execute(query).all())


_SIGHTINGS_LOCK = 732_841_726
"""First half of the advisory lock's number; the second half is of the provider."""


class OrphanStore:
    """Sightings of orphans; the janitor terminates none at its first sighting."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def see(
        self,
        provider: str,
        machine_ids: Iterable[str],
        *,
        at: datetime,
        cleared: Iterable[str] | None = None,
    ) -> dict[str, datetime]:
        """Store the present orphans of a provider, delete others; return when each was first seen.

        Args:
            provider: Name of the provider.
            machine_ids: Ids of the orphans.
            at: The present time.
            cleared: Ids that are known to be no orphans, if the inventory was incomplete; None
                if every other id is no orphan.
        """
        kept = {machine_id: short(machine_id) for machine_id in machine_ids}
        with self._sessions.write() as session:
            known = _known(session, provider)
            over = known.keys() - kept.values()
            over = over if cleared is None else over & set(map(short, cleared))
            _forget(session, provider, over)
            new = sorted(set(kept.values()) - known.keys())
            rows = [{"provider": provider, "machine_id": x, "first_seen": at} for x in new]
            if rows:
                session.execute(insert_into(session, ORPHAN_SIGHTINGS), rows)
        first = known | dict.fromkeys(new, at)
        return {machine_id: first[key] for machine_id, key in kept.items()}


def _known(session: Session, provider: str) -> dict[str, datetime]:
    """Return when each was first seen; concurrent janitors of one provider are serialised."""
    if is_postgres(session):
        turn = func.pg_advisory_xact_lock(_SIGHTINGS_LOCK, func.hashtext(provider))
        session.execute(select(turn))
    query = select(ORPHAN_SIGHTINGS.c.machine_id, ORPHAN_SIGHTINGS.c.first_seen)
    return dict(session.execute(query.where(ORPHAN_SIGHTINGS.c.provider == provider)).all())


def _forget(session: Session, provider: str, machine_ids: Iterable[str]) -> None:
    seen = ORPHAN_SIGHTINGS.c
    for machine_id in machine_ids:
        this = (seen.provider == provider, seen.machine_id == machine_id)
        changed(session, delete(ORPHAN_SIGHTINGS).where(*this))


class StaticHostStore:
    """Machines of providers without a cloud."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def write(self, provider: str, machine: Machine) -> None:
        """Insert or replace a machine."""
        with self._sessions.write() as session:
            insert = insert_into(session, StaticHostRow)
            row = {"provider": provider, "id": machine.id, "machine": machine}
            statement = insert.values(row).on_conflict_do_update(
                index_elements=["provider", "id"], set_={"machine": insert.excluded.machine}
            )
            session.execute(statement)

    def read(self, provider: str, machine_id: str) -> Machine | None:
        """Return the machine, or None."""
        with self._sessions.read() as session:
            row = session.get(StaticHostRow, (provider, machine_id))
            return row.machine if row else None

    def erase(self, provider: str, machine_id: str) -> None:
        """Delete a machine; do nothing for an unknown one."""
        mine = (StaticHostRow.provider == provider, StaticHostRow.id == machine_id)
        with self._sessions.write() as session:
            changed(session, delete(StaticHostRow).where(*mine))

    def pages(self, provider: str) -> tuple[Machine, ...]:
        """Return every machine of the provider, by id."""
        query = (
            select(StaticHostRow)
            .where(StaticHostRow.provider == provider)
            .order_by(StaticHostRow.id)
        )
        return tuple(row.machine for row in self._sessions.scalars(query))
