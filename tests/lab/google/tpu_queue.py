"""Cloud TPU's queued resources: they wait, make a node, and stay listed until deleted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import grpc
from google.cloud import tpu_v2
from google.rpc import status_pb2

from tests.lab.faults import Faults
from tests.lab.google.refusal import RpcError
from tests.lab.google.tpu_nodes import State as NodeState
from tests.lab.google.tpu_nodes import TpuNodes
from tests.lab.google.tpu_operations import TpuOperation
from tests.lab.google.tpu_orders import NodeOrder

State = tpu_v2.QueuedResourceState.State
# Scripted under this name, a fault ends the next queued resource that begins PROVISIONING.
PROVISIONING = "provisioning"
_DEADLINE_EXCEEDED = 4


@dataclass(slots=True)
class Queued:
    """One queued resource."""

    name: str
    asked: tpu_v2.QueuedResource
    order: NodeOrder
    created: TpuOperation
    began_at: datetime
    looks_left: int
    state: State = State.CREATING
    failure: tuple[int, str] | None = None
    waiting: list[TpuOperation] = field(default_factory=list)

    @property
    def valid_until(self) -> datetime | None:
        """When waiting is over."""
        policy = self.asked.queueing_policy
        if "valid_until_duration" in policy:
            return self.began_at + policy.valid_until_duration
        return policy.valid_until_time if "valid_until_time" in policy else None

    def message(self) -> tpu_v2.QueuedResource:
        """As `GetQueuedResource` answers it."""
        said = tpu_v2.QueuedResource(self.asked)
        said.name, said.create_time = self.name, self.began_at
        said.state = tpu_v2.QueuedResourceState(
            state=self.state,
            state_initiator=tpu_v2.QueuedResourceState.StateInitiator.SERVICE,
        )
        if self.failure is not None:
            error = status_pb2.Status(code=self.failure[0], message=self.failure[1])
            said.state.failed_data = tpu_v2.QueuedResourceState.FailedData(error=error)
        return said

    def fail(self, code: int, message: str) -> None:
        """FAILED, and it stays."""
        self.state, self.failure = State.FAILED, (code, message)


class TpuQueue:
    """All of them. Nothing here waits; `tick` looks at everything once."""

    def __init__(
        self,
        nodes: TpuNodes,
        faults: Faults,
        is_dry: Callable[[NodeOrder], bool],
        clock: Callable[[], datetime],
    ) -> None:
        self.queue_s = 0.0
        self.known: dict[str, Queued] = {}
        self._nodes, self._faults, self._is_dry, self._clock = nodes, faults, is_dry, clock

    def create(
        self, name: str, asked: tpu_v2.QueuedResource, order: NodeOrder, operation: TpuOperation
    ) -> Queued:
        """A new one, CREATING."""
        queued = Queued(name, asked, order, operation, self._clock(), self._nodes.looks)
        self.known[name] = queued
        return queued

    def find(self, name: str, *, looks: bool = True) -> Queued:
        """The queued resource, or NOT_FOUND where there is none or none to be seen yet."""
        queued = self.known.get(name)
        if queued is None or (looks and self._is_hidden(queued)):
            raise RpcError(grpc.StatusCode.NOT_FOUND, f"Resource '{name}' was not found")
        return queued

    def visible(self, zone: str) -> list[Queued]:
        """Those of a zone ("-" is all) that can be seen, by name."""
        found = [each for _, each in sorted(self.known.items()) if zone in ("-", each.order.zone)]
        return [each for each in found if not self._is_hidden(each)]

    def refuse_held(self, queued: Queued) -> None:
        """Raises RpcError, FAILED_PRECONDITION, where it has a node: only force ends that."""
        if queued.state in (State.PROVISIONING, State.ACTIVE, State.SUSPENDING):
            why = f"Queued resource {queued.name} is {queued.state.name}: delete it with force"
            raise RpcError(grpc.StatusCode.FAILED_PRECONDITION, why)

    def delete(self, queued: Queued, operation: TpuOperation) -> None:
        """Begin its end, and its node's."""
        queued.created.fail(self._clock(), 1, "The queued resource was deleted.")
        queued.state = State.DELETING
        queued.waiting.append(operation)
        node = self._nodes.known.get(queued.order.name)
        if node is not None and node.queued == queued.name:
            self._nodes.delete(node, None)

    def tick(self) -> None:
        """Look at everything once."""
        now = self._clock()
        for queued in list(self.known.values()):
            if queued.state == State.CREATING:
                self._accept(queued, now)
            if queued.state == State.WAITING_FOR_RESOURCES:
                self._look_for_room(queued, now)
            if queued.state in (State.PROVISIONING, State.ACTIVE):
                self._look_at_node(queued)
            elif queued.state == State.SUSPENDING:
                queued.state = State.SUSPENDED
            elif queued.state == State.DELETING:
                self._look_at_end(queued, now)

    def _is_hidden(self, queued: Queued) -> bool:
        if queued.looks_left > 0:
            queued.looks_left -= 1
            return True
        return self._clock() < queued.began_at + timedelta(seconds=self._nodes.lag_s)

    def _accept(self, queued: Queued, now: datetime) -> None:
        if now >= queued.began_at + timedelta(seconds=self._nodes.operation_s):
            queued.state = State.WAITING_FOR_RESOURCES
            queued.created.finish(now, tpu_v2.QueuedResource.pb(queued.message()))

    def _look_for_room(self, queued: Queued, now: datetime) -> None:
        if queued.valid_until is not None and now >= queued.valid_until:
            queued.fail(_DEADLINE_EXCEEDED, "The request was not fulfilled while it was valid.")
            return
        if self._is_dry(queued.order) or now < queued.began_at + timedelta(seconds=self.queue_s):
            return
        places = (queued.order.zone, queued.order.market)
        fault = self._faults.take(PROVISIONING, places, is_call=False)
        if fault is not None:
            queued.fail(fault.status, fault.message)
        elif queued.order.name in self._nodes.known:
            queued.fail(6, f"Resource '{queued.order.name}' already exists")
        else:
            self._nodes.create(queued.order, None, None, queued.name)
            queued.state = State.PROVISIONING

    def _look_at_node(self, queued: Queued) -> None:
        node = self._nodes.known.get(queued.order.name)
        if node is None or node.state == NodeState.PREEMPTED:
            queued.state = State.SUSPENDING
        elif node.state == NodeState.READY:
            queued.state = State.ACTIVE

    def _look_at_end(self, queued: Queued, now: datetime) -> None:
        node = self._nodes.known.get(queued.order.name)
        if node is not None and node.queued == queued.name:
            return
        for operation in queued.waiting:
            operation.finish(now)
        del self.known[queued.name]
