"""What `CreateNode` and `CreateQueuedResource` ask for, held against Cloud TPU's rules."""

from __future__ import annotations

import re
from dataclasses import dataclass

import grpc
from google.cloud import tpu_v2

from tests.lab.google.places import V5E_ZONES, ZONES
from tests.lab.google.refusal import RpcError

_ID = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")
_LABEL_KEY = re.compile(r"[a-z][-_a-z0-9]{0,62}")
_LABEL_VALUE = re.compile(r"[-_a-z0-9]{0,63}")
_PARENT = re.compile(r"projects/[^/]+/locations/(?P<zone>[^/]+)")
V6E_ZONES = ("us-east1-c", "europe-west4-a")
ACCELERATORS = {
    **{f"v5litepod-{chips}": V5E_ZONES for chips in (1, 4, 8)},
    **{f"v6e-{chips}": V6E_ZONES for chips in (1, 4, 8)},
}
RUNTIMES = ("v2-alpha-tpuv5-lite", "v2-alpha-tpuv6e", "tpu-ubuntu2204-base", "tpu-vm-base")
_TOPOLOGY = {"1x1": 1, "2x2": 4, "2x4": 8}
MOST_LABELS = 64
LONGEST_VALUE, LONGEST_METADATA = 256 * 1024, 512 * 1024
"""Bytes, as of Compute Engine's metadata: cloud.google.com/compute/docs/metadata/overview."""
_INVALID = grpc.StatusCode.INVALID_ARGUMENT


@dataclass(frozen=True, slots=True)
class NodeOrder:
    """A permitted node."""

    parent: str
    node_id: str
    node: tpu_v2.Node
    accelerator: str
    market: str

    @property
    def name(self) -> str:
        return f"{self.parent}/nodes/{self.node_id}"

    @property
    def zone(self) -> str:
        return self.parent.rpartition("/")[2]

    @property
    def chips(self) -> int:
        return int(self.accelerator.rpartition("-")[2])

    @property
    def external(self) -> bool:
        return bool(self.node.network_config.enable_external_ips)


def zone_of(parent: str) -> str:
    """The zone in a parent or a name; "-" is all of them."""
    found = _PARENT.match(parent)
    return found["zone"] if found else ""


def check_zone(parent: str) -> str:
    """The zone, or NOT_FOUND where Cloud TPU has none of that name."""
    zone = zone_of(parent)
    if zone not in ZONES:
        why = f"Location {zone or parent} is not found or access is unauthorized."
        raise RpcError(grpc.StatusCode.NOT_FOUND, why)
    return zone


def check_id(value: str, what: str) -> None:
    """Lower case, digits and dashes."""
    if not _ID.fullmatch(value):
        raise RpcError(_INVALID, f"Invalid {what}: '{value}' must match {_ID.pattern}")


def market_of_node(node: tpu_v2.Node) -> str:
    """The market that a node's own scheduling asks for."""
    scheduling = node.scheduling_config
    return "spot" if scheduling.spot or scheduling.preemptible else "on-demand"


def market_of_queued(queued: tpu_v2.QueuedResource) -> str:
    """The market that a queued resource asks for: its own word, or else its node's."""
    if "spot" in queued:
        return "spot"
    specs = queued.tpu.node_spec
    return market_of_node(specs[0].node) if specs else "on-demand"


def read_node(parent: str, node_id: str, node: tpu_v2.Node, *, market: str = "") -> NodeOrder:
    """The order in a call.

    Raises:
        RpcError: INVALID_ARGUMENT or NOT_FOUND.
    """
    zone = check_zone(parent)
    check_id(node_id, "node_id")
    accelerator = _accelerator(node)
    if zone not in ACCELERATORS.get(accelerator, ()):
        raise RpcError(_INVALID, f"Accelerator type '{accelerator}' is not offered in {zone}")
    if node.runtime_version not in RUNTIMES:
        raise RpcError(_INVALID, f"Runtime version '{node.runtime_version}' not found")
    scheduling = node.scheduling_config
    if sum(map(bool, (scheduling.spot, scheduling.preemptible, scheduling.reserved))) > 1:
        raise RpcError(_INVALID, "Only one of spot, preemptible and reserved may be set")
    if len(node.labels) > MOST_LABELS:
        raise RpcError(_INVALID, f"At most {MOST_LABELS} labels")
    sizes = [len(value.encode()) for value in node.metadata.values()]
    if max(sizes, default=0) > LONGEST_VALUE or sum(sizes) > LONGEST_METADATA:
        raise RpcError(_INVALID, "Metadata values are 256 KB at most, 512 KB together")
    for key, value in node.labels.items():
        if not _LABEL_KEY.fullmatch(key) or not _LABEL_VALUE.fullmatch(value):
            raise RpcError(_INVALID, f"Invalid label: '{key}={value}'")
    return NodeOrder(parent, node_id, node, accelerator, market or market_of_node(node))


def read_queued(parent: str, queued_id: str, queued: tpu_v2.QueuedResource) -> NodeOrder:
    """The one node that a queued resource asks for."""
    check_zone(parent)
    check_id(queued_id, "queued_resource_id")
    specs = queued.tpu.node_spec
    if len(specs) != 1 or not specs[0].node_id:
        raise RpcError(_INVALID, "The lab takes one node_spec, with a node_id")
    if specs[0].parent != parent:
        raise RpcError(_INVALID, "The node's parent must be the queued resource's")
    scheduling = specs[0].node.scheduling_config
    if "spot" in queued and (scheduling.spot or scheduling.preemptible or scheduling.reserved):
        raise RpcError(_INVALID, "spot and the node's scheduling_config exclude each other")
    if "spot" in queued and "guaranteed" in queued:
        raise RpcError(_INVALID, "Only one of spot and guaranteed may be set")
    market = market_of_queued(queued)
    return read_node(parent, specs[0].node_id, specs[0].node, market=market)


def _accelerator(node: tpu_v2.Node) -> str:
    if node.accelerator_type:
        return str(node.accelerator_type)
    config = node.accelerator_config
    kinds = {tpu_v2.AcceleratorConfig.Type.V5LITE_POD: "v5litepod"}
    if config.type_ not in kinds or config.topology not in _TOPOLOGY:
        raise RpcError(_INVALID, "One of accelerator_type and accelerator_config is needed")
    return f"{kinds[config.type_]}-{_TOPOLOGY[config.topology]}"
