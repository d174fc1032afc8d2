"""The places of a platform: zones x markets, in the matrix's order.

The zones that are known to have a generation are in ``prices.toml``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal

from google.cloud import tpu_v2

from orchestrator.domain.machine import (
    ConfigError,
    CredentialsError,
    NotOfferedError,
    Place,
    ProviderError,
    ProviderUnavailableError,
)
from orchestrator.domain.matrix import Platform
from orchestrator.domain.prices import Price, PriceBook
from orchestrator.domain.units import plural
from runners.google.catalogue import price_note
from runners.google.names import is_zone, region_of
from runners.tpu.client import TpuApi
from runners.tpu.names import location
from runners.tpu.platform_config import TpuPlatformConfig, parse_platform
from runners.tpu.prices import ADDRESS, MINIMUM_S, chip_item, find, known, table

KEEP = timedelta(minutes=10)
KEEP_UNKNOWN = timedelta(minutes=1)
TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class _Offer:
    """The accelerator types that a zone offers."""

    types: frozenset[str] | None
    """None if the zone did not answer: then only a launch shows whether it has the type."""
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
        zones = self._offered(config, _zones(config))
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
        """Return each zone's offer; after a failure that is not zonal, no other is requested."""
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
    """Return one place with its prices."""
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
    """Whether an error concerns one zone only, such as an outage.

    Broken credentials concern all.
    """
    return error.code in ("PERMISSION_DENIED", "NOT_FOUND", "INVALID_ARGUMENT")


def _price_key(place: Place) -> tuple[bool, Decimal]:
    price = place.usd_per_hour
    return price is None, price or Decimal(0)
