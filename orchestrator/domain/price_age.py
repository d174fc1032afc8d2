"""Age of prices: a warning after a month, unknown after three."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime, timedelta

from orchestrator.domain.machine import Place

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
    return f"prices are {days} days old ({oldest.priced}, {oldest.name}): {REFRESH}"


def _is_past(place: Place, now: datetime, limit: timedelta) -> bool:
    return place.priced_at is not None and now - place.priced_at > limit
