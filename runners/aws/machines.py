"""Converts EC2's descriptions of resources to `Machine`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime

from orchestrator.domain.machine import Machine, MachineState, SshAddress
from runners.aws import tagging
from runners.aws.errors import BY_GUEST, ended_by
from runners.aws.sdk import Answer

STATES: Mapping[str, MachineState] = {
    # EC2 may still refuse, and bills nothing until it runs.
    "pending": MachineState.REQUESTED,
    "running": MachineState.READY,
    "shutting-down": MachineState.STOPPING,
    # Seatrial stops no machine without terminating it, so a stopping machine counts as ending.
    "stopping": MachineState.STOPPING,
    "stopped": MachineState.STOPPING,
    "terminated": MachineState.TERMINATED,
}
SSM = "ssm"
"""Value of `connect` for connections through Systems Manager."""
SSM_PROGRAMS = ("aws", "session-manager-plugin")
_ENDING = frozenset({MachineState.STOPPING, MachineState.TERMINATED})
_ENDED_AT = re.compile(r"\((\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) (?:GMT|UTC)\)")


def machine_id(region: str, resource_id: str) -> str:
    """Return a resource's id, ``us-east-1/i-0abc``."""
    return f"{region}/{resource_id}"


def split_id(machine_id: str) -> tuple[str, str]:
    """Return region and resource id; both empty for an id that another provider made."""
    region, _, resource = machine_id.partition("/")
    return (region, resource) if region and "-" in resource and "/" not in resource else ("", "")


def gone(machine_id: str, *, simulated: bool = False) -> Machine:
    """Return the record of a machine that EC2 does not know."""
    return Machine(id=machine_id, token="", state=MachineState.TERMINATED, simulated=simulated)


def instance(description: Answer, region: str, *, simulated: bool) -> Machine:
    """Return an instance from DescribeInstances or RunInstances."""
    tags = tagging.read(description.get("Tags"))
    state = STATES.get(str(description["State"]["Name"]), MachineState.BOOTING)
    address = _address(description, region, tags)
    if state is MachineState.READY and address is None:
        state = MachineState.BOOTING
    reason = str(description.get("StateReason", {}).get("Code", ""))
    return Machine(
        id=machine_id(region, str(description["InstanceId"])),
        token=tags.get(tagging.TOKEN, ""),
        state=state,
        endpoint=address if state is MachineState.READY else None,
        detail=_detail(description),
        ended=ended_by(reason) if state in _ENDING else "",
        ended_at=_ended_at(description, reason, tags) if state in _ENDING else None,
        tags=tagging.given(tags),
        facts=_facts(description, region, tags),
        simulated=simulated,
    )


def _ended_at(description: Answer, reason: str, tags: Mapping[str, str]) -> datetime | None:
    """Return when it began to shut down: EC2 bills nothing from then on.

    The text is ``User initiated (2026-08-18 11:00:20 GMT)``; it has no time for a spot interruption
    and for a shutdown by the guest. The guest's timer ends it at its expiry at the latest.
    """
    said = _ENDED_AT.search(str(description.get("StateTransitionReason", "")))
    if said:
        return datetime.fromisoformat(said[1]).replace(tzinfo=UTC)
    expires = tags.get(tagging.EXPIRES, "")
    if reason == BY_GUEST and expires.isdigit():
        return datetime.fromtimestamp(int(expires), UTC)
    return None


def leftover(
    kind: str,
    resource_id: str,
    region: str,
    description: Answer,
    *,
    state: MachineState = MachineState.READY,
    detail: str = "",
    simulated: bool = False,
) -> Machine:
    """Return the record of any other resource, which costs money or remains as a machine does."""
    tags = tagging.read(description.get("Tags") or description.get("TagSet"))
    return Machine(
        id=machine_id(region, resource_id),
        token=tags.get(tagging.TOKEN, ""),
        state=state,
        detail=detail,
        kind=kind,
        tags=tagging.given(tags),
        facts={"region": region},
        simulated=simulated,
    )


def _address(description: Answer, region: str, tags: Mapping[str, str]) -> SshAddress | None:
    connect = tags.get(tagging.CONNECT)
    address = description.get(
        "PrivateIpAddress" if connect in ("private", SSM) else "PublicIpAddress"
    )
    if not address:
        return None
    proxy = session_command(region, str(description["InstanceId"])) if connect == SSM else ()
    return SshAddress(str(address), tags.get(tagging.USER, "ubuntu"), proxy_command=proxy)


def session_command(region: str, instance_id: str) -> tuple[str, ...]:
    """Return the command that connects to the SSH port through AWS Systems Manager.

    docs.aws.amazon.com/systems-manager/latest/userguide/session-manager-getting-started-enable-ssh-connections.html
    """
    # fmt: off
    return (
        "aws", "ssm", "start-session", "--target", instance_id, "--region", region,
        "--document-name", "AWS-StartSSHSession", "--parameters", "portNumber=22",
    )
    # fmt: on


def _detail(description: Answer) -> str:
    reason = description.get("StateReason", {})
    code, words = str(reason.get("Code", "")), str(reason.get("Message", ""))
    if words and not words.startswith(code):
        return f"{code}: {words}"
    return words or code or str(description["State"]["Name"])


def _facts(description: Answer, region: str, tags: Mapping[str, str]) -> dict[str, str]:
    launched = description.get("LaunchTime")
    facts = {
        "instance_id": str(description["InstanceId"]),
        "instance_type": str(description.get("InstanceType", "")),
        "region": region,
        "zone": str(description.get("Placement", {}).get("AvailabilityZone", "")),
        "market": "spot" if description.get("InstanceLifecycle") == "spot" else "on-demand",
        "image_id": str(description.get("ImageId", "")),
        "image_name": tags.get(tagging.IMAGE_NAME, ""),
        "image_created": tags.get(tagging.IMAGE_CREATED, ""),
        "launched_at": launched.isoformat() if launched else "",
    }
    return {key: value for key, value in facts.items() if value}
