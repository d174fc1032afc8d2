"""Instance types of EC2, and the zones that offer them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from functools import partial

from orchestrator.domain.machine import ConfigError, Extent, NotOfferedError, ProviderError
from orchestrator.domain.matrix import Accelerator
from orchestrator.domain.units import plural
from runners.aws.platform_config import (
    Ec2PlatformConfig,
    InstanceType,
    is_called,
    may_match,
    shipped,
)
from runners.aws.sdk import Answer, AwsAccount
from runners.ttl_cache import TtlCache

AT_A_TIME = 100
"""Instance types that one call describes at most."""
# A slice of a GPU counts as a whole one in the API.
_FRACTIONAL = ("g6f.", "gr6f.")


class InstanceCatalogue:
    """Reads instance types from EC2, and caches the answers for some minutes."""

    def __init__(self, account: AwsAccount, now: Callable[[], datetime]) -> None:
        self._account = account
        self._now = now
        self._zones: TtlCache[tuple[str, ...]] = TtlCache(now, serve_stale=True)
        self._types: TtlCache[tuple[InstanceType, ...]] = TtlCache(now, serve_stale=True)
        self._type: TtlCache[InstanceType] = TtlCache(now, serve_stale=True)
        self._details: dict[str, InstanceType] = {}

    def zones(self, instance_type: str, region: str) -> tuple[str, ...]:
        """Return the region's zones that have the type, sorted. Raises ProviderError."""
        return self._zones.get(
            (instance_type, region), lambda: self._ask_zones(instance_type, region)
        )

    def instance_type(self, name: str, region: str) -> InstanceType:
        """Return the properties of a type, shipped or requested. Raises ProviderError."""
        return shipped().types.get(name) or self._type.get(
            (name, region), lambda: self._ask_type(name, region)
        )

    def chosen(self, config: Ec2PlatformConfig) -> tuple[str, ...]:
        """Return the platform's types: as named, or those with its device, the smallest first.

        Raises:
            NotOfferedError: No type has the device; nothing else is taken in its place.
            ConfigError: A named type has another device.
        """
        if config.device is None:
            return config.instance_types
        for name in config.instance_types:
            self._compare(name, config.device, config.regions)
        return config.instance_types or self._by_device(config.device, config.regions)

    def _compare(self, name: str, device: Accelerator, regions: Iterable[str]) -> None:
        for region in regions:
            try:
                known = self.instance_type(name, region)
            except ProviderError:
                # Unknown, or no answer: the next step asks whether it is offered, and reports that.
                continue
            if not _may_have(known, device):
                has = f"{known.count} {known.vendor} {known.gpu}" if known.gpu else "no GPU"
                raise ConfigError(
                    f"instance_type: {name} has {has}, not {device.count} {device.vendor} "
                    f"{device.name}; correct one of the two keys"
                )
            return

    def _by_device(self, device: Accelerator, regions: Iterable[str]) -> tuple[str, ...]:
        seen: dict[str, tuple[InstanceType, ...]] = {}
        failed: list[ProviderError] = []
        for region in regions:
            try:
                seen[region] = self._types.get(region, partial(self._ask_types, region))
            except ProviderError as error:
                failed.append(error)
        types = {one.name: one for listed in seen.values() for one in listed}
        fitting = [one for one in types.values() if _has(one, device)]
        if not fitting and failed:
            raise failed[0]
        if not fitting:
            raise self._not_offered(device, seen)
        priced = {price.item for price in shipped().prices}
        fitting = [one for one in fitting if one.name in priced] or fitting
        return tuple(one.name for one in sorted(fitting, key=lambda one: (one.vcpus, one.name)))

    def _not_offered(
        self, device: Accelerator, seen: dict[str, tuple[InstanceType, ...]]
    ) -> NotOfferedError:
        types = {one.name: one for listed in seen.values() for one in listed}
        same = sorted(
            {f"{_family(one)} ({one.gpu})" for one in types.values() if one.vendor == device.vendor}
        )
        counts = ", ".join(f"{region} {len(listed)}" for region, listed in seen.items())
        return NotOfferedError(
            f"no instance type of EC2 has {device.count} {device.vendor} {device.name}: "
            f"DescribeInstanceTypeOfferings and DescribeInstanceTypes at "
            f"{self._now():%Y-%m-%d %H:%M} UTC answered with {plural(len(types), 'type')} "
            f"({counts}), "
            f"{sum(bool(one.gpu) for one in types.values())} of them with GPUs; "
            f"those by {device.vendor}: {', '.join(same) or 'none'}",
            code="NotOffered",
            extent=Extent.PROJECT,
        )

    def _ask_zones(self, instance_type: str, region: str) -> tuple[str, ...]:
        offerings = self._account.pages(
            "ec2",
            region,
            "describe_instance_type_offerings",
            "InstanceTypeOfferings",
            LocationType="availability-zone",
            Filters=[{"Name": "instance-type", "Values": [instance_type]}],
        )
        zones = sorted(str(one["Location"]) for one in offerings)
        # Local and wavelength zones have other names, networks and prices.
        return tuple(zone for zone in zones if zone[:-1] == region)

    def _ask_types(self, region: str) -> tuple[InstanceType, ...]:
        """Return the types that the region offers; known properties are not requested again."""
        offerings = self._account.pages(
            "ec2",
            region,
            "describe_instance_type_offerings",
            "InstanceTypeOfferings",
            LocationType="region",
        )
        names = sorted({str(one["InstanceType"]) for one in offerings})
        unknown = [name for name in names if name not in self._details]
        for start in range(0, len(unknown), AT_A_TIME):
            answer = self._account.read(
                "ec2",
                region,
                "describe_instance_types",
                InstanceTypes=unknown[start : start + AT_A_TIME],
            )
            self._details |= {one.name: one for one in map(_read, answer["InstanceTypes"])}
        return tuple(self._details[name] for name in names if name in self._details)

    def _ask_type(self, name: str, region: str) -> InstanceType:
        answer = self._account.read(
            "ec2", region, "describe_instance_types", what=name, InstanceTypes=[name]
        )
        for found in answer["InstanceTypes"]:
            return _read(found)
        raise ConfigError(f"instance_type: {region} knows no {name}", code="InvalidInstanceType")


def _read(answer: Answer) -> InstanceType:
    name = str(answer["InstanceType"])
    known = shipped().types.get(name)
    if known is not None:
        return known
    gpus = answer.get("GpuInfo", {}).get("Gpus", ())
    gpu = gpus[0] if gpus and not name.startswith(_FRACTIONAL) else {}
    architectures = answer.get("ProcessorInfo", {}).get("SupportedArchitectures", ())
    return InstanceType(
        name=name,
        vcpus=int(answer["VCpuInfo"]["DefaultVCpus"]),
        architecture="arm64" if "arm64" in architectures else "x86_64",
        vendor=str(gpu.get("Manufacturer", "")).casefold(),
        gpu=str(gpu.get("Name", "")),
        count=int(gpu.get("Count", 0)),
    )


def shipped_types(config: Ec2PlatformConfig) -> tuple[str, ...]:
    """Return the platform's types by the shipped table, the smallest first."""
    if config.device is None or config.instance_types:
        return config.instance_types
    fitting = [one for one in shipped().types.values() if _has(one, config.device)]
    return tuple(one.name for one in sorted(fitting, key=lambda one: (one.vcpus, one.name)))


def _has(one: InstanceType, device: Accelerator) -> bool:
    vendor = device.vendor or one.vendor
    return (one.vendor, one.count) == (vendor, device.count) and is_called(device, one.gpu)


def _may_have(one: InstanceType, device: Accelerator) -> bool:
    """Return whether a named type may have the device: missing data does not exclude it."""
    same_vendor = one.vendor == (device.vendor or one.vendor)
    return same_vendor and may_match(device, one.gpu) and one.count in (0, device.count)


def _family(one: InstanceType) -> str:
    return one.name.partition(".")[0]
