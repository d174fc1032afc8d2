"""Prices of chips: the shipped table, and refreshed prices."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cache
from pathlib import Path

from orchestrator.domain.prices import Price, PriceBook
from runners.google import catalogue as google

PROVIDER = "tpu"
ADDRESS = "address"
MINIMUM_S = 60
_TABLE = Path(__file__).with_name("prices.toml")


@dataclass(frozen=True, slots=True)
class Table:
    """The shipped table."""

    prices: tuple[Price, ...]
    zones: Mapping[str, Mapping[str, tuple[str, ...]]]
    """By generation and region, in the order to try them."""

    def zones_of(self, generation: str) -> tuple[str, ...]:
        """Every zone that is known to have the generation, the likeliest first."""
        return tuple(zone for zones in self.zones.get(generation, {}).values() for zone in zones)


@cache
def table() -> Table:
    """Read the shipped table."""
    raw = tomllib.loads(_TABLE.read_text(encoding="utf-8"))
    day: date = raw["as_of"]
    as_of = datetime(day.year, day.month, day.day, tzinfo=UTC)
    prices: list[Price] = []
    zones: dict[str, dict[str, tuple[str, ...]]] = {}
    for row in raw["chips"]:
        item, region = chip_item(row["generation"]), row["region"]
        zones.setdefault(row["generation"], {})[region] = tuple(row["zones"])
        for market in ("on-demand", "spot"):
            usd = Decimal(row[market])
            prices.append(Price(PROVIDER, item, region, market, usd, as_of, "table"))
            address = Decimal(raw["address_usd_per_hour"][market])
            prices.append(Price(PROVIDER, ADDRESS, region, market, address, as_of, "table"))
    return Table(tuple(prices), zones)


def chip_item(generation: str) -> str:
    """Return the price item of a generation's chips."""
    return f"{generation}-chip"


def known(book: PriceBook | None) -> tuple[Price, ...]:
    """Return the newest price of each item: shipped or refreshed."""
    return google.known(PROVIDER, table().prices, book)


def find(prices: Iterable[Price], item: str, region: str, market: str) -> Price | None:
    """The price of a thing in a region and market; None is unknown."""
    wanted = (item, region, market)
    return next((p for p in prices if (p.item, p.place, p.market) == wanted), None)
