"""Maps the state of a queued resource and its node to a machine's state. Pure functions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from google.cloud import tpu_v2

from orchestrator.domain.machine import Machine, MachineState, SshAddress
from runners.google.account import user_in
from runners.google.names import region_of, tags
from runners.tpu.client import status_answer
from runners.tpu.errors import classify
from runners.tpu.names import NODES, Handle, handle_of

_Queue = tpu_v2.QueuedResourceState.State
_Node = tpu_v2.Node.State
_HOST_KEY = re.compile(r"[A-Za-z0-9+/]{40,100}={0,2}")
_SPOT, _ON_DEMAND = "spot", "on-demand"

# The cloud may refuse until the node exists: stockouts are found as late as that.
_WAITING = frozenset(
    {_Queue.STATE_UNSPECIFIED, _Queue.CREATING, _Queue.ACCEPTED, _Queue.WAITING_FOR_RESOURCES}
)
_ENDING = frozenset({_Queue.FAILED, _Queue.SUSPENDING, _Queue.SUSPENDED, _Queue.DELETING})
_NODE_ENDED: Mapping[int, str] = {
    _Node.DELETING: "",
    _Node.PREEMPTED: "preempted",
    _Node.TERMINATED: "failed",
    _Node.STOPPING: "failed",
    _Node.STOPPED: "failed",
    _Node.HIDING: "failed",
    _Node.HIDDEN: "failed",
    _Node.UNKNOWN: "failed",
}


_UNBILLED = frozenset({_Node.PREEMPTED, _Node.TERMINATED, _Node.STOPPED})


@dataclass(frozen=True, slots=True)
class ListedTpu:
    """A queued resource and its node, as read at one time."""

    handle: Handle
    queued: tpu_v2.QueuedResource | None
    node: tpu_v2.Node | None
    host_key: str = ""
    """Host key that the guest published, in base64."""
    now: datetime | None = None
    simulated: bool = False


def machine_of(seen: ListedTpu) -> Machine:
    """Convert a node, its queued resource or both to the machine that the provider reports."""
    spec = spec_of(seen)
    carried = tags(dict(spec.labels)) if spec is not None else {}
    state, ended, detail = _judge(seen, carried)
    is_over = state is MachineState.STOPPING and _is_unbilled(seen)
    return Machine(
        id=seen.handle.machine_id,
        token=carried.get("seatrial-token", ""),
        state=state,
        endpoint=address_of(seen) if state is MachineState.READY else None,
        detail=detail,
        ended=ended,
        ended_at=seen.now if is_over else None,
        kind="machine" if seen.queued is None or seen.node is not None else "queued-resource",
        tags=carried,
        facts=_facts(seen, spec),
        simulated=seen.simulated,
    )


def _is_unbilled(seen: ListedTpu) -> bool:
    """Return whether its chips were preempted while it stays listed; no API has the time."""
    if seen.node is not None:
        return seen.node.state in _UNBILLED
    return seen.queued is not None and seen.queued.state.state == _Queue.SUSPENDED


def address_of(seen: ListedTpu) -> SshAddress | None:
    """Return the node's SSH address; None until it has an address and a published host key."""
    node = seen.node
    if node is None or not node.network_endpoints or not _HOST_KEY.fullmatch(seen.host_key):
        return None
    endpoint = node.network_endpoints[0]
    public = node.network_config.enable_external_ips
    address = endpoint.access_config.external_ip if public else endpoint.ip_address
    if not address:
        return None
    user = user_in(dict(node.metadata))
    return SshAddress(address, user, host_key=f"ssh-ed25519 {seen.host_key}")


def is_up(node: tpu_v2.Node | None) -> bool:
    """Return whether the node may have published a host key."""
    return node is not None and node.state == _Node.READY


def spec_of(seen: ListedTpu) -> tpu_v2.Node | None:
    """Return the node, or else its specification: a queued resource has no labels itself."""
    if seen.node is not None:
        return seen.node
    specs = seen.queued.tpu.node_spec if seen.queued is not None else ()
    return specs[0].node if specs else None


def _judge(seen: ListedTpu, carried: Mapping[str, str]) -> tuple[MachineState, str, str]:
    queued, node = seen.queued, seen.node
    if queued is None and node is None:
        return (
            MachineState.TERMINATED,
            "",
            "neither a node nor a queued resource of this id is there",
        )
    if queued is not None and queued.state.state in _ENDING:
        return MachineState.STOPPING, _queue_ended(queued, node), _queue_detail(queued)
    if node is not None:
        return _judge_node(seen, node, carried)
    assert queued is not None  # noqa: S101 - the first line
    if queued.state.state in _WAITING or queued.state.state == _Queue.PROVISIONING:
        return MachineState.REQUESTED, "", _queue_detail(queued)
    return MachineState.BOOTING, "", f"{_queue_detail(queued)}; its node is not to be seen"


def _judge_node(
    seen: ListedTpu, node: tpu_v2.Node, carried: Mapping[str, str]
) -> tuple[MachineState, str, str]:
    detail = _node_detail(node)
    if node.state in _NODE_ENDED:
        return MachineState.STOPPING, _node_ended(seen, node, carried), detail
    if node.state == _Node.CREATING:
        return MachineState.REQUESTED, "", detail
    if node.state != _Node.READY:
        return MachineState.BOOTING, "", detail
    if address_of(seen) is None:
        missing = "address" if seen.host_key else "host key"
        return MachineState.BOOTING, "", f"{detail}; it has not published its {missing} yet"
    return MachineState.READY, "", detail


def _node_ended(seen: ListedTpu, node: tpu_v2.Node, carried: Mapping[str, str]) -> str:
    ended = _NODE_ENDED[node.state]
    if node.state == _Node.TERMINATED and market_of(seen) == _SPOT:
        return "preempted"
    if node.state in (_Node.STOPPING, _Node.STOPPED) and _is_past(carried, seen.now):
        return "deadline"
    return ended


def _is_past(carried: Mapping[str, str], now: datetime | None) -> bool:
    expires = carried.get("seatrial-expires-at", "")
    return now is not None and expires.isdigit() and now.timestamp() >= int(expires)


def _queue_ended(queued: tpu_v2.QueuedResource, node: tpu_v2.Node | None) -> str:
    state = queued.state
    if node is not None and node.state == _Node.PREEMPTED:
        return "preempted"
    if state.state == _Queue.FAILED:
        return _failed_ended(queued)
    if state.state == _Queue.DELETING:
        return ""
    if state.state_initiator == tpu_v2.QueuedResourceState.StateInitiator.USER:
        return "failed"
    return "preempted" if "spot" in queued else "failed"


def _failed_ended(queued: tpu_v2.QueuedResource) -> str:
    error = queued.state.failed_data.error
    if not error.code and not error.message:
        # No error is given: that is the result of a request that waited too long.
        return "capacity"
    answer = status_answer(error.code, error.message, error.details)
    if answer.code in ("DEADLINE_EXCEEDED", "CANCELLED"):
        return "capacity"  # its bounded wait is over
    return classify(answer).ended


def _queue_detail(queued: tpu_v2.QueuedResource) -> str:
    said = f"queued resource {_Queue(queued.state.state).name}"
    error = queued.state.failed_data.error
    if not error.code and not error.message:
        return said
    return f"{said}: {status_answer(error.code, '', ()).code}: {' '.join(error.message.split())}"


def _node_detail(node: tpu_v2.Node) -> str:
    said = f"node {_Node(node.state).name}"
    return f"{said}: {' '.join(node.health_description.split())}".rstrip(": ")


def market_of(seen: ListedTpu) -> str:
    """Return the requested market."""
    if seen.queued is not None:
        return _SPOT if "spot" in seen.queued else _ON_DEMAND
    if seen.node is None:
        return ""
    how = seen.node.scheduling_config
    return _SPOT if how.spot or how.preemptible else _ON_DEMAND


def _facts(seen: ListedTpu, spec: tpu_v2.Node | None) -> dict[str, str]:
    if spec is None:
        return {}
    number = str(seen.node.id) if seen.node is not None and seen.node.id else ""
    return {
        "instance_id": number or seen.handle.id,
        "instance_type": spec.accelerator_type,
        "zone": seen.handle.zone,
        "region": region_of(seen.handle.zone),
        "market": market_of(seen),
        "image_id": spec.runtime_version,
        "image_name": spec.runtime_version,
    }


def node_handle(queued: tpu_v2.QueuedResource) -> Handle:
    """Return the handle of a queued resource's present or future node."""
    handle = handle_of(queued.name)
    specs = queued.tpu.node_spec
    node_id = specs[0].node_id if specs else ""
    return Handle(handle.zone, NODES, node_id or handle.id)
