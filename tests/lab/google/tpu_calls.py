"""The calls of Cloud TPU that the lab answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime
from typing import Any

import grpc
from google.cloud import tpu_v2
from google.cloud.location import locations_pb2
from google.longrunning import operations_pb2
from google.protobuf import empty_pb2

from tests.lab.faults import Fault, Faults
from tests.lab.google.codes import tpu_fault
from tests.lab.google.meter import Meter
from tests.lab.google.places import ZONES, Gaps, region_of
from tests.lab.google.quotas_cloud import V5E_QUOTAS, TpuQuotas
from tests.lab.google.refusal import RpcError
from tests.lab.google.rpc import Method
from tests.lab.google.tpu_nodes import TpuNodes
from tests.lab.google.tpu_operations import TpuOperations
from tests.lab.google.tpu_orders import (
    ACCELERATORS,
    RUNTIMES,
    NodeOrder,
    check_zone,
    market_of_node,
    market_of_queued,
    read_node,
    read_queued,
    zone_of,
)
from tests.lab.google.tpu_queue import TpuQueue
from tests.lab.machines import Machines

_TPU = "google.cloud.tpu.v2.Tpu"
_OPERATIONS = "google.longrunning.Operations"
_LOCATIONS = "google.cloud.location.Locations"


class TpuCalls:
    """One method per call, named after it; each answers a message or raises RpcError."""

    def __init__(self, machines: Machines, faults: Faults, clock: Callable[[], datetime]) -> None:
        self.meter = Meter()
        self.quotas = TpuQuotas()
        self.operations = TpuOperations()
        self.nodes = TpuNodes(machines, self.meter, clock)
        self.queue = TpuQueue(self.nodes, faults, self.is_dry, clock)
        self.dry: set[str | tuple[str, str]] = set()
        self.gaps = Gaps()
        self.hides_from_changes = False
        self._machines, self._clock = machines, clock

    def tick(self) -> None:
        """Look at everything once; what a queue begins goes on in the same look."""
        self.nodes.tick()
        self.queue.tick()
        self.nodes.tick()
        self.queue.tick()

    def is_dry(self, order: NodeOrder) -> bool:
        """Whether the zone has no room for it."""
        return bool({order.zone, (order.zone, order.market)} & self.dry)

    def create_node(self, request: tpu_v2.CreateNodeRequest, fault: Fault) -> Any:
        order = read_node(request.parent, request.node_id, request.node)
        self.nodes.refuse_taken(order.name)
        self._hold_to_quota(order)
        doom = fault if fault.in_operation else None
        if doom is None and self.is_dry(order):
            doom = tpu_fault("RESOURCE_EXHAUSTED", in_operation=True)
        operation = self.operations.begin("create", order.parent, order.name, self._clock())
        self.nodes.create(order, operation, doom)
        return operation.message()

    def get_node(self, request: tpu_v2.GetNodeRequest, _: Fault) -> tpu_v2.Node:
        return self.nodes.find(request.name).message()

    def list_nodes(self, request: tpu_v2.ListNodesRequest, _: Fault) -> tpu_v2.ListNodesResponse:
        zone = _zone_or_all(request.parent)
        found, unreachable = self._answered("nodes", self.nodes.visible(zone), request)
        rows, following = _page(found, request)
        return tpu_v2.ListNodesResponse(
            nodes=rows, next_page_token=following, unreachable=unreachable
        )

    def delete_node(self, request: tpu_v2.DeleteNodeRequest, fault: Fault) -> Any:
        node = self.nodes.find(request.name, looks=self.hides_from_changes)
        parent, now = node.order.parent, self._clock()
        operation = self.operations.begin("delete", parent, request.name, now)
        if fault.in_operation:
            operation.fail(now, fault.status, fault.message)
        else:
            self.nodes.delete(node, operation)
        return operation.message()

    def get_guest_attributes(
        self, request: tpu_v2.GetGuestAttributesRequest, _: Fault
    ) -> tpu_v2.GetGuestAttributesResponse:
        node = self.nodes.find(request.name)
        there = self._machines.guest_attributes(node.machine_id)
        asked = request.query_path
        found = {key: value for key, value in there.items() if key.startswith(asked)}
        if not found:
            raise RpcError(grpc.StatusCode.NOT_FOUND, f"No guest attributes under '{asked}'")
        items = [
            tpu_v2.GuestAttributesEntry(
                namespace=key.partition("/")[0], key=key.partition("/")[2], value=value
            )
            for key, value in found.items()
        ]
        value = tpu_v2.GuestAttributesValue(items=items)
        worker = tpu_v2.GuestAttributes(query_path=asked, query_value=value)
        return tpu_v2.GetGuestAttributesResponse(guest_attributes=[worker])

    def create_queued_resource(
        self, request: tpu_v2.CreateQueuedResourceRequest, fault: Fault
    ) -> Any:
        again = self.operations.repeated("create queued", request.parent, request.request_id)
        if again is not None:
            return again.message()
        parent, asked = request.parent, request.queued_resource
        order = read_queued(parent, request.queued_resource_id, asked)
        name = f"{parent}/queuedResources/{request.queued_resource_id}"
        if name in self.queue.known:
            raise RpcError(grpc.StatusCode.ALREADY_EXISTS, f"Resource '{name}' already exists")
        self.nodes.refuse_taken(order.name)
        self._hold_to_quota(order)
        now = self._clock()
        operation = self.operations.begin(
            "create queued", parent, name, now, token=request.request_id
        )
        if fault.in_operation:
            operation.fail(now, fault.status, fault.message)
        else:
            self.queue.create(name, asked, order, operation)
        return operation.message()

    def get_queued_resource(
        self, request: tpu_v2.GetQueuedResourceRequest, _: Fault
    ) -> tpu_v2.QueuedResource:
        return self.queue.find(request.name).message()

    def list_queued_resources(
        self, request: tpu_v2.ListQueuedResourcesRequest, _: Fault
    ) -> tpu_v2.ListQueuedResourcesResponse:
        zone = _zone_or_all(request.parent)
        found, unreachable = self._answered("queue", self.queue.visible(zone), request)
        rows, following = _page(found, request)
        return tpu_v2.ListQueuedResourcesResponse(
            queued_resources=rows, next_page_token=following, unreachable=unreachable
        )

    def delete_queued_resource(
        self, request: tpu_v2.DeleteQueuedResourceRequest, fault: Fault
    ) -> Any:
        parent, now = request.name.partition("/queuedResources/")[0], self._clock()
        again = self.operations.repeated("delete queued", parent, request.request_id)
        if again is not None:
            return again.message()
        queued = self.queue.find(request.name, looks=self.hides_from_changes)
        if not request.force:
            self.queue.refuse_held(queued)
        operation = self.operations.begin(
            "delete queued", parent, request.name, now, token=request.request_id
        )
        if fault.in_operation:
            operation.fail(now, fault.status, fault.message)
        else:
            self.queue.delete(queued, operation)
        return operation.message()

    def list_accelerator_types(
        self, request: tpu_v2.ListAcceleratorTypesRequest, _: Fault
    ) -> tpu_v2.ListAcceleratorTypesResponse:
        zone = check_zone(request.parent)
        kinds = [
            tpu_v2.AcceleratorType(name=f"{request.parent}/acceleratorTypes/{kind}", type_=kind)
            for kind, zones in ACCELERATORS.items()
            if zone in zones
        ]
        rows, following = _page(kinds, request)
        return tpu_v2.ListAcceleratorTypesResponse(
            accelerator_types=rows, next_page_token=following
        )

    def list_runtime_versions(
        self, request: tpu_v2.ListRuntimeVersionsRequest, _: Fault
    ) -> tpu_v2.ListRuntimeVersionsResponse:
        check_zone(request.parent)
        versions = [
            tpu_v2.RuntimeVersion(name=f"{request.parent}/runtimeVersions/{each}", version=each)
            for each in RUNTIMES
        ]
        rows, following = _page(versions, request)
        return tpu_v2.ListRuntimeVersionsResponse(runtime_versions=rows, next_page_token=following)

    def get_operation(self, request: Any, _: Fault) -> Any:
        return self.operations.get(request.name).message()

    def list_operations(self, request: Any, _: Fault) -> Any:
        found = [each.message() for name, each in self.operations.known.items()
                 if name.startswith(f"{request.name}/")]  # fmt: skip
        return operations_pb2.ListOperationsResponse(operations=found)

    def cancel_operation(self, request: Any, _: Fault) -> Any:
        """A creation that is cancelled leaves no node; nothing else can be cancelled."""
        operation = self.operations.get(request.name)
        operation.cancel_requested = True
        node = self.nodes.known.get(operation.target)
        if operation.verb == "create" and operation.ended_at is None and node is not None:
            self.nodes.delete(node, None)
        return empty_pb2.Empty()

    def list_locations(self, request: Any, _: Fault) -> Any:
        found = [locations_pb2.Location(name=f"{request.name}/locations/{zone}", location_id=zone)
                 for zone in ZONES]  # fmt: skip
        return locations_pb2.ListLocationsResponse(locations=found)

    def places(self, name: str, request: Any) -> tuple[str, ...]:
        """What a scripted fault's `where` is compared with: zone, region, market, ids."""
        spelled = getattr(request, "parent", "") or getattr(request, "name", "")
        zone = zone_of(spelled)
        found = [zone, region_of(zone)] if zone else []
        if name == "CreateNode":
            return (*found, market_of_node(request.node), request.node_id)
        if name == "CreateQueuedResource":
            asked = request.queued_resource
            return (*found, market_of_queued(asked), request.queued_resource_id)
        there = self.nodes.known.get(spelled) or self.queue.known.get(spelled)
        market = [there.order.market] if there is not None else []
        return (*found, *market, spelled.rpartition("/")[2])

    def _answered(
        self, what: str, found: Iterable[Any], request: Any
    ) -> tuple[list[Any], list[str]]:
        """What a list has, and the names of the zones that it lacks."""
        of_all = zone_of(request.parent) == "-"
        gaps = self.gaps.of(what, is_new=not request.page_token) if of_all else set[str]()
        kept = [each.message() for each in found if each.order.zone not in gaps]
        return kept, [f"{request.parent.removesuffix('-')}{gap}" for gap in sorted(gaps)]

    def _hold_to_quota(self, order: NodeOrder) -> None:
        """What is listed counts, in any state: a preempted node, a failed request."""
        if not order.accelerator.startswith("v5litepod"):
            return
        waiting = [each.order for each in self.queue.known.values()
                   if each.order.name not in self.nodes.known]  # fmt: skip
        orders = [*(each.order for each in self.nodes.known.values()), *waiting]
        place = (order.zone, order.market)
        used = sum(each.chips for each in orders if (each.zone, each.market) == place)
        limit = self.quotas.limit(*place)
        if used + order.chips > limit:
            quota = V5E_QUOTAS[order.market]
            why = (f"Quota limit '{quota}' has been exceeded. "
                   f"Limit: {limit} in zone {order.zone}.")  # fmt: skip
            raise RpcError(grpc.StatusCode.RESOURCE_EXHAUSTED, why, quota)


def methods(calls: TpuCalls) -> list[Method]:
    """The table of the gRPC server."""
    t, ops, locations = tpu_v2, operations_pb2, locations_pb2

    def tpu(name: str, write: Any, answer: Callable[[Any, Fault], Any], **more: bool) -> Method:
        read = getattr(t, f"{name}Request").deserialize
        return Method(_TPU, name, read, write, answer, **more)

    started: dict[str, Any] = {"write": ops.Operation.SerializeToString, "begins_operation": True}

    def plain(service: str, name: str, request: Any, answer: Callable[[Any, Fault], Any]) -> Method:
        return Method(service, name, request.FromString, _serialize, answer)

    return [
        tpu("CreateNode", answer=calls.create_node, **started),
        tpu("DeleteNode", answer=calls.delete_node, **started),
        tpu("CreateQueuedResource", answer=calls.create_queued_resource, **started),
        tpu("DeleteQueuedResource", answer=calls.delete_queued_resource, **started),
        tpu("GetNode", t.Node.serialize, calls.get_node),
        tpu("ListNodes", t.ListNodesResponse.serialize, calls.list_nodes),
        tpu("GetQueuedResource", t.QueuedResource.serialize, calls.get_queued_resource),
        tpu("ListQueuedResources", t.ListQueuedResourcesResponse.serialize,
            calls.list_queued_resources),
        tpu("GetGuestAttributes", t.GetGuestAttributesResponse.serialize,
            calls.get_guest_attributes),
        tpu("ListAcceleratorTypes", t.ListAcceleratorTypesResponse.serialize,
            calls.list_accelerator_types),
        tpu("ListRuntimeVersions", t.ListRuntimeVersionsResponse.serialize,
            calls.list_runtime_versions),
        plain(_OPERATIONS, "GetOperation", ops.GetOperationRequest, calls.get_operation),
        plain(_OPERATIONS, "ListOperations", ops.ListOperationsRequest, calls.list_operations),
        plain(_OPERATIONS, "CancelOperation", ops.CancelOperationRequest, calls.cancel_operation),
        plain(_LOCATIONS, "ListLocations", locations.ListLocationsRequest, calls.list_locations),
    ]  # fmt: skip


def _serialize(message: Any) -> bytes:
    return bytes(message.SerializeToString())


def _zone_or_all(parent: str) -> str:
    return "-" if zone_of(parent) == "-" else check_zone(parent)


def _page(rows: list[Any], request: Any) -> tuple[list[Any], str]:
    size, start = request.page_size or 1000, int(request.page_token or 0)
    following = str(start + size) if start + size < len(rows) else ""
    return rows[start : start + size], following
