"""What every state of a queued resource and of its node means."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from google.cloud import tpu_v2
from google.rpc import status_pb2

from orchestrator.domain.machine import (
    Machine,
    MachineState,
    SshAddress,
)
from runners.tpu.names import NODES, QUEUED, Handle
from runners.tpu.states import ListedTpu, address_of, machine_of, node_handle
from runners.tpu.status import note_gaps

Queue = tpu_v2.QueuedResourceState.State
By = tpu_v2.QueuedResourceState.StateInitiator
State = tpu_v2.Node.State
KEY = "AAAAC3NzaC1lZDI1NTE5AAAAIOL0W/ZfBfnvZyGcbPqzepSzL0sd1tyDsCHuMMyZxFmp"
LABELS = {
    "seatrial-project": "seatrial",
    "seatrial-token": "t-1",
    "seatrial-expires-at": "1000",
    "other": "x",
}
PARENT = "projects/p/locations/us-west4-a"
REQUESTED, BOOTING = MachineState.REQUESTED, MachineState.BOOTING
READY, STOPPING, GONE = MachineState.READY, MachineState.STOPPING, MachineState.TERMINATED


def node(state: State = State.READY, *, public: bool = True, spot: bool = False) -> tpu_v2.Node:
    endpoint = tpu_v2.NetworkEndpoint(ip_address="10.0.0.2", port=8470)
    endpoint.access_config.external_ip = "198.51.100.7"
    return tpu_v2.Node(
        name=f"{PARENT}/nodes/x",
        id=4711,
        state=state,
        accelerator_type="v5litepod-1",
        runtime_version="v2-alpha-tpuv5-lite",
        network_config=tpu_v2.NetworkConfig(enable_external_ips=public),
        network_endpoints=[endpoint],
        metadata={"ssh-keys": "ubuntu:ssh-ed25519 AAAA"},
        labels=LABELS,
        scheduling_config=tpu_v2.SchedulingConfig(spot=spot),
    )


def queued(
    state: Queue, *, spot: bool = False, code: int = 0, words: str = "", by: By = By.SERVICE
) -> tpu_v2.QueuedResource:
    asked = tpu_v2.Node(accelerator_type="v5litepod-1", labels=LABELS)
    spec = tpu_v2.QueuedResource.Tpu.NodeSpec(parent=PARENT, node_id="x", node=asked)
    made = tpu_v2.QueuedResource(
        name=f"{PARENT}/queuedResources/x",
        tpu=tpu_v2.QueuedResource.Tpu(node_spec=[spec]),
        state=tpu_v2.QueuedResourceState(state=state, state_initiator=by),
    )
    if state is Queue.FAILED:
        status = status_pb2.Status(code=code, message=words)
        made.state.failed_data = {"error": status}
    if spot:
        made.spot = tpu_v2.QueuedResource.Spot()
    return made


def look(
    queue: tpu_v2.QueuedResource | None,
    there: tpu_v2.Node | None,
    *,
    key: str = "",
    at: float = 0.0,
) -> Machine:
    handle = Handle("us-west4-a", QUEUED if queue is not None else NODES, "x")
    return machine_of(ListedTpu(handle, queue, there, key, datetime.fromtimestamp(at, UTC)))


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (Queue.STATE_UNSPECIFIED, REQUESTED), (Queue.CREATING, REQUESTED),
        (Queue.ACCEPTED, REQUESTED),
        (Queue.WAITING_FOR_RESOURCES, REQUESTED), (Queue.PROVISIONING, REQUESTED),
        (Queue.ACTIVE, BOOTING), (Queue.FAILED, STOPPING), (Queue.SUSPENDING, STOPPING),
        (Queue.SUSPENDED, STOPPING), (Queue.DELETING, STOPPING),
    ],
)  # fmt: skip
def test_a_queued_resource_without_its_node(state: Queue, expected: MachineState) -> None:
    machine = look(queued(state), None)
    assert (machine.state, machine.kind, machine.token) == (expected, "queued-resource", "t-1")
    assert state.name in machine.detail


def test_every_state_of_the_queue_is_in_the_table() -> None:
    assert len(Queue) == 10


@pytest.mark.parametrize(
    ("code", "words", "ended"),
    [
        (0, "", "capacity"),
        (8, "There is no more capacity in the zone", "capacity"),
        (4, "valid until expired", "capacity"),
        (8, "Quota limit 'X' has been exceeded in zone", "quota"),
        (3, "update is not supported while in state PREEMPTED", "preempted"),
        (13, "internal", "failed"),
    ],
)
def test_why_a_request_failed(code: int, words: str, ended: str) -> None:
    machine = look(queued(Queue.FAILED, code=code, words=words), None)
    assert (machine.state, machine.ended) == (STOPPING, ended)
    assert words in machine.detail


@pytest.mark.parametrize("state", [Queue.SUSPENDING, Queue.SUSPENDED])
@pytest.mark.parametrize(
    ("spot", "by", "ended"),
    [(True, By.SERVICE, "preempted"), (False, By.SERVICE, "failed"), (True, By.USER, "failed")],
)
def test_who_suspended_it(state: Queue, spot: bool, by: By, ended: str) -> None:
    assert look(queued(state, spot=spot, by=by), None).ended == ended


@pytest.mark.parametrize(
    ("state", "expected", "ended"),
    [
        (State.STATE_UNSPECIFIED, BOOTING, ""), (State.CREATING, REQUESTED, ""),
        (State.READY, READY, ""), (State.RESTARTING, BOOTING, ""), (State.REIMAGING, BOOTING, ""),
        (State.DELETING, STOPPING, ""), (State.REPAIRING, BOOTING, ""),
        (State.STOPPED, STOPPING, "failed"), (State.STOPPING, STOPPING, "failed"),
        (State.STARTING, BOOTING, ""), (State.PREEMPTED, STOPPING, "preempted"),
        (State.TERMINATED, STOPPING, "failed"), (State.HIDING, STOPPING, "failed"),
        (State.HIDDEN, STOPPING, "failed"), (State.UNHIDING, BOOTING, ""),
        (State.UNKNOWN, STOPPING, "failed"),
    ],
)  # fmt: skip
def test_a_node_alone_and_behind_an_active_request(
    state: State, expected: MachineState, ended: str
) -> None:
    for queue in (None, queued(Queue.ACTIVE)):
        machine = look(queue, node(state), key=KEY)
        assert (machine.state, machine.ended, machine.kind) == (expected, ended, "machine")
        assert state.name in machine.detail


def test_every_state_of_a_node_is_in_the_table() -> None:
    assert len(State) == 16


def test_a_node_that_was_stopped_after_its_deadline_ended_by_it() -> None:
    assert look(None, node(State.STOPPED), at=999).ended == "failed"
    assert look(None, node(State.STOPPED), at=1000).ended == "deadline"


def test_a_terminated_spot_node_was_preempted() -> None:
    assert look(None, node(State.TERMINATED, spot=True)).ended == "preempted"


def test_a_preempted_node_explains_the_end_of_its_request() -> None:
    for state in (Queue.SUSPENDING, Queue.DELETING):
        assert look(queued(state, by=By.USER), node(State.PREEMPTED)).ended == "preempted"


def test_gone_is_only_what_is_nowhere() -> None:
    assert look(None, None).state is GONE


# ready means reachable


def test_it_is_ready_with_an_address_and_a_host_key() -> None:
    machine = look(queued(Queue.ACTIVE), node(), key=KEY)
    assert machine.endpoint == SshAddress("198.51.100.7", "ubuntu", 22, f"ssh-ed25519 {KEY}")


def test_without_a_host_key_it_still_boots() -> None:
    machine = look(queued(Queue.ACTIVE), node())
    assert (machine.state, machine.endpoint) == (BOOTING, None)
    assert "host key" in machine.detail


@pytest.mark.parametrize("key", ["", "short", KEY + "\nssh-rsa AAAA", f"ssh-ed25519 {KEY}"])
def test_what_the_guest_publishes_is_not_trusted(key: str) -> None:
    assert look(None, node(), key=key).state is BOOTING


def test_a_private_machine_is_reached_at_its_private_address() -> None:
    machine = look(None, node(public=False), key=KEY)
    assert isinstance(machine.endpoint, SshAddress)
    assert machine.endpoint.address == "10.0.0.2"


def test_a_public_machine_without_its_public_address_is_not_ready() -> None:
    there = node()
    there.network_endpoints[0].access_config.external_ip = ""
    machine = look(None, there, key=KEY)
    assert (machine.state, machine.endpoint) == (BOOTING, None)
    assert "address" in machine.detail
    there.network_endpoints = []
    assert address_of(ListedTpu(Handle("z", NODES, "x"), None, there, KEY)) is None


# what it carries


def test_tags_and_facts_come_from_the_node_or_from_what_was_asked_for() -> None:
    waiting = look(queued(Queue.ACCEPTED, spot=True), None)
    assert waiting.tags == {k: v for k, v in LABELS.items() if k != "other"}
    assert waiting.facts["market"] == "spot"
    assert waiting.facts["instance_id"] == "x"
    there = look(None, node(), key=KEY)
    assert there.tags == waiting.tags
    assert there.facts == {
        "instance_id": "4711", "instance_type": "v5litepod-1", "zone": "us-west4-a",
        "region": "us-west4", "market": "on-demand", "image_id": "v2-alpha-tpuv5-lite",
        "image_name": "v2-alpha-tpuv5-lite",
    }  # fmt: skip


def test_the_node_of_a_request_may_have_another_name() -> None:
    request = queued(Queue.ACTIVE)
    request.tpu.node_spec[0].node_id = "y"
    assert node_handle(request) == Handle("us-west4-a", NODES, "y")
    request.tpu.node_spec = []
    assert node_handle(request) == Handle("us-west4-a", NODES, "x")
    assert look(request, None).tags == {}


def test_a_list_notes_the_zones_that_did_not_answer() -> None:
    gaps: dict[str, str] = {}
    note_gaps(gaps, "nodes", [])
    assert not gaps
    note_gaps(gaps, "nodes", ["projects/lab/locations/us-west1-c"])
    assert gaps == {"us-west1-c": "list the nodes: unreachable"}
