"""Offers: the places of a platform, their order, and their list prices."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, time
from decimal import Decimal
from functools import cache
from pathlib import Path

from google.cloud import billing_v1, compute_v1

from orchestrator.domain.machine import ConfigError, NotOfferedError, Place
from orchestrator.domain.matrix import Platform
from orchestrator.domain.prices import CATALOGUE, Price, PriceBook
from orchestrator.domain.units import plural
from runners.gcp.clients import ComputeClients
from runners.gcp.platform_config import (
    KNOWN,
    GcpPlatformConfig,
    MachineShape,
    parse_platform,
    plain,
)
from runners.google.catalogue import (
    SOURCE,
    compute_skus,
    is_plain,
    known,
    market_of,
    price_note,
    usd_of,
)
from runners.google.clients import Clients
from runners.google.names import region_of
from runners.google.responses import READ_TIMEOUT_S, listed
from runners.ttl_cache import TtlCache

PROVIDER = "gcp"
DISK, ADDRESS = "disk-gb", "address"
HOURS_PER_MONTH = Decimal(730)
MARKETS = ("on-demand", "spot")
_HUNDRED_THOUSANDTH = Decimal("0.00001")
_TABLE = Path(__file__).with_name("prices.toml")


@dataclass(frozen=True, slots=True)
class GcpPriceTable:
    """The shipped price table."""

    as_of: datetime
    zones: Mapping[str, tuple[str, ...]]
    """Zones in order, by region."""
    prices: tuple[Price, ...]


@cache
def table() -> GcpPriceTable:
    """Read the shipped table, once."""
    said = tomllib.loads(_TABLE.read_text(encoding="utf-8"))
    as_of = datetime.combine(said["read_on"], time(), UTC)
    zones = {region: tuple(f"{region}-{z}" for z in ends) for region, ends in said["zones"].items()}
    machines = [
        Price(PROVIDER, name, region, market, _g2(shape, parts), as_of, CATALOGUE)
        for market in MARKETS
        for region, parts in said["g2"][market].items()
        for name, shape in KNOWN.items()
    ]
    per_hour = {
        DISK: Decimal(said["disk_gb_month"]) / HOURS_PER_MONTH,
        ADDRESS: Decimal(said["address_hour"]),
    }
    others = [
        Price(PROVIDER, item, region, "on-demand", usd, as_of, CATALOGUE)
        for item, usd in per_hour.items()
        for region in zones
    ]
    return GcpPriceTable(as_of, zones, (*machines, *others))


def _g2(shape: MachineShape, parts: Mapping[str, str]) -> Decimal:
    """Return the price of a G2 machine from its parts: every type has 4 GiB a core."""
    cores = Decimal(parts["cores_12"]) * shape.cpus / 12
    return (cores + Decimal(parts["l4"]) * shape.count).quantize(_HUNDRED_THOUSANDTH)


class KnownPrices:
    """The newest price of each item: refreshed or shipped."""

    def __init__(self, book: PriceBook | None) -> None:
        self._book = book

    def all(self) -> tuple[Price, ...]:
        """Return the newest price of each item, place and market."""
        return known(PROVIDER, table().prices, self._book)

    def index(self) -> Mapping[tuple[str, str, str], Price]:
        """Return the newest prices by item, place and market."""
        return {(price.item, price.place, price.market): price for price in self.all()}


MINIMUM_S = 60
"""Minimum billed seconds: Compute Engine bills by the second after the first minute."""

Prices = Mapping[tuple[str, str, str], Price]


class GcpPlaceFinder:
    """Finds places; caches the answers of the cloud for a while."""

    def __init__(
        self, clients: ComputeClients, prices: KnownPrices, now: Callable[[], datetime]
    ) -> None:
        self._clients = clients
        self._prices = prices
        self._zones: TtlCache[tuple[str, ...]] = TtlCache(now, serve_stale=False)
        self._accelerators: TtlCache[tuple[tuple[str, ...], int]] = TtlCache(now, serve_stale=False)
        self._now = now

    def places(self, platform: Platform) -> tuple[Place, ...]:
        """Return places in the order of tries: by market, location and type.

        Raises:
            ConfigError: The platform is invalid for Compute Engine.
            NotOfferedError: No zone sells it; the text has the recorded answer.
        """
        config = parse_platform(platform)
        if not config.types:
            raise self._not_sold(config)
        zones = {each: self._zones_with(each) for each in config.types}
        prices = self._prices.index()
        found = [
            _place(zone, instance_type, market, config, prices)
            for market in config.markets
            for location in config.locations or _regions(zones.values())
            for instance_type in config.types
            for zone in zones[instance_type]
            if location in (zone, region_of(zone))
        ]
        if not found:
            raise self._sold_elsewhere(config, zones)
        if not config.locations:
            found.sort(key=_price_key)
        return tuple({place.name: place for place in found}.values())

    def _zones_with(self, instance_type: str) -> tuple[str, ...]:
        if instance_type in KNOWN:
            return known_zones()
        return self._zones.get(instance_type, lambda: self._ask_zones(instance_type))

    def _ask_zones(self, instance_type: str) -> tuple[str, ...]:
        request = compute_v1.AggregatedListMachineTypesRequest(
            project=self._clients.project, filter=f'name = "{instance_type}"'
        )
        scopes = listed(
            f"asking where {instance_type} is sold",
            lambda: list(
                self._clients.machine_types.aggregated_list(
                    request, retry=None, timeout=READ_TIMEOUT_S
                )
            ),
        )
        return tuple(
            scope.removeprefix("zones/")
            for scope, found in scopes
            if any(each.name == instance_type for each in found.machine_types)
        )

    def _ask_accelerators(self) -> tuple[tuple[str, ...], int]:
        request = compute_v1.AggregatedListAcceleratorTypesRequest(project=self._clients.project)
        scopes = listed(
            "asking which accelerators are sold",
            lambda: list(
                self._clients.accelerator_types.aggregated_list(
                    request, retry=None, timeout=READ_TIMEOUT_S
                )
            ),
        )
        names = {each.name for _, found in scopes for each in found.accelerator_types}
        return tuple(sorted(names)), sum(1 for _, found in scopes if found.accelerator_types)

    def _not_sold(self, config: GcpPlatformConfig) -> NotOfferedError | ConfigError:
        at = self._now()
        names, zones = self._accelerators.get("all", self._ask_accelerators)
        answer = (
            f"acceleratorTypes.aggregatedList answered {plural(len(names), 'accelerator')} in "
            f"{plural(zones, 'zone')} "
            f"({', '.join(names) or 'none'}), {at:%Y-%m-%d %H:%M} UTC"
        )
        wanted = plain(config.accelerator)
        if any(wanted == plain(name) for name in names):
            return ConfigError(
                f"accelerator: no machine type with {config.count} x {config.accelerator} is known "
                f"here; name one by instance_type. {answer}"
            )
        return NotOfferedError(
            f"Compute Engine does not sell {config.count} x {config.accelerator}: {answer}",
            code="not_offered",
        )

    def _sold_elsewhere(
        self, config: GcpPlatformConfig, zones: Mapping[str, tuple[str, ...]]
    ) -> NotOfferedError:
        answer = "; ".join(
            f"{each}: {plural(len(found), 'zone')} ({', '.join(_regions([found])) or 'none'})"
            for each, found in zones.items()
        )
        known = all(each in KNOWN for each in config.types)
        source = f"table {table().as_of:%Y-%m-%d}" if known else "machineTypes.aggregatedList"
        return NotOfferedError(
            f"Compute Engine does not sell {', '.join(config.types)} in "
            f"{', '.join(config.locations) or 'any region'}; {source} says where, "
            f"{self._now():%Y-%m-%d %H:%M} UTC: {answer}",
            code="not_offered",
        )


def known_zones() -> tuple[str, ...]:
    """Return every zone of the shipped table."""
    return tuple(zone for zones in table().zones.values() for zone in zones)


def _regions(zones: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(region_of(zone) for found in zones for zone in found))


def _place(
    zone: str, instance_type: str, market: str, config: GcpPlatformConfig, prices: Prices
) -> Place:
    region = region_of(zone)
    machine = _newest(prices, instance_type, (zone, region), market)
    disk = _newest(prices, DISK, (region,), "on-demand")
    address = _newest(prices, ADDRESS, (region,), "on-demand")
    return Place(
        name=f"{zone}/{instance_type}/{market}",
        price_usd_per_hour=machine.usd_per_hour if machine else None,
        disk_usd_per_hour=disk.usd_per_hour * config.disk_gb if disk else Decimal(0),
        address_usd_per_hour=address.usd_per_hour if address and config.is_public else Decimal(0),
        minimum_s=MINIMUM_S,
        priced=price_note(machine) if machine else "",
        priced_at=machine.as_of if machine else None,
        region=region,
        zone=zone,
        market=market,
        instance_type=instance_type,
    )


def _newest(prices: Prices, item: str, where: tuple[str, ...], market: str) -> Price | None:
    found = [prices[item, each, market] for each in where if (item, each, market) in prices]
    return max(found, key=lambda price: price.as_of, default=None)


def _price_key(place: Place) -> tuple[bool, Decimal]:
    usd = place.usd_per_hour
    return usd is None, usd or Decimal(0)


_PART = re.compile(r"(?:spot preemptible )?(.+?) (?:instance )?(gpu|ram|core)\b", re.IGNORECASE)
_DISK = re.compile(r"Balanced PD Capacity\b(?! in .*Regional)", re.IGNORECASE)

Parts = Mapping[tuple[str, str, str], Decimal]
"""USD per hour by part, region and market; a part is ``g2 core``, ``g2 ram``, ``nvidia l4 gpu``."""


def read_catalogue(clients: Clients, now: datetime) -> tuple[Price, ...]:
    """Return today's prices of all items in the shipped table. Raises ProviderError."""
    return prices_from(compute_skus(clients), now)


def prices_from(skus: Iterable[billing_v1.Sku], now: datetime) -> tuple[Price, ...]:
    """Return the prices of the table's items from the catalogue's entries."""
    parts = _parts(skus)
    return (*_machines(parts, now), *_disks(parts, now))


def _machines(parts: Parts, now: datetime) -> Iterable[Price]:
    for name, shape in KNOWN.items():
        for region in table().zones:
            for market in MARKETS:
                usd = _total(parts, shape, region, market)
                if usd is not None:
                    yield Price(PROVIDER, name, region, market, usd, now, SOURCE)


def _total(parts: Parts, shape: MachineShape, region: str, market: str) -> Decimal | None:
    wanted = {
        f"{shape.family} core": shape.cpus,
        f"{shape.family} ram": shape.memory_gib,
        f"{shape.accelerator_sku} gpu": shape.count,
    }
    found = [(parts.get((part, region, market)), amount) for part, amount in wanted.items()]
    known = [(usd, amount) for usd, amount in found if usd is not None]
    if len(known) < len(wanted):
        return None  # half a price is none
    return sum((usd * amount for usd, amount in known), Decimal(0))


def _disks(parts: Parts, now: datetime) -> Iterable[Price]:
    for region in table().zones:
        usd = parts.get((DISK, region, "on-demand"))
        if usd is not None:
            per_hour = usd / HOURS_PER_MONTH
            yield Price(PROVIDER, DISK, region, "on-demand", per_hour, now, SOURCE)


def _parts(skus: Iterable[billing_v1.Sku]) -> Parts:
    found: dict[tuple[str, str, str], Decimal] = {}
    for sku in skus:
        part, usd = _part(sku), usd_of(sku)
        if not part or usd is None:
            continue
        for region in sku.service_regions:
            found[part, region, market_of(sku)] = usd
    return found


def _part(sku: billing_v1.Sku) -> str:
    if sku.category.usage_type not in ("OnDemand", "Preemptible") or not is_plain(sku):
        return ""
    if sku.category.resource_family == "Storage" and _DISK.match(sku.description):
        return DISK
    matched = _PART.match(sku.description)
    if matched is None or sku.category.resource_family != "Compute":
        return ""
    return f"{matched[1]} {matched[2]}".lower()
