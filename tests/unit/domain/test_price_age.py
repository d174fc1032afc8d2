"""How long a price is believed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from orchestrator.domain.machine import Place
from orchestrator.domain.prices import (
    price_age_warning,
    unpriced_warning,
    why_unpriced,
    without_old_prices,
)

NOW = datetime(2026, 12, 31, tzinfo=UTC)


def place(days: float | None, name: str = "here") -> Place:
    at = None if days is None else NOW - timedelta(days=days)
    priced = "" if at is None else f"table {at:%Y-%m-%d}"
    return Place(name, price_usd_per_hour=Decimal(1), priced=priced, priced_at=at)


@pytest.mark.parametrize(
    ("days", "told", "known"),
    [(None, False, True), (30, False, True), (31, True, True), (90, True, True), (91, True, False)],
)
def test_a_price_is_told_after_a_month_and_unknown_after_three(
    days: float | None, told: bool, known: bool
) -> None:
    assert bool(price_age_warning([place(days)], NOW)) is told
    (kept,) = without_old_prices([place(days)], NOW, allowed=False)
    assert (kept.price_usd_per_hour is not None) is known
    assert without_old_prices([place(days)], NOW, allowed=True) == (place(days),)


def test_the_oldest_is_named_with_what_to_do() -> None:
    told = price_age_warning([place(3, "young"), place(95, "old"), place(40)], NOW)
    assert told == (
        "prices are at least 95 days old (table 2026-09-27, old): `seatrial cost --refresh` reads"
        " the current ones"
    )
    assert why_unpriced(place(95)) == "older than 90 days (table 2026-09-27)"
    assert why_unpriced(place(None)) == "unknown"


def test_where_spot_has_no_price_is_told_once_for_each_region() -> None:
    def at(region: str, market: str, usd: str | None) -> Place:
        price = None if usd is None else Decimal(usd)
        priced_at = None if usd is None else NOW
        name = f"{region}a/x/{market}"
        return Place(
            name, price_usd_per_hour=price, priced_at=priced_at, region=region, market=market
        )

    known = [at("one", "spot", "0.4"), at("one", "on-demand", "1"), at("two", "on-demand", "1")]
    assert unpriced_warning(known) == ""
    told = unpriced_warning([*known, at("two", "spot", None), at("two", "spot", None)])
    assert told == (
        "no price is known for spot in two: none is rented there; `seatrial cost --refresh` reads "
        "the current ones"
    )
    assert unpriced_warning([at("", "", None)]).startswith("no price is known for a/x/: none")
