"""Known prices: what is shipped, and what was refreshed since."""

from __future__ import annotations

from collections.abc import Iterable

from orchestrator.domain.prices import Price, PriceBook


def known(provider: str, shipped: Iterable[Price], book: PriceBook | None) -> tuple[Price, ...]:
    """The newest price of each thing: (item, place, market) once."""
    newest: dict[tuple[str, str, str], Price] = {}
    for price in (*shipped, *(book.of(provider) if book is not None else ())):
        key = (price.item, price.place, price.market)
        if key not in newest or price.as_of >= newest[key].as_of:
            newest[key] = price
    return tuple(newest.values())


def said_by(price: Price) -> str:
    """Where a price is from, for a person: ``table 2026-11-21``."""
    return f"{price.source} {price.as_of:%Y-%m-%d}"
