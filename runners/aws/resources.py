"""Inspects and deletes one resource of any kind, which its id determines."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime

from orchestrator.domain.machine import Machine, ProviderError
from runners.aws import inventory, machines
from runners.aws.inventory import Resource
from runners.aws.sdk import Answer, AwsAccount


@dataclass(frozen=True, slots=True)
class ResourceCalls:
    """The calls for one kind of resource."""

    describe: str
    key: str
    parameter: str
    """Name of the parameter for the id in `delete`; `describe` takes a list, with an ``s``."""
    delete: str
    read: Callable[[Answer], Resource]
    lists: bool = False
    """Whether `delete` takes a list of ids as well."""

    def listed(self, resource_id: str) -> dict[str, object]:
        """Return the arguments that name the resource in `describe`."""
        return {f"{self.parameter}s": [resource_id]}

    def named(self, resource_id: str) -> dict[str, object]:
        """Return the arguments that name the resource in `delete`."""
        return self.listed(resource_id) if self.lists else {self.parameter: resource_id}


INSTANCE = "i"
OTHERS = {
    "vol": ResourceCalls(
        "describe_volumes", "Volumes", "VolumeId", "delete_volume", inventory.volume
    ),
    "eni": ResourceCalls(
        "describe_network_interfaces",
        "NetworkInterfaces",
        "NetworkInterfaceId",
        "delete_network_interface",
        inventory.interface,
    ),
    "eipalloc": ResourceCalls(
        "describe_addresses", "Addresses", "AllocationId", "release_address", inventory.address
    ),
    "sg": ResourceCalls(
        "describe_security_groups",
        "SecurityGroups",
        "GroupId",
        "delete_security_group",
        inventory.group,
    ),
    "sir": ResourceCalls(
        "describe_spot_instance_requests",
        "SpotInstanceRequests",
        "SpotInstanceRequestId",
        "cancel_spot_instance_requests",
        inventory.spot_request,
        lists=True,
    ),
}


@dataclass(frozen=True, slots=True)
class Resources:
    """Looks at resources and ends them."""

    account: AwsAccount

    def inspect(self, machine_id: str) -> Machine:
        """Return the resource's state; TERMINATED if EC2 does not know it. Raises ProviderError."""
        region, resource_id = machines.split_id(machine_id)
        prefix = resource_id.partition("-")[0]
        if prefix != INSTANCE and prefix not in OTHERS:
            return machines.gone(machine_id)
        simulated = self.account.is_simulated(region)
        try:
            if prefix == INSTANCE:
                machine = self._instance(resource_id, region, simulated=simulated)
            else:
                machine = self._other(OTHERS[prefix], resource_id, region)
        except ProviderError as error:
            if not _is_unknown(error):
                raise
            machine = None
        return machine or machines.gone(machine_id, simulated=simulated)

    def terminate(self, machine_id: str) -> None:
        """Start to terminate the resource; idempotent. Raises ProviderError."""
        region, resource_id = machines.split_id(machine_id)
        prefix = resource_id.partition("-")[0]
        try:
            if prefix == INSTANCE:
                ids = [resource_id]
                self._delete(region, "terminate_instances", resource_id, {"InstanceIds": ids})
            elif prefix in OTHERS:
                kind = OTHERS[prefix]
                self._delete(region, kind.delete, resource_id, kind.named(resource_id))
        except ProviderError as error:
            ending = prefix == INSTANCE and error.code == "IncorrectInstanceState"
            if not ending and not _is_unknown(error):
                raise

    def _delete(
        self, region: str, operation: str, resource_id: str, parameters: dict[str, object]
    ) -> None:
        self.account.read("ec2", region, operation, what=resource_id, **parameters)

    def _instance(self, resource_id: str, region: str, *, simulated: bool) -> Machine | None:
        answer = self.account.read(
            "ec2", region, "describe_instances", what=resource_id, InstanceIds=[resource_id]
        )
        for found in (one for every in answer["Reservations"] for one in every["Instances"]):
            machine = machines.instance(found, region, simulated=simulated)
            request = str(found.get("SpotInstanceRequestId", ""))
            if machine.ended == "preempted" and machine.ended_at is None and request:
                return replace(machine, ended_at=self._interrupted_at(request, region))
            return machine
        return None

    def _interrupted_at(self, request: str, region: str) -> datetime | None:
        """Return when EC2 interrupted a spot instance, from its request; None if unavailable."""
        ids = [request]
        try:
            answer = self.account.read(
                "ec2",
                region,
                "describe_spot_instance_requests",
                what=request,
                SpotInstanceRequestIds=ids,
            )
        except ProviderError:  # it is billed until it is seen gone: the upper bound
            return None
        for found in answer["SpotInstanceRequests"]:
            status = found.get("Status", {})
            if str(status.get("Code", "")).startswith("instance-terminated"):
                at: datetime | None = status.get("UpdateTime")
                return at
        return None

    def _other(self, kind: ResourceCalls, resource_id: str, region: str) -> Machine | None:
        answer = self.account.read(
            "ec2", region, kind.describe, what=resource_id, **kind.listed(resource_id)
        )
        for found in answer[kind.key]:
            resource = kind.read(found)
            return machines.leftover(
                resource.kind,
                resource.id,
                region,
                found,
                state=resource.state,
                detail=resource.detail,
                simulated=self.account.is_simulated(region),
            )
        return None


def _is_unknown(error: ProviderError) -> bool:
    """Return whether the error code means that no such resource exists."""
    return error.code.startswith("Invalid") and error.code.endswith((".NotFound", ".Malformed"))
