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
"""Source of the shipped prices; the catalogue does not state their day."""
WIDEST_RATIO = Decimal("2.5")
"""Maximum ratio between the on-demand prices of an item at two places.

A larger ratio means that one of the prices is that of another product.
"""
_ZONE = re.compile(r"[a-z]|-.+")
"""Suffixes that zones add to the name of their region, as in `us-east-1a` and `us-east1-b`."""


@dataclass(frozen=True, slots=True)
class Price:
    """The price of one unit of an item, in US dollars per hour."""

    provider: str
    item: str
    """An instance type, or another item, such as ``disk-gb`` or ``address``."""
    place: str
    """A region or a zone."""
    market: str
    """``spot`` or ``on-demand``."""
    usd_per_hour: Decimal
    as_of: datetime
    source: str
    """The source (`CATALOGUE`, ``pricing API`` or ``spot history``), followed by the day of
    `as_of`."""


@dataclass(frozen=True, slots=True)
class UncertainPrice:
    """An implausible price, which is not used."""

    price: Price
    reason: str


@dataclass(frozen=True, slots=True)
class Refreshed:
    """The result of reading prices from the providers."""

    kept: tuple[Price, ...]
    uncertain: tuple[UncertainPrice, ...]
    unread: Mapping[str, str]
    """Providers that could not be read, with the reason; their prices did not change."""


class PriceBook(Protocol):
    """Stores the newest plausible price of each item."""

    def write(self, prices: Iterable[Price]) -> None:
        """Store prices; a newer price replaces an older one of the same item."""
        ...

    def of(self, provider: str) -> tuple[Price, ...]:
        """Return the newest price of each (item, place, market) of the provider."""
        ...


@runtime_checkable
class Prices(Protocol):
    """A provider whose prices can be read."""

    def read_prices(self) -> Iterable[Price]:
        """Return the current prices of the items in the shipped table. Raises ProviderError."""
        ...

    def known_prices(self) -> Iterable[Price]:
        """Return the shipped prices, replaced by newer ones where there are any."""
        ...


@runtime_checkable
class PriceLists(Protocol):
    """A provider with shipped prices, which can be used without credentials."""

    def listed_places(self, platform: Platform) -> tuple[Place, ...]:
        """Return the places with known prices without asking the cloud. Raises ProviderError."""
        ...


def partition_plausible(
    prices: Iterable[Price],
) -> tuple[tuple[Price, ...], tuple[UncertainPrice, ...]]:
    """Divide prices into plausible and uncertain ones.

    A plausible price is above 0. A plausible spot price is lower than the on-demand price of
    its place or region, compared to four decimals. A plausible on-demand price differs by at
    most `WIDEST_RATIO` from those of more than half of the places; without such a majority, all
    are uncertain. A machine with an unknown price is not rented, but one with a wrong price
    would be.
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
    """Return why a price is implausible; empty if it is plausible.

    `on_demand` has the on-demand prices of the same item, by place.
    """
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
    """Return the on-demand price of a place, or of its region; None if there is none."""
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
    """Return the places; prices older than `TOO_OLD` become unknown, unless they are allowed."""
    return tuple(
        replace(place, price_usd_per_hour=None)
        if not allowed and _is_past(place, now, TOO_OLD)
        else place
        for place in places
    )


def why_unpriced(place: Place) -> str:
    """Return why a place has no price: ``unknown``, or that it is too old."""
    if place.priced_at is None:
        return "unknown"
    return f"older than {TOO_OLD.days} days ({place.priced})"


def why_unpriced_list(places: Iterable[Place]) -> str:
    """Return why a provider's price list has no usable price: none at all, or too old ones."""
    old = next((place for place in places if place.priced_at is not None), None)
    found = f"every listed price is {why_unpriced(old)}" if old else "no price is listed for it"
    return f"its cost is unknown: {found}"


def price_age_warning(places: Iterable[Place], now: datetime) -> str:
    """Return a warning if the oldest price is older than `OLD`; otherwise empty."""
    old = [place for place in places if _is_past(place, now, OLD)]
    if not old:
        return ""
    oldest = min(old, key=lambda place: place.priced_at or now)
    days = (now - (oldest.priced_at or now)).days
    return f"prices are at least {days} days old ({oldest.priced}, {oldest.name}): {REFRESH}"


def unpriced_warning(places: Iterable[Place]) -> str:
    """Return a warning if places have no price and are therefore not used; otherwise empty."""
    unknown = {
        f"{place.market} in {place.region}" if place.region else place.name: None
        for place in places
        if place.usd_per_hour is None and place.priced_at is None
    }
    told = ", ".join(unknown)
    return f"no price is known for {told}: none is rented there; {REFRESH}" if told else ""


def _is_past(place: Place, now: datetime, limit: timedelta) -> bool:
    return place.priced_at is not None and now - place.priced_at > limit
