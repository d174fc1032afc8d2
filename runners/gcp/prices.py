"""What machines cost: the shipped, dated table, and what was refreshed since."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, time
from decimal import Decimal
from functools import cache
from pathlib import Path

from orchestrator.domain.prices import Price, PriceBook
from runners.google.prices import known

PROVIDER = "gcp"
DISK, ADDRESS = "disk-gb", "address"
HOURS_PER_MONTH = Decimal(730)
MARKETS = ("on-demand", "spot")
_TABLE = Path(__file__).with_name("prices.toml")


@dataclass(frozen=True, slots=True)
class Table:
    """The shipped price table."""

    as_of: datetime
    zones: Mapping[str, tuple[str, ...]]
    """Region -> zones, in order."""
    prices: tuple[Price, ...]


@cache
def table() -> Table:
    """Read the shipped table, once."""
    said = tomllib.loads(_TABLE.read_text(encoding="utf-8"))
    as_of = datetime.combine(said["as_of"], time(), UTC)
    zones = {region: tuple(f"{region}-{z}" for z in ends) for region, ends in said["zones"].items()}
    machines = [
        Price(PROVIDER, item, region, market, Decimal(usd), as_of, "table")
        for market in MARKETS
        for item, regions in said.get(market, {}).items()
        for region, usd in regions.items()
    ]
    per_hour = {
        DISK: Decimal(said["disk_gb_month"]) / HOURS_PER_MONTH,
        ADDRESS: Decimal(said["address_hour"]),
    }
    others = [
        Price(PROVIDER, item, region, "on-demand", usd, as_of, "table")
        for item, usd in per_hour.items()
        for region in zones
    ]
    return Table(as_of, zones, (*machines, *others))


class KnownPrices:
    """The newest price of each thing: refreshed, else shipped."""

    def __init__(self, book: PriceBook | None) -> None:
        self._book = book

    def all(self) -> tuple[Price, ...]:
        """Each (item, place, market) once."""
        return known(PROVIDER, table().prices, self._book)

    def index(self) -> Mapping[tuple[str, str, str], Price]:
        """The same by (item, place, market)."""
        return {(price.item, price.place, price.market): price for price in self.all()}
