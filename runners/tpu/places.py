"""The places of a platform (zones x markets, in the matrix's order), and the prices of chips."""

from __future__ import annotations

import re
import threading
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import cache
from pathlib import Path

from google.cloud import tpu_v2
from google.cloud.billing_v1 import Sku

from orchestrator.domain.machine import (
    ConfigError,
    CredentialsError,
    NotOfferedError,
    Place,
    ProviderError,
    ProviderUnavailableError,
)
from orchestrator.domain.matrix import Platform
from orchestrator.domain.prices import CATALOGUE, Price, PriceBook
from orchestrator.domain.units import plural
from runners.google import catalogue as google
from runners.google.catalogue import SOURCE, compute_skus, is_plain, market_of, price_note, usd_of
from runners.google.clients import Clients
from runners.google.names import is_zone, region_of
from runners.tpu.client import TpuApi
from runners.tpu.names import location
from runners.tpu.platform_config import TpuPlatformConfig, parse_platform

PROVIDER = "tpu"
ADDRESS = "address"
MINIMUM_S = 60
PAID = "as paid until"
"""Source of a spot price that a customer paid; its date is the last day of that month."""
_TABLE = Path(__file__).with_name("prices.toml")


@dataclass(frozen=True, slots=True)
class TpuPriceTable:
    """The shipped table of prices and zones."""

    prices: tuple[Price, ...]
    zones: Mapping[str, Mapping[str, tuple[str, ...]]]
    """Zones in the order of tries, by generation and region."""

    def zones_of(self, generation: str) -> tuple[str, ...]:
        """Return every zone that is known to have the generation, the most likely first."""
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
    """Return an item's price in a region and market; None if it is unknown."""
    wanted = (item, region, market)
    return next((p for p in prices if (p.item, p.place, p.market) == wanted), None)


_GENERATION = re.compile(r"\bTPU\s?(v5e|v5p|v6e)\b", re.IGNORECASE)


class TpuPriceReader:
    """Reads prices."""

    def __init__(self, clients: Clients, *, now: Callable[[], datetime]) -> None:
        self._clients = clients
        self._now = now

    def read(self) -> tuple[Price, ...]:
        """Return the chip prices in every region of the table. Raises ProviderError."""
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
    """Return the prices in one SKU; empty unless it is a chip by the hour."""
    found = _GENERATION.search(sku.description)
    usd = usd_of(sku, unit="h")
    if found is None or not is_plain(sku) or usd is None:
        return
    for region in sku.service_regions:
        item = chip_item(found[1].lower())
        yield Price(PROVIDER, item, region, market_of(sku), usd, as_of, SOURCE)


KEEP = timedelta(minutes=10)
KEEP_UNKNOWN = timedelta(minutes=1)
TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class _Offer:
    """The accelerator types that a zone offers."""

    types: frozenset[str] | None
    """Accelerator types; None if the zone did not answer, so that only a launch shows its types."""
    until: datetime


class TpuPlaceFinder:
    """Finds the zones that offer an accelerator type, and remembers the cloud's answers."""

    def __init__(
        self, tpu_api: TpuApi, *, prices: PriceBook | None, now: Callable[[], datetime]
    ) -> None:
        self._tpu_api = tpu_api
        self._prices = prices
        self._now = now
        self._offers: dict[str, _Offer] = {}
        self._lock = threading.Lock()

    def places(self, platform: Platform) -> tuple[Place, ...]:
        """Return every zone x market that may have the accelerator type.

        Raises:
            ConfigError: The platform is impossible.
            NotOfferedError: No zone offers the type.
        """
        config = parse_platform(platform)
        return self._priced(config, self._offered(config, _zones(config)))

    def listed(self, platform: Platform) -> tuple[Place, ...]:
        """Return the platform's zones x markets without a request. Raises ProviderError."""
        config = parse_platform(platform)
        return self._priced(config, _zones(config))

    def _priced(self, config: TpuPlatformConfig, zones: tuple[str, ...]) -> tuple[Place, ...]:
        prices = known(self._prices)
        places = [
            place_of(config, zone, market, prices) for market in config.markets for zone in zones
        ]
        if config.cheapest:
            places.sort(key=_price_key)
        return tuple(places)

    def _offered(self, config: TpuPlatformConfig, zones: tuple[str, ...]) -> tuple[str, ...]:
        wanted = config.accelerator.name
        offers = self._ask(zones)
        fitting = tuple(z for z in zones if wanted in (offers[z].types or (wanted,)))
        if fitting:
            return fitting
        counts = ", ".join(
            f"{zone}: {plural(len(offers[zone].types or ()), 'type')}" for zone in zones
        )
        raise NotOfferedError(
            f"Google Cloud offers no {wanted} in the asked locations: ListAcceleratorTypes "
            f"at {self._now():%Y-%m-%dT%H:%M:%SZ} answered {counts}, and none of them is it",
            code="NOT_OFFERED",
        )

    def _ask(self, zones: Iterable[str]) -> dict[str, _Offer]:
        """Return each zone's offer; zones without a cached offer are requested.

        After a failure that would affect all zones, no other zone is requested: its offer is
        unknown.
        """
        now, answers, mute = self._now(), dict[str, _Offer](), False
        for zone in zones:
            with self._lock:
                offer = self._offers.get(zone)
            if offer is None or offer.until <= now:
                types, mute = (None, True) if mute else self._types(zone)
                offer = _Offer(types, now + (KEEP_UNKNOWN if types is None else KEEP))
                with self._lock:
                    self._offers[zone] = offer
            answers[zone] = offer
        return answers

    def _types(self, zone: str) -> tuple[frozenset[str] | None, bool]:
        """Return a zone's types (None: unknown), and whether other zones would fail as well."""
        for _ in range(2):  # good zones answer with an empty list now and then
            try:
                found = self._list(zone)
            except (ProviderUnavailableError, CredentialsError, ConfigError) as error:
                return None, not _is_zones_own(error)
            except ProviderError:
                return None, False
            if found:
                return found, False
        return None, False

    def _list(self, zone: str) -> frozenset[str]:
        request = tpu_v2.ListAcceleratorTypesRequest(
            parent=location(self._tpu_api.project, zone), page_size=500
        )

        def listed(client: tpu_v2.TpuClient) -> frozenset[str]:
            pages = client.list_accelerator_types(request, timeout=TIMEOUT_S).pages
            return frozenset(one.type_ for page in pages for one in page.accelerator_types)

        return self._tpu_api.once(f"list the accelerator types of {zone}", listed)


def place_of(config: TpuPlatformConfig, zone: str, market: str, prices: Iterable[Price]) -> Place:
    """Return a zone and market as a place, with the prices of its chips and public address."""
    region, kind = region_of(zone), config.accelerator
    chip = find(prices, chip_item(kind.generation), region, market)
    address = find(prices, ADDRESS, region, market) if config.public else None
    return Place(
        name=f"{zone}/{kind.name}/{market}",
        price_usd_per_hour=chip.usd_per_hour * kind.chips if chip else None,
        address_usd_per_hour=address.usd_per_hour if address else Decimal(0),
        minimum_s=MINIMUM_S,
        priced=price_note(chip) if chip else "",
        priced_at=chip.as_of if chip else None,
        region=region,
        zone=zone,
        market=market,
        instance_type=kind.name,
    )


def _zones(config: TpuPlatformConfig) -> tuple[str, ...]:
    known_zones = table().zones_of(config.accelerator.generation)
    if not config.locations and not known_zones:
        raise ConfigError(f"locations: list some, no zone is known for {config.accelerator.name}")
    zones: list[str] = []
    for name in config.locations or known_zones:
        zones += _expanded(name, known_zones)
    if not zones:
        raise NotOfferedError(
            f"no zone of {', '.join(config.locations)} is known to have {config.accelerator.name} "
            f"(known are {', '.join(known_zones) or 'none'}); name the zone itself if there is one"
        )
    return tuple(dict.fromkeys(zones))


def _expanded(name: str, known_zones: Iterable[str]) -> list[str]:
    if is_zone(name):
        return [name]
    return [zone for zone in known_zones if zone.startswith(f"{name}-")]


def _is_zones_own(error: ProviderError) -> bool:
    """Return whether an error concerns one zone only, such as an outage.

    For example, invalid credentials concern all zones.
    """
    return error.code in ("PERMISSION_DENIED", "NOT_FOUND", "INVALID_ARGUMENT")


def _price_key(place: Place) -> tuple[bool, Decimal]:
    price = place.usd_per_hour
    return price is None, price or Decimal(0)
