"""What the janitor saw that has no owner."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from orchestrator.store.column_types import short
from orchestrator.store.sessions import Sessions
from orchestrator.store.sql import changed, insert_into, is_postgres
from orchestrator.store.tables import SightingRow

_SIGHTINGS_LOCK = 732_841_726
"""First half of the advisory lock's number; the provider is the other."""


class SightingStore:
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
                session.execute(insert_into(session, SightingRow), rows)
        first = known | dict.fromkeys(new, at)
        return {machine_id: first[key] for machine_id, key in kept.items()}


def _known(session: Session, provider: str) -> dict[str, datetime]:
    """When each was first seen; two janitors of one provider take turns."""
    if is_postgres(session):
        turn = func.pg_advisory_xact_lock(_SIGHTINGS_LOCK, func.hashtext(provider))
        session.execute(select(turn))
    query = select(SightingRow.machine_id, SightingRow.first_seen)
    return dict(session.execute(query.where(SightingRow.provider == provider)).all())


def _forget(session: Session, provider: str, machine_ids: Iterable[str]) -> None:
    for machine_id in machine_ids:
        this = (SightingRow.provider == provider, SightingRow.machine_id == machine_id)
        changed(session, delete(SightingRow).where(*this))
