"""What the database would say later, said now: controllers look at it, not at a clock of the test.

That a schedule is due at its time, and that a lease lasts as long as it should, is proven in
`tests/contract` and `tests/integration`.
"""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime

from sqlalchemy import update

from orchestrator.store.database import open_database
from orchestrator.store.tables import ControllerRow, DeliveryRow, FiringRow, ScheduleRow


def let_leases_end(url: str) -> None:
    """Every hold of a firing or of a message is over; a live holder of one would lose it.

    Args:
        url: Of the database.
    """
    with closing(open_database(url)) as database, database.sessions.write() as session:
        session.execute(update(FiringRow).values(claim_expires_s=0.0))
        held = DeliveryRow.claimed_until_s.is_not(None)
        session.execute(update(DeliveryRow).where(held).values(claimed_until_s=0.0))


def let_be_due(url: str, schedule: str) -> None:
    """The schedule's time has come.

    Args:
        url: Of the database.
        schedule: Its name.
    """
    with closing(open_database(url)) as database, database.sessions.write() as session:
        mine = update(ScheduleRow).where(ScheduleRow.name == schedule)
        session.execute(mine.values(next_due_at=datetime.now(UTC)))


def let_silence_pass(url: str) -> None:
    """No controller was heard of for long; those that live say so again within a beat.

    Args:
        url: Of the database.
    """
    with closing(open_database(url)) as database, database.sessions.write() as session:
        session.execute(update(ControllerRow).values(last_seen_s=0.0))
