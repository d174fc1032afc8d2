"""The ledger: one row per machine, from before the launch call until it is verified gone."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from decimal import Decimal

from sqlalchemy import Select, select
from sqlalchemy.orm import Session

from orchestrator.adapters.db.errors import UnknownIdError
from orchestrator.adapters.db.sessions import Sessions
from orchestrator.adapters.db.statements import attempt_row, changed, insert_into, run_row
from orchestrator.adapters.db.tables import AttemptRow, CellRow, LeaseRow
from orchestrator.application.ports.stores import Reservation
from orchestrator.domain.cell import Lease, LeaseState
from orchestrator.domain.machine import Reach

_BEFORE_RELEASE = (LeaseState.RESERVED, LeaseState.LAUNCHING, LeaseState.HELD)


class DbLeases:
    """The LeaseStore of a database."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def reserve(
        self, lease: Lease, *, run_id: str, exclusive: bool, max_usd: Decimal | None
    ) -> Reservation:
        """Set money and place aside, under the run row's lock."""
        with self._sessions.write() as session:
            attempt_pk = attempt_row(session, lease.attempt_id).pk
            run_row(session, run_id, lock=True)
            if session.scalar(select(LeaseRow.pk).where(LeaseRow.id == lease.id)) is not None:
                return Reservation.RESERVED
            spent = _committed_usd(session, run_id)
            if max_usd is not None and spent + lease.reserved_usd > max_usd:
                return Reservation.OVER_BUDGET
            row = _values(lease) | {"attempt": attempt_pk, "run_id": run_id}
            # The index of exclusive places decides between two who ask at once.
            new = insert_into(session, LeaseRow).values(row | {"exclusive": exclusive})
            taken = changed(session, new.on_conflict_do_nothing())
            return Reservation.RESERVED if taken else Reservation.BUSY

    def get(self, lease_id: str) -> Lease:
        """The lease. Raises UnknownIdError."""
        with self._sessions.read() as session:
            found = session.execute(_leases().where(LeaseRow.id == lease_id)).one_or_none()
            if found is None:
                raise UnknownIdError("lease", lease_id)
            return _lease(found[0], found[1])

    def of_attempt(self, attempt_id: str) -> list[Lease]:
        """In the order they were reserved."""
        with self._sessions.read() as session:
            return _all(session, _leases().where(AttemptRow.id == attempt_id))

    def of_run(self, run_id: str) -> dict[str, list[Lease]]:
        """By cell id; a cell that never had a lease has an empty list."""
        query = (
            select(CellRow.id, LeaseRow, AttemptRow.id)
            .join(AttemptRow, AttemptRow.cell == CellRow.pk, isouter=True)
            .join(LeaseRow, LeaseRow.attempt == AttemptRow.pk, isouter=True)
            .where(CellRow.run_id == run_id)
            .order_by(CellRow.position, LeaseRow.pk)
        )
        leases: dict[str, list[Lease]] = {}
        with self._sessions.read() as session:
            for cell_id, row, attempt_id in session.execute(query):
                mine = leases.setdefault(cell_id, [])
                if row is not None:
                    mine.append(_lease(row, attempt_id))
        return leases

    def open(self) -> list[Lease]:
        """Every lease that is not GONE, oldest first."""
        with self._sessions.read() as session:
            return _all(session, _leases().where(LeaseRow.state != LeaseState.GONE))

    def launching(self, lease_id: str, *, at: datetime) -> None:
        """From RESERVED to LAUNCHING."""
        with self._sessions.write() as session:
            row = _locked(session, lease_id)
            if row.state is LeaseState.RESERVED:
                row.state, row.launched_at = LeaseState.LAUNCHING, at

    def held(self, lease_id: str, machine_id: str, *, at: datetime) -> None:
        """Keep the machine's id, however late it comes; to HELD unless it is past that."""
        with self._sessions.write() as session:
            row = _locked(session, lease_id)
            row.machine_id = row.machine_id or machine_id
            row.launched_at = row.launched_at or at
            if row.state in (LeaseState.RESERVED, LeaseState.LAUNCHING):
                row.state = LeaseState.HELD

    def reached(self, lease_id: str, reach: Reach) -> None:
        """Keep how the machine is reached."""
        with self._sessions.write() as session:
            _locked(session, lease_id).reach = reach

    def releasing(self, lease_id: str) -> None:
        """To RELEASING, unless it is gone."""
        with self._sessions.write() as session:
            row = _locked(session, lease_id)
            if row.state in _BEFORE_RELEASE:
                row.state = LeaseState.RELEASING

    def gone(self, lease_id: str, *, at: datetime, cost_usd: Decimal, refusal: str = "") -> None:
        """Settle it; the first settlement stands."""
        with self._sessions.write() as session:
            row = _locked(session, lease_id)
            if row.state is LeaseState.GONE:
                return
            row.state, row.gone_at = LeaseState.GONE, at
            row.cost_usd, row.refusal = cost_usd, refusal


def _committed_usd(session: Session, run_id: str) -> Decimal:
    query = select(LeaseRow.cost_usd, LeaseRow.reserved_usd).where(LeaseRow.run_id == run_id)
    amounts: Iterable[Decimal] = (
        reserved if cost is None else cost for cost, reserved in session.execute(query)
    )
    return sum(amounts, Decimal(0))


def _leases() -> Select[LeaseRow, str]:
    query = select(LeaseRow, AttemptRow.id).join(AttemptRow, AttemptRow.pk == LeaseRow.attempt)
    return query.order_by(LeaseRow.pk)


def _all(session: Session, query: Select[LeaseRow, str]) -> list[Lease]:
    return [_lease(row, attempt_id) for row, attempt_id in session.execute(query)]


def _locked(session: Session, lease_id: str) -> LeaseRow:
    query = select(LeaseRow).where(LeaseRow.id == lease_id).with_for_update(key_share=True)
    row = session.scalar(query)
    if row is None:
        raise UnknownIdError("lease", lease_id)
    return row


def _values(lease: Lease) -> dict[str, object]:
    return {
        "id": lease.id,
        "provider": lease.provider,
        "place": lease.place,
        "state": lease.state,
        "reserved_usd": lease.reserved_usd,
        "price_usd_per_hour": lease.price_usd_per_hour,
        "reserved_at": lease.reserved_at,
        "machine_id": lease.machine_id,
        "reach": lease.reach,
        "launched_at": lease.launched_at,
        "gone_at": lease.gone_at,
        "cost_usd": lease.cost_usd,
        "refusal": lease.refusal,
    }


def _lease(row: LeaseRow, attempt_id: str) -> Lease:
    return Lease(
        id=row.id,
        attempt_id=attempt_id,
        provider=row.provider,
        place=row.place,
        state=row.state,
        reserved_usd=row.reserved_usd,
        price_usd_per_hour=row.price_usd_per_hour,
        reserved_at=row.reserved_at,
        machine_id=row.machine_id,
        reach=row.reach,
        launched_at=row.launched_at,
        gone_at=row.gone_at,
        cost_usd=row.cost_usd,
        refusal=row.refusal,
    )
