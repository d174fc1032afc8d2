"""The real google-cloud-tpu client's orders that the lab's tests place."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from google.api_core import operation
from google.cloud import tpu_v2
from google.protobuf import duration_pb2

Z = "us-west4-a"
PARENT = f"projects/lab/locations/{Z}"
NODE = f"{PARENT}/nodes/one"
QUEUED = f"{PARENT}/queuedResources/q"
NodeState = tpu_v2.Node.State
QueuedState = tpu_v2.QueuedResourceState.State


def a_node(*, spot: bool = False, scheduled: bool = True, **more: Any) -> tpu_v2.Node:
    node = tpu_v2.Node(
        accelerator_type="v5litepod-1",
        runtime_version="v2-alpha-tpuv5-lite",
        network_config=tpu_v2.NetworkConfig(enable_external_ips=True),
        metadata={"ssh-keys": "ubuntu:ssh-ed25519 AAAA", "enable-guest-attributes": "TRUE"},
        labels={"managed-by": "seatrial"},
    )
    if scheduled:
        node.scheduling_config = tpu_v2.SchedulingConfig(spot=spot)
    for name, value in more.items():
        setattr(node, name, value)
    return node


def create(tpu: tpu_v2.TpuClient, node_id: str = "one", **order: Any) -> operation.Operation:
    return tpu.create_node(parent=PARENT, node_id=node_id, node=a_node(**order))


def queue(
    tpu: tpu_v2.TpuClient, *, spot: bool = True, valid_s: int = 0, token: str = "", name: str = "q"
) -> operation.Operation:
    spec = tpu_v2.QueuedResource.Tpu.NodeSpec(
        parent=PARENT, node_id=f"{name}-node", node=a_node(scheduled=False)
    )
    asked = tpu_v2.QueuedResource(tpu=tpu_v2.QueuedResource.Tpu(node_spec=[spec]))
    if spot:
        asked.spot = tpu_v2.QueuedResource.Spot()
    if valid_s:
        asked.queueing_policy.valid_until_duration = duration_pb2.Duration(seconds=valid_s)
    request = tpu_v2.CreateQueuedResourceRequest(
        parent=PARENT, queued_resource_id=name, queued_resource=asked, request_id=token
    )
    return tpu.create_queued_resource(request)


def queued_state(tpu: tpu_v2.TpuClient) -> QueuedState:
    return tpu.get_queued_resource(name=QUEUED).state.state


def soon(seen: Callable[[], bool], within_s: float = 120.0) -> None:
    until = time.monotonic() + within_s
    while not seen():
        assert time.monotonic() < until, "did not come about"
        time.sleep(0.02)


def started(tpu: tpu_v2.TpuClient, running: operation.Operation) -> Any:
    """The operation as it stands: done, and not waited for by the library's slow polling."""
    name = running.operation.name
    soon(lambda: tpu.get_operation({"name": name}).done)
    return tpu.get_operation({"name": name})
