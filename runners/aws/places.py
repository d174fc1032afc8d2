"""Where a platform may be launched, in the order to try it, with what it costs there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime
from decimal import Decimal
from itertools import product

from orchestrator.domain.machine import Extent, NotOfferedError, Place, ProviderError
from runners.aws.catalogue import Catalogue
from runners.aws.network import Network
from runners.aws.platform_config import Location, PlatformConfig
from runners.aws.prices import PriceList
from runners.aws.shipped_table import shipped

MINIMUM_S = 60
_DEAREST = Decimal("Infinity")


class PlaceFinder:
    """Finds the places of platforms."""

    def __init__(self, catalogue: Catalogue, network: Network, now: Callable[[], datetime]) -> None:
        self._catalogue = catalogue
        self._network = network
        self._now = now

    def places(self, config: PlatformConfig, prices: PriceList) -> tuple[Place, ...]:
        """Market by market, within it location by location, then type by type.

        A location that does not answer is left out while another one does.

        Raises:
            NotOfferedError: Every location answered, and none has any of the types.
            ConfigError: A machine there would have a public address, and nobody to let in.
            ProviderError: Nothing was found, and a location did not answer.
        """
        types = self._catalogue.chosen(config)
        failed: list[ProviderError] = []
        found: dict[str, Place] = {}
        for market, location, instance_type in product(config.markets, config.locations, types):
            try:
                zones = self._zones(config, location, instance_type)
            except ProviderError as error:
                failed.append(error)
                continue
            for zone in zones:
                place = _place(config, prices, (location.region, zone), (instance_type, market))
                found.setdefault(place.name, place)
        if not found:
            raise failed[0] if failed else self._not_offered(config, types)
        self._network.require_ingress(config)  # said by a plan already, not only by a launch
        if config.cheapest:
            return tuple(sorted(found.values(), key=lambda place: place.usd_per_hour or _DEAREST))
        return tuple(found.values())

    def _zones(
        self, config: PlatformConfig, location: Location, instance_type: str
    ) -> Iterator[str]:
        zones = self._catalogue.zones(instance_type, location.region)
        subnets = self._network.subnets(config, location.region) if zones else {}
        return (zone for zone in zones if zone in subnets and location.zone in ("", zone))

    def _not_offered(self, config: PlatformConfig, types: tuple[str, ...]) -> NotOfferedError:
        asked = ", ".join(location.zone or location.region for location in config.locations)
        within = f" in the subnets {', '.join(config.subnets)}" if config.subnets else ""
        return NotOfferedError(
            f"EC2 offers {' and '.join(types)} in none of {asked}{within}: "
            f"DescribeInstanceTypeOfferings at {self._now():%Y-%m-%d %H:%M} UTC named no zone in "
            f"any of {len(config.regions)} regions",
            code="NotOffered",
            extent=Extent.PROJECT,
        )


def _place(
    config: PlatformConfig, prices: PriceList, where: tuple[str, str], what: tuple[str, str]
) -> Place:
    (region, zone), (instance_type, market) = where, what
    price = prices.of(instance_type, zone, region, market)
    return Place(
        name=f"{zone}/{instance_type}/{market}",
        price_usd_per_hour=price.usd_per_hour if price else None,
        disk_usd_per_hour=shipped().disk_usd_per_gb_hour * config.disk_gb,
        address_usd_per_hour=shipped().address_usd_per_hour if config.public else Decimal(0),
        minimum_s=MINIMUM_S,
        priced=f"{price.source} {price.as_of:%Y-%m-%d}" if price else "",
        region=region,
        zone=zone,
        market=market,
        instance_type=instance_type,
    )
