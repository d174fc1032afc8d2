"""Machines with the runs and the cells that they are for."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import Select, select
from sqlalchemy.orm import Session

from orchestrator.application.ports.machine_list import Rented, Sighting
from orchestrator.application.ports.stores import RunSpec
from orchestrator.domain.cell import LeaseState
from orchestrator.store.leases import lease_of
from orchestrator.store.sessions import Sessions
from orchestrator.store.tables import (
    AttemptRow,
    CellRow,
    LeaseRow,
    RunRow,
    RunSpecRow,
    SightingRow,
)


class DbRented:
    """The RentedStore of a database."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def now(self) -> list[Rented]:
        """By the partial index of open leases."""
        with self._sessions.read() as session:
            mine = LeaseRow.state != LeaseState.GONE
            return _rented(session, _leases().where(mine).order_by(LeaseRow.pk))

    def gone(self, *, limit: int) -> list[Rented]:
        """Refused ones never were machines."""
        mine = (LeaseRow.state == LeaseState.GONE, LeaseRow.machine_id != "")
        # By the order of the leases, not of their ends: that is what there is an index of.
        newest = select(LeaseRow.pk).where(*mine).order_by(LeaseRow.pk.desc()).limit(limit)
        query = _leases().where(LeaseRow.pk.in_(newest))
        with self._sessions.read() as session:
            return _rented(session, query.order_by(LeaseRow.gone_at.desc(), LeaseRow.pk.desc()))

    def sightings(self) -> list[Sighting]:
        """What the janitor noted."""
        query = select(SightingRow).order_by(SightingRow.first_seen, SightingRow.machine_id)
        with self._sessions.read() as session:
            rows = session.scalars(query)
            return [Sighting(row.provider, row.machine_id, row.first_seen) for row in rows]


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
