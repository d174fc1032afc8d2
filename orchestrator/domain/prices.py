"""Prices of machines, and warnings about old ones."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Protocol, runtime_checkable

from orchestrator.domain.machine import Place
from orchestrator.domain.matrix import Platform

CATALOGUE = "undated catalogue, read"
"""Source of the shipped prices: the catalogue does not say of which day they are."""
WIDEST_RATIO = Decimal("2.5")
"""Maximum ratio between two places for one item on demand.

Beyond it another product is mixed in.
"""
_ZONE = re.compile(r"[a-z]|-.+")
"""Suffixes of zone names after their region's: `us-east-1a`, `us-east1-b`."""


@dataclass(frozen=True, slots=True)
class Price:
    """Price of one unit of an item, in US dollars per hour."""

    provider: str
    item: str
    """An instance type, or ``disk-gb``, ``address``."""
    place: str
    """A region or a zone."""
    market: str
    """``spot`` or ``on-demand``."""
    usd_per_hour: Decimal
    as_of: datetime
    source: str
    """Source: `CATALOGUE`, ``pricing API``, ``spot history``; the day of `as_of` follows it."""


@dataclass(frozen=True, slots=True)
class UncertainPrice:
    """An implausible price; it is not used."""

    price: Price
    reason: str


@dataclass(frozen=True, slots=True)
class Refreshed:
    """Result of refreshing prices from the providers."""

    kept: tuple[Price, ...]
    uncertain: tuple[UncertainPrice, ...]
    unread: Mapping[str, str]
    """Providers that could not be read, with the reason; their prices are unchanged."""


class PriceBook(Protocol):
    """The newest plausible price of each item, as last refreshed."""

    def write(self, prices: Iterable[Price]) -> None:
        """Store prices; a newer one replaces an older one of the same item."""
        ...

    def of(self, provider: str) -> tuple[Price, ...]:
        """Return the newest price of each (item, place, market)."""
        ...


@runtime_checkable
class Prices(Protocol):
    """A provider whose prices can be read."""

    def read_prices(self) -> Iterable[Price]:
        """Return current prices of the items in the shipped table. Raises ProviderError."""
        ...

    def known_prices(self) -> Iterable[Price]:
        """Return the shipped prices, updated with refreshed ones."""
        ...


@runtime_checkable
class PriceLists(Protocol):
    """A provider with shipped prices, which needs no credentials for them."""

    def listed_places(self, platform: Platform) -> tuple[Place, ...]:
        """Return the places of its known prices; the cloud is not asked. Raises ProviderError."""
        ...


def partition_plausible(
    prices: Iterable[Price],
) -> tuple[tuple[Price, ...], tuple[UncertainPrice, ...]]:
    """Separate plausible from uncertain prices.

    A price is more than nothing; a spot price is lower than the price on demand of its place or
    its region, in the first four decimals; a price on demand is within `WIDEST_RATIO` of those of
    more than half of all places. Where no such majority is, none of them is believed: a machine
    whose price is unknown is not rented, one whose price is wrong is.
    """
    given = tuple(prices)
    on_demand: dict[tuple[str, str], dict[str, Decimal]] = {}
    for price in given:
        if price.market == "on-demand" and not _is_nothing(price):
            places = on_demand.setdefault((price.provider, price.item), {})
            places[price.place] = price.usd_per_hour
    believed: list[Price] = []
    uncertain: list[UncertainPrice] = []
    for price in given:
        why = _doubt(price, on_demand.get((price.provider, price.item), {}))
        if why:
            uncertain.append(UncertainPrice(price, why))
        else:
            believed.append(price)
    return tuple(believed), tuple(uncertain)


def _doubt(price: Price, on_demand: Mapping[str, Decimal]) -> str:
    """Return why a price is implausible, given those of the same item on demand; else empty."""
    if _is_nothing(price):
        return "not more than nothing"
    if price.market == "spot":
        return _spot_doubt(price.usd_per_hour, _at(price.place, on_demand))
    if price.market == "on-demand":
        return _ratio_doubt(price.usd_per_hour, on_demand.values())
    return ""


def _is_nothing(price: Price) -> bool:
    return not price.usd_per_hour.is_finite() or price.usd_per_hour <= 0


def _at(place: str, on_demand: Mapping[str, Decimal]) -> Decimal | None:
    """Return the price of a place, or of a zone's region."""
    if place in on_demand:
        return on_demand[place]
    regions = [x for x in on_demand if place.startswith(x) and _ZONE.fullmatch(place[len(x) :])]
    return on_demand[max(regions, key=len)] if regions else None


def _spot_doubt(spot: Decimal, on_demand: Decimal | None) -> str:
    if on_demand is None:
        return ""
    if f"{spot:.4f}" == f"{on_demand:.4f}":
        return f"spot equals on-demand ({on_demand}): there is no market data behind it"
    return f"spot is dearer than on-demand ({on_demand})" if spot > on_demand else ""


def _ratio_doubt(price: Decimal, others: Collection[Decimal]) -> str:
    near = [x for x in others if max(x, price) <= min(x, price) * WIDEST_RATIO]
    if 2 * len(near) > len(others):
        return ""
    span = f"{min(others)} to {max(others)}"
    return f"more than {WIDEST_RATIO} times off most places, which ask {span}"


OLD, TOO_OLD = timedelta(days=30), timedelta(days=90)
REFRESH = "`seatrial cost --refresh` reads the current ones"


def without_old_prices(
    places: Iterable[Place], now: datetime, *, allowed: bool
) -> tuple[Place, ...]:
    """Return the places; prices older than `TOO_OLD` become unknown, unless allowed."""
    return tuple(
        replace(place, price_usd_per_hour=None)
        if not allowed and _is_past(place, now, TOO_OLD)
        else place
        for place in places
    )


def why_unpriced(place: Place) -> str:
    """Return why a place has no price: ``unknown``, or too old."""
    if place.priced_at is None:
        return "unknown"
    return f"older than {TOO_OLD.days} days ({place.priced})"


def price_age_warning(places: Iterable[Place], now: datetime) -> str:
    """Return a warning where the oldest price is older than `OLD`; else empty."""
    old = [place for place in places if _is_past(place, now, OLD)]
    if not old:
        return ""
    oldest = min(old, key=lambda place: place.priced_at or now)
    days = (now - (oldest.priced_at or now)).days
    return f"prices are at least {days} days old ({oldest.priced}, {oldest.name}): {REFRESH}"


def unpriced_warning(places: Iterable[Place]) -> str:
    """Return a warning where some places have no price, and so are not rented; else empty."""
    unknown = {
        f"{place.market} in {place.region}" if place.region else place.name: None
        for place in places
        if place.usd_per_hour is None and place.priced_at is None
    }
    told = ", ".join(unknown)
    return f"no price is known for {told}: none is rented there; {REFRESH}" if told else ""


def _is_past(place: Place, now: datetime, limit: timedelta) -> bool:
    return place.priced_at is not None and now - place.priced_at > limit
