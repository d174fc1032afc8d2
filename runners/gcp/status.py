"""The present status of a machine, from its state and its operations."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from google.cloud import compute_v1

from orchestrator.domain.machine import Extent, Machine, MachineState, SshAddress
from runners.gcp.clients import ComputeClients
from runners.gcp.instance import CONNECT, IMAGE_FACTS, ResourceId, last
from runners.google.account import HOST_KEYS, host_key_in, user_in
from runners.google.errors import ended_by
from runners.google.names import region_of, tags
from runners.google.responses import (
    READ_TIMEOUT_S,
    NotThereError,
    is_done,
    of_operation,
    read,
)

_STATES: Mapping[str, MachineState] = {
    "PENDING": MachineState.REQUESTED,
    "PROVISIONING": MachineState.REQUESTED,  # resources are still being looked for
    "STAGING": MachineState.BOOTING,
    "RUNNING": MachineState.READY,
}
"""States of a machine by Compute Engine's status; every other status means that it ended."""
_LINK = "https://www.googleapis.com/compute/v1/projects/{}/zones/{}/instances/{}"
_CANCELLED = "OPERATION_CANCELED_BY_USER"
_NOT_SHOWN_YET = timedelta(seconds=60)


@dataclass(frozen=True, slots=True)
class MachineEnd:
    """The end of a machine, from its operations."""

    ended: str = ""
    """As `Machine.ended`."""
    detail: str = ""
    by_guest: bool = False
    """Whether the guest powered itself off."""
    is_pending: bool = False
    """Whether it is being created, or was created a moment ago."""
    extent: Extent = Extent.PLACE
    """As `Machine.extent`."""
    at: datetime | None = None
    """As `Machine.ended_at`: the end of the operation that ended it."""


class GcpStatusReader:
    """Answers `inspect` for virtual machines."""

    def __init__(self, clients: ComputeClients, now: Callable[[], datetime]) -> None:
        self._clients = clients
        self._now = now

    def instance(self, which: ResourceId) -> compute_v1.Instance | None:
        """Return the instance resource, or None if it does not exist."""
        request = compute_v1.GetInstanceRequest(
            project=self._clients.project, zone=which.scope, instance=which.name
        )
        try:
            return read(
                f"looking at {which}",
                lambda: self._clients.instances.get(request, retry=None, timeout=READ_TIMEOUT_S),
            )
        except NotThereError:
            return None

    def machine(self, which: ResourceId) -> Machine:
        """Return its status; READY only once its host key is known."""
        found = self.instance(which)
        if found is None:
            return self._absent(which)
        machine = as_machine(found, which.scope, simulated=self._clients.is_simulated)
        if machine.state is MachineState.STOPPING:
            end = self._end(which)
            early = end.by_guest and self._now() < _expiry(machine.tags)
            ended = "failed" if early else end.ended  # else its own timer did that
            return replace(
                machine, ended=ended, detail=end.detail or machine.detail, ended_at=end.at
            )
        if machine.state is not MachineState.READY:
            return machine
        endpoint = self._reach(which, found)
        if endpoint is None:
            waiting = "running; its host key is not published yet"
            return replace(machine, state=MachineState.BOOTING, detail=waiting)
        return replace(machine, endpoint=endpoint)

    def _absent(self, which: ResourceId) -> Machine:
        end = self._end(which)
        state = MachineState.REQUESTED if end.is_pending else MachineState.TERMINATED
        return Machine(
            id=str(which),
            token="",
            state=state,
            detail=end.detail,
            ended=end.ended,
            ended_at=end.at,
            extent=end.extent,
            facts={"zone": which.scope, "region": region_of(which.scope)},
            simulated=self._clients.is_simulated,
        )

    def _reach(self, which: ResourceId, instance: compute_v1.Instance) -> SshAddress | None:
        address, key = _address(instance), self._host_key(which)
        if not address or not key:
            return None
        metadata = _metadata(instance)
        proxy = _tunnel_command(which, self._clients.project) if CONNECT in metadata else ()
        return SshAddress(address, user_in(metadata), host_key=key, proxy_command=proxy)

    def _host_key(self, which: ResourceId) -> str:
        request = compute_v1.GetGuestAttributesInstanceRequest(
            project=self._clients.project,
            zone=which.scope,
            instance=which.name,
            query_path=HOST_KEYS,
        )
        try:
            found = read(
                f"reading the host key of {which}",
                lambda: self._clients.instances.get_guest_attributes(
                    request, retry=None, timeout=READ_TIMEOUT_S
                ),
            )
        except NotThereError:  # until the guest published something
            return ""
        key = host_key_in((item.key, item.value) for item in found.query_value.items)
        return f"ssh-ed25519 {key}" if key else ""

    def _end(self, which: ResourceId) -> MachineEnd:
        asked: datetime | None = None
        was_asked = False
        for operation in self.operations(which):
            if _is_requested(operation):
                was_asked, asked = True, _ended_at(operation)
                continue  # an earlier operation has the cause
            end = self._end_by(which, operation, was_requested=was_asked)
            if end is not None:
                return end if end.ended else replace(end, at=asked)
        return MachineEnd(at=asked)

    def operations(self, which: ResourceId) -> list[compute_v1.Operation]:
        """Return all operations on this machine that the cloud still lists, newest first."""
        link = _LINK.format(self._clients.project, which.scope, which.name)
        request = compute_v1.ListZoneOperationsRequest(
            project=self._clients.project, zone=which.scope, filter=f'targetLink = "{link}"'
        )
        try:
            found = read(
                f"looking at the operations on {which}",
                lambda: list(
                    self._clients.zone_operations.list(request, retry=None, timeout=READ_TIMEOUT_S)
                ),
            )
        except NotThereError:  # no such zone
            return []
        ours = [each for each in found if each.target_link.endswith(f"/{which}")]
        return sorted(ours, key=lambda each: _time(each.insert_time), reverse=True)

    def _end_by(
        self, which: ResourceId, operation: compute_v1.Operation, *, was_requested: bool
    ) -> MachineEnd | None:
        """Return the end that this operation explains; None if an older one must be read."""
        said = f"{operation.operation_type}: {operation.status_message}".rstrip(": ")
        at = _ended_at(operation)
        match operation.operation_type:
            case "compute.instances.preempted":
                return MachineEnd("preempted", said, at=at)
            case "compute.instances.hostError":
                return MachineEnd("failed", said, at=at)
            case "compute.instances.guestTerminate":
                # Its disk goes on costing until it is deleted.
                return MachineEnd("deadline", f"{said}: it powered itself off", by_guest=True)
            case "insert":
                return self._made_by(which, operation, was_requested=was_requested)
            case "delete" | "stop":
                detail = f"{said}: by Compute Engine, when its run duration was over"
                return MachineEnd("deadline", detail, at=at)
            case kind if kind.startswith("compute.instances."):
                return MachineEnd("deadline", said, at=at)
        return None

    def _made_by(
        self, which: ResourceId, operation: compute_v1.Operation, *, was_requested: bool
    ) -> MachineEnd:
        error = of_operation(f"making {which}", operation)
        if error is not None:
            was_cancelled = was_requested and error.code == _CANCELLED
            ended = "" if was_cancelled else ended_by(error)
            return MachineEnd(ended, str(error), extent=error.extent)
        if not is_done(operation):
            return MachineEnd(detail="being made", is_pending=True)
        age = self._now() - _time(operation.end_time)
        if was_requested or age >= _NOT_SHOWN_YET:
            return MachineEnd()
        return MachineEnd(detail="made, and not shown yet", is_pending=True)


def _is_requested(operation: compute_v1.Operation) -> bool:
    """Return whether a user, instead of the cloud, ended the machine by this operation."""
    is_end = operation.operation_type in ("delete", "stop")
    by_cloud = "@" not in operation.user or operation.user.startswith("system")
    return is_end and not by_cloud


def as_machine(instance: compute_v1.Instance, zone: str, *, simulated: bool) -> Machine:
    """Convert an instance to a `Machine` without an endpoint, which needs another request."""
    carried = tags(instance.labels)
    state = _STATES.get(instance.status, MachineState.STOPPING)
    return Machine(
        id=str(ResourceId(zone, "instances", instance.name)),
        token=carried.get("seatrial-token", ""),
        state=state,
        detail=" ".join(part for part in (instance.status, instance.status_message) if part),
        tags=carried,
        facts=_facts(instance, zone),
        simulated=simulated,
    )


def _facts(instance: compute_v1.Instance, zone: str) -> dict[str, str]:
    is_spot = instance.scheduling.provisioning_model == "SPOT"
    return {
        "instance_id": str(instance.id),
        "instance_type": last(instance.machine_type),
        "zone": zone,
        "region": region_of(zone),
        "market": "spot" if is_spot else "on-demand",
        **_image_facts(_metadata(instance).get(IMAGE_FACTS, "{}")),
    }


def _image_facts(text: str) -> dict[str, str]:
    try:
        facts = json.loads(text)
    except ValueError:
        return {}
    return {str(key): str(value) for key, value in dict(facts).items()}


def _metadata(instance: compute_v1.Instance) -> dict[str, str]:
    return {item.key: item.value for item in instance.metadata.items}


def _tunnel_command(which: ResourceId, project: str) -> tuple[str, ...]:
    """Return the command that connects to the SSH port through Google's Identity-Aware Proxy.

    It is what `gcloud compute ssh --tunnel-through-iap` gives to ssh (Google Cloud SDK 528).
    """
    # fmt: off
    return (
        "gcloud", "compute", "start-iap-tunnel", which.name, "22", "--listen-on-stdin",
        f"--project={project}", f"--zone={which.scope}", "--verbosity=warning", "--quiet",
    )
    # fmt: on


def _address(instance: compute_v1.Instance) -> str:
    for interface in instance.network_interfaces:
        for access in interface.access_configs:
            # A machine with an external address is reachable from outside only there.
            return access.nat_i_p
        return interface.network_i_p
    return ""


def _time(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text).astimezone(UTC)
    except ValueError:
        return datetime.fromtimestamp(0, UTC)


def _ended_at(operation: compute_v1.Operation) -> datetime | None:
    return _time(operation.end_time) if is_done(operation) and operation.end_time else None


def _expiry(carried: Mapping[str, str]) -> datetime:
    said = carried.get("seatrial-expires-at", "")
    return datetime.fromtimestamp(int(said) if said.isdigit() else 0, UTC)
