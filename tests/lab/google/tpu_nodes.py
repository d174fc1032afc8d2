"""Cloud TPU's nodes from the order to the end, following the machines behind them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import grpc
from google.cloud import tpu_v2

from tests.lab.faults import Fault
from tests.lab.google.meter import Meter, Metered
from tests.lab.google.places import tpu_addresses
from tests.lab.google.refusal import RpcError
from tests.lab.google.removals import Removals
from tests.lab.google.tpu_operations import TpuOperation
from tests.lab.google.tpu_orders import NodeOrder
from tests.lab.machines import Machines, MachineSpec

State = tpu_v2.Node.State
_INVALID_ARGUMENT = 3
_CANCELLED = 1
_PREEMPTED = "update is not supported while in state PREEMPTED"


@dataclass(slots=True)
class TpuNode:
    """One node; `doom` is what its creation is to end with."""

    order: NodeOrder
    number: int
    created: TpuOperation | None
    began_at: datetime
    doom: Fault | None
    internal: str
    external: str
    looks_left: int
    hidden_until: datetime
    queued: str = ""
    state: State = State.CREATING
    booted_at: datetime | None = None
    preempted_at: datetime | None = None
    gone_from: datetime | None = None
    waiting: list[TpuOperation] = field(default_factory=list)

    @property
    def machine_id(self) -> str:
        return str(self.number)

    def message(self) -> tpu_v2.Node:
        """As `GetNode` answers it."""
        node = tpu_v2.Node(self.order.node)
        node.name, node.id, node.state = self.order.name, self.number, self.state
        node.create_time = self.began_at
        node.accelerator_type = self.order.accelerator
        node.health = tpu_v2.Node.Health.HEALTHY
        node.api_version = tpu_v2.Node.ApiVersion.V2
        node.queued_resource = self.queued
        if self.booted_at is not None:
            access = tpu_v2.AccessConfig(external_ip=self.external)
            endpoint = tpu_v2.NetworkEndpoint(ip_address=self.internal, port=8470)
            if self.external:
                endpoint.access_config = access
            node.network_endpoints = [endpoint]
        return node


class TpuNodes:
    """All nodes. Nothing here waits; `tick` looks at everything once."""

    def __init__(self, machines: Machines, meter: Meter, clock: Callable[[], datetime]) -> None:
        self.operation_s = self.deleting_s = self.lag_s = 0.0
        # Cloud TPU says READY whether or not the guest ever gets that far.
        self.booting_limit_s = 60.0
        self.looks = 0
        self.devices: dict[str, str] = {}
        self.addresses = tpu_addresses()
        self.known: dict[str, TpuNode] = {}
        self.removals = Removals(machines)
        self._machines, self._meter, self._clock = machines, meter, clock
        self._number = 7_000_000_000_000_000_000

    def create(
        self, order: NodeOrder, operation: TpuOperation | None, doom: Fault | None, queued: str = ""
    ) -> TpuNode:
        """A new node, CREATING."""
        self.refuse_taken(order.name)
        now = self._clock()
        self._number += 1
        node = TpuNode(
            order=order,
            number=self._number,
            created=operation,
            began_at=now,
            doom=doom,
            internal=self.addresses.take_internal(),
            external=self.addresses.take_external() if order.external else "",
            looks_left=self.looks,
            hidden_until=now + timedelta(seconds=self.lag_s),
            queued=queued,
        )
        self.known[order.name] = node
        return node

    def refuse_taken(self, name: str) -> None:
        """Raises RpcError, ALREADY_EXISTS, where there is one of that name in any state."""
        if name in self.known:
            code = grpc.StatusCode.ALREADY_EXISTS
            raise RpcError(code, f"Resource '{name}' already exists")

    def find(self, name: str, *, looks: bool = True) -> TpuNode:
        """The node, or NOT_FOUND where there is none or it is not to be seen yet."""
        node = self.known.get(name)
        if node is None or (looks and self._is_hidden(node)):
            raise RpcError(grpc.StatusCode.NOT_FOUND, f"Resource '{name}' was not found")
        return node

    def visible(self, zone: str) -> list[TpuNode]:
        """Those of a zone ("-" is all) that can be seen, by name."""
        found = [each for _, each in sorted(self.known.items()) if zone in ("-", each.order.zone)]
        return [each for each in found if not self._is_hidden(each)]

    def by_id(self, machine_id: str) -> TpuNode:
        """By the machine's id, the node's id or its whole name."""
        for node in self.known.values():
            if machine_id in (node.machine_id, node.order.node_id, node.order.name):
                return node
        raise KeyError(f"no node {machine_id}; there are {list(self.known)}")

    def delete(self, node: TpuNode, operation: TpuOperation | None) -> None:
        """Begin its end, whatever state it is in."""
        now = self._clock()
        if node.created is not None:
            node.created.fail(now, _CANCELLED, "The node was deleted while it was created.")
        if node.state != State.DELETING:
            node.state = State.DELETING
            node.gone_from = now + timedelta(seconds=self.deleting_s)
            self.removals.start(node.machine_id)
        if operation is not None:
            node.waiting.append(operation)

    def preempt(self, node: TpuNode, notice_s: float) -> None:
        """Announce it, and take it when the notice is over."""
        node.preempted_at = self._clock() + timedelta(seconds=notice_s)
        if node.booted_at is not None:
            self._machines.announce_preemption(node.machine_id, node.preempted_at)

    def tick(self) -> None:
        """Look at everything once."""
        now = self._clock()
        for node in list(self.known.values()):
            if node.preempted_at is not None and now >= node.preempted_at:
                self._take(node, now)
            if node.state == State.CREATING:
                self._look_at_creation(node, now)
            if node.state == State.DELETING:
                self._look_at_end(node, now)

    def _is_hidden(self, node: TpuNode) -> bool:
        if node.looks_left > 0:
            node.looks_left -= 1
            return True
        return self._clock() < node.hidden_until

    def _look_at_creation(self, node: TpuNode, now: datetime) -> None:
        if node.booted_at is None:
            if now < node.began_at + timedelta(seconds=self.operation_s):
                return
            if node.doom is not None:
                self._fail(node, node.doom, now)
                return
            node.booted_at = now
            self._machines.boot(self._spec(node))
        waited_s = (now - node.booted_at).total_seconds()
        if self._machines.is_up(node.machine_id) or waited_s >= self.booting_limit_s:
            self._ready(node, now)

    def _ready(self, node: TpuNode, now: datetime) -> None:
        node.state = State.READY
        order = node.order
        line = ("node", order.accelerator, order.market, order.zone, now)
        self._meter.open(Metered(order.node_id, *line))
        if node.external:
            line = ("address", "external-ipv4", order.market, order.zone, now)
            self._meter.open(Metered(node.external, *line))
        if node.created is not None:
            node.created.finish(now, tpu_v2.Node.pb(node.message()))

    def _fail(self, node: TpuNode, doom: Fault, now: datetime) -> None:
        code = doom.status
        if node.created is not None:
            node.created.fail(now, code, doom.message)
        if code == _INVALID_ARGUMENT:
            node.state = State.PREEMPTED  # taken while it was made: it stays listed
        else:
            self._forget(node)

    def _spec(self, node: TpuNode) -> MachineSpec:
        order = node.order
        metadata = dict(order.node.metadata)
        return MachineSpec(
            id=node.machine_id,
            cloud="tpu",
            addresses=tuple(filter(None, (node.internal, node.external))),
            hostname=order.node_id,
            user_data=metadata.get("user-data", ""),
            attributes=metadata,
            device=self.devices.get(order.accelerator, order.accelerator),
        )

    def _take(self, node: TpuNode, now: datetime) -> None:
        node.preempted_at = None
        if node.state == State.DELETING:
            return
        if node.created is not None:
            node.created.fail(now, _INVALID_ARGUMENT, _PREEMPTED)
        node.state = State.PREEMPTED
        self.removals.start(node.machine_id)
        self._stop_paying(node, now)

    def _look_at_end(self, node: TpuNode, now: datetime) -> None:
        due = node.gone_from is None or now >= node.gone_from
        if due and self.removals.gone(node.machine_id):
            self._stop_paying(node, now)
            for operation in node.waiting:
                operation.finish(now)
            self._forget(node)

    def _stop_paying(self, node: TpuNode, now: datetime) -> None:
        self._meter.close("node", node.order.node_id, now)
        self._meter.close("address", node.external, now)

    def _forget(self, node: TpuNode) -> None:
        self.addresses.give_back(node.internal, node.external)
        del self.known[node.order.name]
