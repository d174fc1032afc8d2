"""Where a platform may be launched, in which order, at what price."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from decimal import Decimal

from google.cloud import compute_v1

from orchestrator.domain.machine import ConfigError, NotOfferedError, Place
from orchestrator.domain.matrix import Platform
from orchestrator.domain.prices import Price
from runners.gcp.clients import ComputeClients
from runners.gcp.machines import KNOWN, plain
from runners.gcp.platform_config import PlatformConfig, parse_platform
from runners.gcp.prices import ADDRESS, DISK, KnownPrices, table
from runners.google.names import region_of
from runners.google.prices import said_by
from runners.google.responses import READ_TIMEOUT_S, listed
from runners.ttl_cache import TtlCache

MINIMUM_S = 60
"""Compute Engine bills by the second, after the first minute."""

Prices = Mapping[tuple[str, str, str], Price]


class Offers:
    """Answers `places`; remembers what it asked for a while."""

    def __init__(
        self, clients: ComputeClients, prices: KnownPrices, now: Callable[[], datetime]
    ) -> None:
        self._clients = clients
        self._prices = prices
        self._zones: TtlCache[tuple[str, ...]] = TtlCache(now, serve_stale=False)
        self._accelerators: TtlCache[tuple[tuple[str, ...], int]] = TtlCache(now, serve_stale=False)
        self._now = now

    def places(self, platform: Platform) -> tuple[Place, ...]:
        """In the order to try them: market by market, location by location, type by type.

        Raises:
            ConfigError: The platform cannot be meant for Compute Engine.
            NotOfferedError: It is not sold, with the recorded answer.
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
            found.sort(key=_dearness)
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

    def _not_sold(self, config: PlatformConfig) -> NotOfferedError | ConfigError:
        at = self._now()
        names, zones = self._accelerators.get("all", self._ask_accelerators)
        answer = (
            f"acceleratorTypes.aggregatedList answered {len(names)} accelerators in {zones} zones "
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
        self, config: PlatformConfig, zones: Mapping[str, tuple[str, ...]]
    ) -> NotOfferedError:
        answer = "; ".join(
            f"{each}: {len(found)} zones ({', '.join(_regions([found])) or 'none'})"
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
    """Every zone of the shipped table."""
    return tuple(zone for zones in table().zones.values() for zone in zones)


def _regions(zones: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(region_of(zone) for found in zones for zone in found))


def _place(
    zone: str, instance_type: str, market: str, config: PlatformConfig, prices: Prices
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
        priced=said_by(machine) if machine else "",
        region=region,
        zone=zone,
        market=market,
        instance_type=instance_type,
    )


def _newest(prices: Prices, item: str, where: tuple[str, ...], market: str) -> Price | None:
    found = [prices[item, each, market] for each in where if (item, each, market) in prices]
    return max(found, key=lambda price: price.as_of, default=None)


def _dearness(place: Place) -> tuple[bool, Decimal]:
    usd = place.usd_per_hour
    return usd is None, usd or Decimal(0)
