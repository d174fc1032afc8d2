"""An emulated Cloud TPU on the loopback, for the real google-cloud-tpu client (gRPC, no TLS)."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import datetime
from types import TracebackType
from typing import Any, Self

from tests.lab.cloud_facts import durations, rows
from tests.lab.faults import Call, Fault, Faults
from tests.lab.google.codes import tpu_fault
from tests.lab.google.front import utc_now
from tests.lab.google.meter import Metered
from tests.lab.google.rpc import RpcFront
from tests.lab.google.tpu_calls import TpuCalls, methods
from tests.lab.machines import Machines, NoMachines

_TICK_S = 0.1


class TpuCloud:
    """Cloud TPU, every project and zone, at `target` ("127.0.0.1:PORT").

    Attributes:
        nodes: `operation_s`, `deleting_s`, `booting_limit_s`, `addresses`, by the cloud's clock.
        queue: `queue_s`, how long a queued resource waits at least.
        quotas: Chips by zone and market; enforced, and what `QuotasCloud` tells.
        devices: Accelerator type to what its machines show, where that is to be a wrong one.
        dry: Zones, or (zone, market) pairs, that have no capacity.
        gaps: Zones that lists of all zones lack, and name.
    """

    def __init__(
        self, *, machines: Machines | None = None, clock: Callable[[], datetime] = utc_now
    ) -> None:
        self.machines: Machines = NoMachines() if machines is None else machines
        self.clock = clock
        self._lock = threading.RLock()
        self._stopping = threading.Event()
        self._ticker = threading.Thread(target=self._tick_on, name="TpuCloud", daemon=True)
        faults = Faults()
        self._calls = TpuCalls(self.machines, faults, lambda: self.clock())
        table = [replace(each, answer=self._locked(each.answer)) for each in methods(self._calls)]
        self._front = RpcFront(table, self._places, lambda: self.clock())
        self._front.faults = faults
        self.faults = faults
        self.nodes, self.queue = self._calls.nodes, self._calls.queue
        self.quotas, self.dry = self._calls.quotas, self._calls.dry
        self.gaps = self._calls.gaps
        self.devices = self.nodes.devices

    def start(self) -> Self:
        """Listen on a free port of the loopback."""
        self._front.start()
        self._ticker.start()
        return self

    def stop(self) -> None:
        """Close it; the machines that still run are the lab's to remove.

        Raises:
            RuntimeError: The lab itself broke while it answered: no test may pass over that.
        """
        self._stopping.set()
        self._front.stop()
        self._ticker.join(10)
        self.nodes.removals.wait(60)
        broken = self._front.crashes + self.nodes.removals.broken
        if broken:
            raise RuntimeError(f"the emulated Cloud TPU broke:\n{broken[0]}")

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def target(self) -> str:
        """Where an insecure channel is opened to."""
        return f"127.0.0.1:{self._front.port}"

    @property
    def endpoint(self) -> str:
        """The same, by the name of the product's setting for it."""
        return self.target

    @property
    def calls(self) -> list[Call]:
        """Every call received."""
        return self._front.calls

    @property
    def invisible_for_looks(self) -> int:
        """For how many gets and lists something new is not there yet."""
        return self.nodes.looks

    @invisible_for_looks.setter
    def invisible_for_looks(self, looks: int) -> None:
        self.nodes.looks = looks

    @property
    def lag_s(self) -> float:
        """For how long, by the cloud's clock, something new is not there yet."""
        return self.nodes.lag_s

    @lag_s.setter
    def lag_s(self, lag_s: float) -> None:
        self.nodes.lag_s = lag_s

    @property
    def hides_from_changes(self) -> bool:
        """Whether what is invisible cannot be deleted either (NOT_FOUND, and it lives on)."""
        return self._calls.hides_from_changes

    @hides_from_changes.setter
    def hides_from_changes(self, hides: bool) -> None:
        self._calls.hides_from_changes = hides

    def follow_facts(self) -> None:
        """Be as slow, as late in showing what is new, and as silent as the table of facts says."""
        takes = durations("tpu")
        self.lag_s = takes["visible"]
        self.gaps.sometimes |= rows("tpu", "silent").keys()
        self.nodes.operation_s, self.nodes.deleting_s = takes["CREATING"], takes["DELETING"]

    def refuse(
        self,
        name: str,
        *codes: str,
        where: str | Iterable[str] | None = None,
        after: bool = False,
        in_operation: bool = False,
    ) -> None:
        """The next calls of this name are refused with these codes, one each (`tpu_fault`)."""
        faults: list[Fault] = [
            tpu_fault(code, after=after, in_operation=in_operation) for code in codes
        ]
        self.faults.script(name, faults, where=where)

    def give_next_external_address(self, address: str) -> None:
        """The next node gets this address: addresses come back to strangers."""
        self.nodes.addresses.next_external = address

    def preempt(self, machine_id: str, *, notice_s: float = 30.0) -> None:
        """Take a spot node, by machine id, node id or name: PREEMPTED, and listed, from then on."""
        with self._lock:
            self._calls.tick()
            self.nodes.preempt(self.nodes.by_id(machine_id), notice_s)
            self._calls.tick()

    def state(self, node_id: str) -> str:
        """A node's state at this moment, without a call; "" once it is gone."""
        with self._lock:
            self._calls.tick()
            ids = {node.order.node_id: node for node in self.nodes.known.values()}
            return ids[node_id].state.name if node_id in ids else ""

    def alive(self) -> list[tuple[str, str]]:
        """Every node and queued resource that is listed, in whatever state, as (kind, name)."""
        with self._lock:
            self._calls.tick()
            nodes = [("node", name) for name in self.nodes.known]
            return nodes + [("queued-resource", name) for name in self.queue.known]

    def billing(self) -> list[Metered]:
        """The cloud's own metering: nodes and their addresses, from READY to their end."""
        with self._lock:
            self._calls.tick()
            return self._calls.meter.lines()

    def _places(self, name: str, request: Any) -> tuple[str, ...]:
        with self._lock:
            return self._calls.places(name, request)

    def _locked(self, answer: Callable[[Any, Fault], Any]) -> Callable[[Any, Fault], Any]:
        def locked(request: Any, fault: Fault) -> Any:
            with self._lock:
                self._calls.tick()
                said = answer(request, fault)
                self._calls.tick()
                return said

        return locked

    def _tick_on(self) -> None:
        while not self._stopping.wait(_TICK_S):
            with self._lock:
                self._calls.tick()
