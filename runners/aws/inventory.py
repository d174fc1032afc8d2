"""The project's resources in every region and zone, of every kind that costs or remains."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from itertools import product

from orchestrator.domain.machine import (
    CredentialsError,
    Extent,
    Machine,
    MachineState,
    NotOfferedError,
    Place,
    ProviderError,
    whole_inventory,
)
from orchestrator.domain.units import plural
from runners.aws import machines, tagging
from runners.aws.catalogue import InstanceCatalogue, shipped_types
from runners.aws.errors import DENIED
from runners.aws.network import Network
from runners.aws.platform_config import Ec2PlatformConfig, Location, shipped
from runners.aws.prices import PriceList
from runners.aws.sdk import Answer, AwsAccount
from runners.provider_context import after_checks

MINIMUM_S = 60
_DEAREST = Decimal("Infinity")


class Ec2PlaceFinder:
    """Finds the places of platforms."""

    def __init__(
        self, catalogue: InstanceCatalogue, network: Network, now: Callable[[], datetime]
    ) -> None:
        self._catalogue = catalogue
        self._network = network
        self._now = now

    def places(self, config: Ec2PlatformConfig, prices: PriceList) -> tuple[Place, ...]:
        """Return the places, ordered by market, location and instance type.

        A location that does not answer is left out if another one answers.

        Raises:
            NotOfferedError: Every location answered, and none offers any of the types.
            ConfigError: A machine would have a public address, and no ingress network is
                configured.
            ProviderError: Nothing was found, and a location did not answer.
        """
        return after_checks(  # a plan reports it already, not only a launch
            lambda: self._places(config, prices), lambda: self._network.require_way_in(config)
        )

    def _places(self, config: Ec2PlatformConfig, prices: PriceList) -> tuple[Place, ...]:
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
        if config.cheapest:
            return tuple(sorted(found.values(), key=lambda place: place.usd_per_hour or _DEAREST))
        return tuple(found.values())

    def _zones(
        self, config: Ec2PlatformConfig, location: Location, instance_type: str
    ) -> Iterator[str]:
        zones = self._catalogue.zones(instance_type, location.region)
        subnets = self._network.subnets(config, location.region) if zones else {}
        return (zone for zone in zones if zone in subnets and location.zone in ("", zone))

    def _not_offered(self, config: Ec2PlatformConfig, types: tuple[str, ...]) -> NotOfferedError:
        asked = ", ".join(location.zone or location.region for location in config.locations)
        within = f" in the subnets {', '.join(config.subnets)}" if config.subnets else ""
        return NotOfferedError(
            f"EC2 offers {' and '.join(types)} in none of {asked}{within}: "
            f"DescribeInstanceTypeOfferings at {self._now():%Y-%m-%d %H:%M} UTC named no zone in "
            f"any of {plural(len(config.regions), 'region')}",
            code="NotOffered",
            extent=Extent.PROJECT,
        )


def listed_places(config: Ec2PlatformConfig, prices: PriceList) -> tuple[Place, ...]:
    """Return a place for each region, type and market with a price, without asking EC2."""
    where = product(config.markets, config.locations, shipped_types(config))
    places = (
        _place(config, prices, (location.region, location.zone or location.region), (kind, market))
        for market, location, kind in where
    )
    return tuple(place for place in places if place.price_usd_per_hour is not None)


def _place(
    config: Ec2PlatformConfig, prices: PriceList, where: tuple[str, str], what: tuple[str, str]
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
        priced_at=price.as_of if price else None,
        region=region,
        zone=zone,
        market=market,
        instance_type=instance_type,
    )


AT_A_TIME = 8
"""Regions."""
_ENABLED = ["opt-in-not-required", "opted-in"]
_VOLUMES: Mapping[str, MachineState] = {
    "deleting": MachineState.STOPPING,
    "deleted": MachineState.TERMINATED,
}


@dataclass(frozen=True, slots=True)
class Inventory:
    """Reads the project's resources of the account."""

    account: AwsAccount
    project: str

    def read(self) -> tuple[Machine, ...]:
        """Return all resources, without disks and interfaces that end with their instance.

        Raises:
            PartialInventoryError: Some regions do not answer, or a policy denies them.
            ProviderUnavailableError: No region answers.
            CredentialsError: AWS rejects the credentials, or denies every region.
        """
        regions = self.regions()
        with ThreadPoolExecutor(AT_A_TIME, thread_name_prefix="aws-inventory") as pool:
            read = dict(zip(regions, pool.map(self._region, regions), strict=True))
        unread = {
            region: found for region, found in read.items() if isinstance(found, ProviderError)
        }
        if len(unread) == len(regions):
            raise next(iter(unread.values()))
        machines = (
            one for found in read.values() if not isinstance(found, ProviderError) for one in found
        )
        return whole_inventory(tuple(machines), {name: str(why) for name, why in unread.items()})

    def regions(self) -> tuple[str, ...]:
        """Return the enabled regions of the account, from the first region that is not denied."""
        *others, last = shipped().regions
        for region in others:
            try:
                return self._enabled(region)
            except CredentialsError as error:
                if error.code != DENIED:
                    raise
        return self._enabled(last)

    def _enabled(self, region: str) -> tuple[str, ...]:
        answer = self.account.read(
            "ec2",
            region,
            "describe_regions",
            Filters=[{"Name": "opt-in-status", "Values": _ENABLED}],
        )
        return tuple(sorted(str(region["RegionName"]) for region in answer["Regions"]))

    def _region(self, region: str) -> tuple[Machine, ...] | ProviderError:
        """Return the region's resources, or why they cannot be read. Raises CredentialsError."""
        try:
            return tuple(self._of(region))
        except ProviderError as error:
            if isinstance(error, CredentialsError) and error.code != DENIED:
                raise
            return error

    def _of(self, region: str) -> Iterator[Machine]:
        simulated = self.account.is_simulated(region)
        included: set[str] = set()
        for reservation in self._tagged(region, "describe_instances", "Reservations"):
            for found in reservation["Instances"]:
                machine = machines.instance(found, region, simulated=simulated)
                if machine.state is not MachineState.TERMINATED:
                    included.update(_ending_with(found))
                    yield machine
        for resource in self._others(region):
            if resource.id not in included:
                yield machines.leftover(
                    resource.kind,
                    resource.id,
                    region,
                    resource.description,
                    state=resource.state,
                    detail=resource.detail,
                    simulated=simulated,
                )

    def _others(self, region: str) -> Iterator[Resource]:
        for operation, key, read in _KINDS:
            for found in self._tagged(region, operation, key):
                resource = read(found)
                if resource.state is not MachineState.TERMINATED:
                    yield resource

    def _tagged(self, region: str, operation: str, key: str) -> list[Answer]:
        wanted = tagging.filters(self.project)
        if operation == "describe_addresses":  # has no pages
            return list(self.account.read("ec2", region, operation, Filters=wanted)[key])
        return list(self.account.pages("ec2", region, operation, key, Filters=wanted))


def _ending_with(instance: Answer) -> Iterator[str]:
    """Yield the ids of resources that are deleted with the instance."""
    for disk in instance.get("BlockDeviceMappings", ()):
        if disk.get("Ebs", {}).get("DeleteOnTermination"):
            yield str(disk["Ebs"]["VolumeId"])
    for one in instance.get("NetworkInterfaces", ()):
        if one.get("Attachment", {}).get("DeleteOnTermination"):
            yield str(one["NetworkInterfaceId"])
    yield str(instance.get("SpotInstanceRequestId", ""))


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource other than an instance."""

    kind: str
    id: str
    description: Answer
    state: MachineState = MachineState.READY
    detail: str = ""


def volume(description: Answer) -> Resource:
    """Return a disk from DescribeVolumes."""
    attached = [x for x in description.get("Attachments", ()) if x.get("InstanceId")]
    return Resource(
        "disk",
        str(description["VolumeId"]),
        description,
        state=_VOLUMES.get(str(description.get("State", "")), MachineState.READY),
        detail=f"{description.get('Size', '?')} GB, {description.get('State', '')}"
        + "".join(f", attached to {x['InstanceId']}" for x in attached),
    )


def interface(description: Answer) -> Resource:
    """Return a network interface from DescribeNetworkInterfaces."""
    return Resource(
        "network-interface",
        str(description["NetworkInterfaceId"]),
        description,
        detail=str(description.get("Status", "")),
    )


def address(description: Answer) -> Resource:
    """Return a reserved public address from DescribeAddresses."""
    return Resource(
        "address",
        str(description["AllocationId"]),
        description,
        detail=str(description["PublicIp"]),
    )


def group(description: Answer) -> Resource:
    """Return a security group from DescribeSecurityGroups."""
    return Resource(
        "firewall",
        str(description["GroupId"]),
        description,
        detail=str(description.get("GroupName")),
    )


def spot_request(description: Answer) -> Resource:
    """Return a spot request from DescribeSpotInstanceRequests; it ends with its instance."""
    open_states = ("open", "active")
    state = str(description.get("State", ""))
    return Resource(
        "spot-request",
        str(description["SpotInstanceRequestId"]),
        description,
        state=MachineState.READY if state in open_states else MachineState.TERMINATED,
        detail=str(description.get("Status", {}).get("Code", state)),
    )


_KINDS: tuple[tuple[str, str, Callable[[Answer], Resource]], ...] = (
    ("describe_volumes", "Volumes", volume),
    ("describe_network_interfaces", "NetworkInterfaces", interface),
    ("describe_addresses", "Addresses", address),
    ("describe_security_groups", "SecurityGroups", group),
    ("describe_spot_instance_requests", "SpotInstanceRequests", spot_request),
)
