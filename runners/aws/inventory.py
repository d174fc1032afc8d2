"""Everything of the project in every region, of every kind that costs or lingers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from orchestrator.domain.machine import (
    CredentialsError,
    Machine,
    MachineState,
    ProviderError,
    ProviderUnavailableError,
)
from runners.aws import machines, tagging
from runners.aws.sdk import Account, Answer
from runners.aws.shipped_table import shipped

AT_A_TIME = 8
"""Regions."""
_ENABLED = ["opt-in-not-required", "opted-in"]
_VOLUMES: Mapping[str, MachineState] = {
    "deleting": MachineState.STOPPING,
    "deleted": MachineState.TERMINATED,
}


@dataclass(frozen=True, slots=True)
class Inventory:
    """Reads the whole account, as far as it is the project's."""

    account: Account
    project: str

    def read(self) -> tuple[Machine, ...]:
        """All of it. Disks and interfaces that end with their instance are not listed beside it.

        Raises:
            ProviderUnavailableError: A region could not be read; a part would look like the whole.
            CredentialsError: AWS does not accept who we are.
        """
        regions = self.regions()
        with ThreadPoolExecutor(AT_A_TIME, thread_name_prefix="aws-inventory") as pool:
            return tuple(one for found in pool.map(self._region, regions) for one in found)

    def regions(self) -> tuple[str, ...]:
        """Those that the account has enabled."""
        answer = self.account.read(
            "ec2",
            shipped().regions[0],
            "describe_regions",
            Filters=[{"Name": "opt-in-status", "Values": _ENABLED}],
        )
        return tuple(sorted(str(region["RegionName"]) for region in answer["Regions"]))

    def _region(self, region: str) -> tuple[Machine, ...]:
        try:
            return tuple(self._of(region))
        except CredentialsError:
            raise
        except ProviderError as error:
            raise ProviderUnavailableError(
                f"the inventory of {region} could not be read, so nothing is known of all of it: "
                f"{error}",
                code=error.code,
            ) from error

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
                    resource.answer,
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


def _ending_with(found: Answer) -> Iterator[str]:
    """Ids of what goes when the instance goes."""
    for disk in found.get("BlockDeviceMappings", ()):
        if disk.get("Ebs", {}).get("DeleteOnTermination"):
            yield str(disk["Ebs"]["VolumeId"])
    for one in found.get("NetworkInterfaces", ()):
        if one.get("Attachment", {}).get("DeleteOnTermination"):
            yield str(one["NetworkInterfaceId"])
    yield str(found.get("SpotInstanceRequestId", ""))


@dataclass(frozen=True, slots=True)
class Resource:
    """What is not an instance, as far as it matters here."""

    kind: str
    id: str
    answer: Answer
    state: MachineState = MachineState.READY
    detail: str = ""


def volume(found: Answer) -> Resource:
    """A disk, as DescribeVolumes tells it."""
    attached = [x for x in found.get("Attachments", ()) if x.get("InstanceId")]
    return Resource(
        "disk",
        str(found["VolumeId"]),
        found,
        state=_VOLUMES.get(str(found.get("State", "")), MachineState.READY),
        detail=f"{found.get('Size', '?')} GB, {found.get('State', '')}"
        + "".join(f", attached to {x['InstanceId']}" for x in attached),
    )


def interface(found: Answer) -> Resource:
    """A network interface, as DescribeNetworkInterfaces tells it."""
    return Resource(
        "network-interface",
        str(found["NetworkInterfaceId"]),
        found,
        detail=str(found.get("Status", "")),
    )


def address(found: Answer) -> Resource:
    """A public address that is kept, as DescribeAddresses tells it."""
    return Resource("address", str(found["AllocationId"]), found, detail=str(found["PublicIp"]))


def group(found: Answer) -> Resource:
    """A security group, as DescribeSecurityGroups tells it."""
    return Resource("firewall", str(found["GroupId"]), found, detail=str(found.get("GroupName")))


def spot_request(found: Answer) -> Resource:
    """A spot request, as DescribeSpotInstanceRequests tells it; it ends with its instance."""
    open_states = ("open", "active")
    state = str(found.get("State", ""))
    return Resource(
        "spot-request",
        str(found["SpotInstanceRequestId"]),
        found,
        state=MachineState.READY if state in open_states else MachineState.TERMINATED,
        detail=str(found.get("Status", {}).get("Code", state)),
    )


_KINDS: tuple[tuple[str, str, Callable[[Answer], Resource]], ...] = (
    ("describe_volumes", "Volumes", volume),
    ("describe_network_interfaces", "NetworkInterfaces", interface),
    ("describe_addresses", "Addresses", address),
    ("describe_security_groups", "SecurityGroups", group),
    ("describe_spot_instance_requests", "SpotInstanceRequests", spot_request),
)
