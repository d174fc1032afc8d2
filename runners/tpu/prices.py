"""Prices of chips: the shipped table, and Google's catalogue."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import cache
from pathlib import Path

from google.cloud.billing_v1 import Sku

from orchestrator.domain.machine import ProviderUnavailableError
from orchestrator.domain.prices import CATALOGUE, Price, PriceBook
from runners.google import catalogue as google
from runners.google.catalogue import SOURCE, compute_skus, is_plain, market_of, usd_of
from runners.google.clients import Clients

PROVIDER = "tpu"
ADDRESS = "address"
MINIMUM_S = 60
PAID = "as paid until"
"""Source of a spot price that a customer paid; its day is the last of that month."""
_TABLE = Path(__file__).with_name("prices.toml")


@dataclass(frozen=True, slots=True)
class TpuPriceTable:
    """The shipped table."""

    prices: tuple[Price, ...]
    zones: Mapping[str, Mapping[str, tuple[str, ...]]]
    """By generation and region, in the order to try them."""

    def zones_of(self, generation: str) -> tuple[str, ...]:
        """Every zone that is known to have the generation, the likeliest first."""
        return tuple(zone for zones in self.zones.get(generation, {}).values() for zone in zones)


@cache
def table() -> TpuPriceTable:
    """Read the shipped table."""
    raw = tomllib.loads(_TABLE.read_text(encoding="utf-8"))
    read, paid = (_midnight(raw[key]) for key in ("read_on", "paid_until"))
    prices: list[Price] = []
    zones: dict[str, dict[str, tuple[str, ...]]] = {}
    for row in raw["chips"]:
        item, region = chip_item(row["generation"]), row["region"]
        zones.setdefault(row["generation"], {})[region] = tuple(row["zones"])
        for market in ("on-demand", "spot"):
            when, source = (paid, PAID) if f"{market}-paid" in row else (read, CATALOGUE)
            usd = Decimal(row.get(f"{market}-paid") or row[market])
            prices.append(Price(PROVIDER, item, region, market, usd, when, source))
            address = Decimal(raw["address_usd_per_hour"][market])
            prices.append(Price(PROVIDER, ADDRESS, region, market, address, read, CATALOGUE))
    return TpuPriceTable(tuple(prices), zones)


def _midnight(day: date) -> datetime:
    return datetime(day.year, day.month, day.day, tzinfo=UTC)


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


_GENERATION = re.compile(r"\bTPU\s?(v5e|v5p|v6e)\b", re.IGNORECASE)


class TpuPriceReader:
    """Reads prices."""

    def __init__(self, clients: Clients, *, now: Callable[[], datetime]) -> None:
        self._clients = clients
        self._now = now

    def read(self) -> tuple[Price, ...]:
        """The chips' prices in every region of the table. Raises ProviderError."""
        if not self._clients.has_catalogue:
            raise ProviderUnavailableError(
                "prices of tpu: SEATRIAL_GCP_TPU_ENDPOINT is set and SEATRIAL_GCP_BILLING_ENDPOINT "
                "is not, so the real catalogue is not asked; the shipped table holds",
                code="NOT_ASKED",
            )
        now = self._now()
        known = {(price.item, price.place) for price in table().prices}
        found = [price for sku in compute_skus(self._clients) for price in prices_of(sku, now)]
        return tuple(price for price in found if (price.item, price.place) in known)


def prices_of(sku: Sku, as_of: datetime) -> Iterable[Price]:
    """The prices in one SKU: none unless it is a chip by the hour."""
    found = _GENERATION.search(sku.description)
    usd = usd_of(sku, unit="h")
    if found is None or not is_plain(sku) or usd is None:
        return
    for region in sku.service_regions:
        item = chip_item(found[1].lower())
        yield Price(PROVIDER, item, region, market_of(sku), usd, as_of, SOURCE)
