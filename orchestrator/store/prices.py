"""Prices as refreshed, by provider, item, place and market."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import (
    select,
)

from orchestrator.domain.extend_record import filled
from orchestrator.domain.prices import Price
from orchestrator.store.sessions import Sessions
from orchestrator.store.sql import insert_into, values_of
from orchestrator.store.tables import PriceRow

_THING = ("provider", "item", "place", "market")


class PriceStore:
    """The newest plausible price of each item."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def write(self, prices: Iterable[Price]) -> None:
        """Store prices; the newest of each item is kept, of equally old ones the first."""
        newest: dict[tuple[str, ...], Price] = {}
        for price in prices:
            thing = (price.provider, price.item, price.place, price.market)
            if thing not in newest or newest[thing].as_of < price.as_of:
                newest[thing] = price
        if not newest:
            return
        rows = [values_of(PriceRow, newest[thing]) for thing in sorted(newest)]
        with self._sessions.write() as session:
            insert = insert_into(session, PriceRow)
            new = insert.excluded
            statement = insert.on_conflict_do_update(
                index_elements=_THING,
                set_={name: new[name] for name in ("usd_per_hour", "as_of", "source")},
                where=PriceRow.as_of < new.as_of,
            )
            session.execute(statement, rows)

    def of(self, provider: str) -> tuple[Price, ...]:
        """Return the newest price by item, place and market."""
        query = select(PriceRow).where(PriceRow.provider == provider)
        ordered = query.order_by(PriceRow.item, PriceRow.place, PriceRow.market)
        with self._sessions.read() as session:
            return tuple(filled(Price, row) for row in session.scalars(ordered))
