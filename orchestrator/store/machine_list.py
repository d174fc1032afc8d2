"""Machines with the runs and the cells that they are for, and those that have no owner."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Select, delete, func, select
from sqlalchemy.orm import Session

from orchestrator.domain.cell import CellState, Lease, LeaseState, RunSpec
from orchestrator.store.column_types import short
from orchestrator.store.leases import lease_of
from orchestrator.store.sessions import Sessions
from orchestrator.store.sql import changed, insert_into, is_postgres
from orchestrator.store.tables import (
    AttemptRow,
    CellRow,
    LeaseRow,
    OrphanSightingRow,
    RunRow,
    RunSpecRow,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rented:
    """A lease, and whose it is."""

    lease: Lease
    run: str
    version: str
    """The subject's."""
    cell: str
    """The cell's name."""
    state: CellState
    """The cell's."""
    attempt: int
    max_minutes: float
    """An attempt may take so long once its machine is granted."""
    hold_minutes: float
    """And a machine may be kept for so long afterwards."""


@dataclass(frozen=True, slots=True)
class Orphan:
    """Something that a cloud showed and nobody owned, when the janitor looked last."""

    provider: str
    machine_id: str
    """Its beginning and a hash, where it is very long."""
    first_seen: datetime


class MachineStore:
    """Each method is one transaction."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def now(self) -> list[Rented]:
        """Of every lease that is not GONE, oldest first."""
        with self._sessions.read() as session:
            mine = LeaseRow.state != LeaseState.GONE
            return _rented(session, _leases().where(mine).order_by(LeaseRow.pk))

    def gone(self, *, limit: int) -> list[Rented]:
        """Of the leases that went last and had a machine, newest first."""
        mine = (LeaseRow.state == LeaseState.GONE, LeaseRow.machine_id != "")
        # By the order of the leases, not of their ends: that is what there is an index of.
        newest = select(LeaseRow.pk).where(*mine).order_by(LeaseRow.pk.desc()).limit(limit)
        query = _leases().where(LeaseRow.pk.in_(newest))
        with self._sessions.read() as session:
            return _rented(session, query.order_by(LeaseRow.gone_at.desc(), LeaseRow.pk.desc()))

    def sightings(self) -> list[Orphan]:
        """What the janitor noted, oldest first."""
        query = select(OrphanSightingRow).order_by(
            OrphanSightingRow.first_seen, OrphanSightingRow.machine_id
        )
        with self._sessions.read() as session:
            rows = session.scalars(query)
            return [Orphan(row.provider, row.machine_id, row.first_seen) for row in rows]


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
    """Each is read once: it is long."""
    query = select(RunSpecRow.run_id, RunSpecRow.spec).where(RunSpecRow.run_id.in_(sorted(runs)))
    return dict(session.execute(query).all())


_SIGHTINGS_LOCK = 732_841_726
"""First half of the advisory lock's number; the provider is the other."""


class OrphanStore:
    """What the janitor saw and knows no owner of: it kills nothing at first sight."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def see(
        self, provider: str, machine_ids: Iterable[str], *, at: datetime
    ) -> dict[str, datetime]:
        """Note these, forget all others of the provider; answer when each was first seen."""
        kept = {machine_id: short(machine_id) for machine_id in machine_ids}
        with self._sessions.write() as session:
            known = _known(session, provider)
            _forget(session, provider, known.keys() - kept.values())
            new = sorted(set(kept.values()) - known.keys())
            rows = [{"provider": provider, "machine_id": x, "first_seen": at} for x in new]
            if rows:
                session.execute(insert_into(session, OrphanSightingRow), rows)
        first = known | dict.fromkeys(new, at)
        return {machine_id: first[key] for machine_id, key in kept.items()}


def _known(session: Session, provider: str) -> dict[str, datetime]:
    """When each was first seen; two janitors of one provider take turns."""
    if is_postgres(session):
        turn = func.pg_advisory_xact_lock(_SIGHTINGS_LOCK, func.hashtext(provider))
        session.execute(select(turn))
    query = select(OrphanSightingRow.machine_id, OrphanSightingRow.first_seen)
    return dict(session.execute(query.where(OrphanSightingRow.provider == provider)).all())


def _forget(session: Session, provider: str, machine_ids: Iterable[str]) -> None:
    for machine_id in machine_ids:
        this = (OrphanSightingRow.provider == provider, OrphanSightingRow.machine_id == machine_id)
        changed(session, delete(OrphanSightingRow).where(*this))
