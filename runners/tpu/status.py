"""The state of one TPU, of its operations, and everything of the project that exists."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum

from google.cloud import tpu_v2
from google.longrunning import operations_pb2  # type: ignore[import-untyped]

from orchestrator.domain.machine import (
    Machine,
    MachineState,
    ProviderError,
    ProviderUnavailableError,
)
from runners.google.account import HOST_KEYS, host_key_in
from runners.google.names import label
from runners.tpu.client import READ_TIMEOUT_S, TpuApi, status_answer
from runners.tpu.errors import ApiRefusal, classify
from runners.tpu.names import NODES, QUEUED, Handle, handle_of, location, parse, token_in
from runners.tpu.states import ListedTpu, is_up, machine_of, node_handle
from runners.ttl_cache import TtlCache

VISIBLE_AFTER_S = 60.0
PAGES = 5
"""Maximum number of pages of operations that are read; the API forgets old operations."""


class CreateOutcome(Enum):
    """Outcome of a create operation that did not fail."""

    UNKNOWN = "unknown"
    UNDER_WAY = "under way"
    JUST_DONE = "just done"
    """Whether the created resources may not be listed yet."""
    DONE = "done"


@dataclass(frozen=True, slots=True)
class Failed:
    """A create that was accepted and then failed."""

    ended: str
    detail: str


def outcome_of(tpu_api: TpuApi, handle: Handle, *, now: datetime) -> CreateOutcome | Failed:
    """Return the outcome of the newest create of this id; unknown after a deletion.

    Raises ProviderError.
    """
    # A queue entry's node may have been deleted by itself, after its entry had vanished.
    paths = {handle.path(tpu_api.project), handle.beside(NODES).path(tpu_api.project)}
    found: tuple[float, CreateOutcome | Failed] = (0.0, CreateOutcome.UNKNOWN)
    for operation, metadata in _operations(tpu_api, location(tpu_api.project, handle.zone)):
        if metadata.target not in paths:
            continue
        made = metadata.create_time.timestamp() if metadata.create_time else 0.0
        if made >= found[0]:
            is_create = metadata.verb.lower().startswith("create")
            found = (made, _read(operation) if is_create else CreateOutcome.UNKNOWN)
    made, outcome = found
    is_young = now.timestamp() - made < VISIBLE_AFTER_S
    return CreateOutcome.JUST_DONE if outcome is CreateOutcome.DONE and is_young else outcome


def error_of(operation: operations_pb2.Operation) -> ApiRefusal | None:
    """Return why an operation failed; None if it did not fail, or has not ended."""
    if not operation.HasField("error"):
        return None
    return status_answer(operation.error.code, operation.error.message, operation.error.details)


def _read(operation: operations_pb2.Operation) -> CreateOutcome | Failed:
    answer = error_of(operation)
    if answer is not None:
        words = " ".join(answer.words.split())
        return Failed(classify(answer).ended, f"its creation failed: {answer.code}: {words}")
    return CreateOutcome.DONE if operation.done else CreateOutcome.UNDER_WAY


def _operations(
    tpu_api: TpuApi, parent: str
) -> list[tuple[operations_pb2.Operation, tpu_v2.OperationMetadata]]:
    found: list[tuple[operations_pb2.Operation, tpu_v2.OperationMetadata]] = []
    token = ""
    for _ in range(PAGES):
        request = operations_pb2.ListOperationsRequest(name=parent, page_size=500, page_token=token)

        def listed(
            client: tpu_v2.TpuClient, request: operations_pb2.ListOperationsRequest = request
        ) -> operations_pb2.ListOperationsResponse:
            return client.list_operations(request, timeout=READ_TIMEOUT_S)

        page = tpu_api.read(f"list the operations of {parent}", listed)
        found += [(one, _metadata(one)) for one in page.operations]
        token = page.next_page_token
        if not token:
            break
    return found


def _metadata(operation: operations_pb2.Operation) -> tpu_v2.OperationMetadata:
    read: tpu_v2.OperationMetadata = tpu_v2.OperationMetadata.deserialize(operation.metadata.value)
    return read


HOST_KEY_KEPT = timedelta(seconds=10)


class TpuStatusReader:
    """Reads machines."""

    def __init__(self, tpu_api: TpuApi, *, project: str, now: Callable[[], datetime]) -> None:
        self._tpu_api = tpu_api
        self._project = project
        self._now = now
        self._host_keys: TtlCache[str] = TtlCache(now, serve_stale=True, kept=HOST_KEY_KEPT)

    def inspect(self, machine_id: str) -> Machine:
        """Return the machine; TERMINATED if neither its node nor its queue entry exists."""
        handle = parse(machine_id)
        if handle is None:
            return Machine(machine_id, "", MachineState.TERMINATED, detail="no id of a TPU")
        queued = self.queued(handle) if handle.collection == QUEUED else None
        node = self.node(node_handle(queued) if queued else handle.beside(NODES))
        machine = machine_of(self._seen(handle, queued, node))
        if machine.state is MachineState.TERMINATED:
            return self._why_gone(machine, handle)
        return machine if machine.tags else self._by_its_id(machine, handle)

    def inventory(self) -> tuple[tuple[Machine, ...], dict[str, str]]:
        """Return the project's machines, and the zones that did not answer.

        Raises ProviderError.
        """
        gaps: dict[str, str] = {}
        listed = list(self._everything("-", gaps))
        # A zone may have answered for one kind only: a node without its queue entry.
        read = (seen for seen in listed if seen.handle.zone not in gaps)
        return tuple(machine for seen in read for machine in self._ours(seen)), gaps

    def in_zone(self, zone: str) -> tuple[ListedTpu, ...]:
        """Return every TPU in a zone, of any owner. Raises ProviderError."""
        gaps: dict[str, str] = {}
        found = tuple(self._everything(zone, gaps))
        if gaps:
            raise ProviderUnavailableError(f"{zone} did not answer: {'; '.join(gaps.values())}")
        return found

    def _everything(self, zone: str, gaps: dict[str, str]) -> Iterator[ListedTpu]:
        """Yield every TPU in a zone (``-`` for all), of any owner; note the silent zones."""
        queues = self._list_queued(zone, gaps)
        nodes = {handle_of(node.name): node for node in self._list_nodes(zone, gaps)}
        for queued in queues:
            node = nodes.pop(node_handle(queued), None)
            yield self._seen(handle_of(queued.name), queued, node, key=False)
        for handle, node in nodes.items():
            yield self._seen(handle, None, node, key=False)

    def queued(self, handle: Handle) -> tpu_v2.QueuedResource | None:
        """Return the queued resource, or None."""
        request = tpu_v2.GetQueuedResourceRequest(name=handle.path(self._tpu_api.project))
        return self._tpu_api.find(
            f"look at {handle.machine_id}",
            lambda client: client.get_queued_resource(request, timeout=READ_TIMEOUT_S),
        )

    def node(self, handle: Handle) -> tpu_v2.Node | None:
        """Return the node, or None."""
        request = tpu_v2.GetNodeRequest(name=handle.path(self._tpu_api.project))
        return self._tpu_api.find(
            f"look at {handle.machine_id}",
            lambda client: client.get_node(request, timeout=READ_TIMEOUT_S),
        )

    def _seen(
        self,
        handle: Handle,
        queued: tpu_v2.QueuedResource | None,
        node: tpu_v2.Node | None,
        *,
        key: bool = True,
    ) -> ListedTpu:
        host_key = self._host_key(node) if key and node is not None and is_up(node) else ""
        return ListedTpu(handle, queued, node, host_key, self._now(), self._tpu_api.simulated)

    def _ours(self, seen: ListedTpu) -> Iterator[Machine]:
        machine = machine_of(seen)
        if not machine.tags:
            machine = self._by_its_id(machine, seen.handle)
        if machine.tags.get("seatrial-project") == label(self._project):
            yield machine

    def _by_its_id(self, machine: Machine, handle: Handle) -> Machine:
        """Return the machine with the token from a queue entry's id, if labels are not visible."""
        token = token_in(handle.id, self._project)
        if token is None:
            return machine
        tags = {"seatrial-project": label(self._project), "seatrial-token": token}
        return replace(machine, token=token, tags=tags)

    def _host_key(self, node: tpu_v2.Node) -> str:
        """Return the published host key; a guest may publish another one at its first boot."""
        who = (node.name, node.id)
        key = self._host_keys.get(who, lambda: self._published(node))
        if not key:
            self._host_keys.forget(who)
        return key

    def _published(self, node: tpu_v2.Node) -> str:
        request = tpu_v2.GetGuestAttributesRequest(name=node.name, query_path=HOST_KEYS)
        answer = self._tpu_api.find(
            f"read the host key of {node.name}",
            lambda client: client.get_guest_attributes(request, timeout=READ_TIMEOUT_S),
        )
        workers = answer.guest_attributes if answer is not None else ()
        entries = (entry for worker in workers[:1] for entry in worker.query_value.items)
        return host_key_in((entry.key, entry.value) for entry in entries)

    def _why_gone(self, machine: Machine, handle: Handle) -> Machine:
        """Return a machine without resources, with the reason from its create operation.

        It is REQUESTED while the operation is under way or has just ended.
        """
        try:
            found = outcome_of(self._tpu_api, handle, now=self._now())
        except ProviderError as error:
            return replace(
                machine, detail=f"{machine.detail}; the reason is not available: {error}"
            )
        if found in (CreateOutcome.UNDER_WAY, CreateOutcome.JUST_DONE):
            said = f"its creation is {found.value}, and it is not to be seen yet"
            return replace(machine, state=MachineState.REQUESTED, token="", detail=said)
        if isinstance(found, CreateOutcome):
            return machine
        return replace(machine, ended=found.ended, detail=found.detail)

    def _list_queued(self, zone: str, gaps: dict[str, str]) -> list[tpu_v2.QueuedResource]:
        request = tpu_v2.ListQueuedResourcesRequest(parent=location(self._tpu_api.project, zone))

        def listed(client: tpu_v2.TpuClient) -> list[tpu_v2.QueuedResource]:
            found: list[tpu_v2.QueuedResource] = []
            for page in client.list_queued_resources(request, timeout=READ_TIMEOUT_S).pages:
                note_gaps(gaps, "queued resources", page.unreachable)
                found += page.queued_resources
            return found

        return self._tpu_api.read(f"list the queued resources of {_spoken(zone)}", listed)

    def _list_nodes(self, zone: str, gaps: dict[str, str]) -> list[tpu_v2.Node]:
        request = tpu_v2.ListNodesRequest(parent=location(self._tpu_api.project, zone))

        def listed(client: tpu_v2.TpuClient) -> list[tpu_v2.Node]:
            found: list[tpu_v2.Node] = []
            for page in client.list_nodes(request, timeout=READ_TIMEOUT_S).pages:
                note_gaps(gaps, "nodes", page.unreachable)
                found += page.nodes
            return found

        return self._tpu_api.read(f"list the nodes of {_spoken(zone)}", listed)


def note_gaps(gaps: dict[str, str], what: str, unreachable: Iterable[str]) -> None:
    """Store the zones that did not answer a list of all, with the reason."""
    gaps |= {name.rpartition("/")[2]: f"list the {what}: unreachable" for name in unreachable}


def _spoken(zone: str) -> str:
    return "all zones" if zone == "-" else zone
