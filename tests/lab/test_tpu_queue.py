"""The emulated Cloud TPU's queued resources, as the real client meets them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import grpc
import pytest
from google.api_core import exceptions
from google.cloud import tpu_v2
from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcTransport

from tests.lab.faults import Fault
from tests.lab.google.skewed import Skewed
from tests.lab.google.tpu_clients import (
    PARENT,
    QUEUED,
    QueuedState,
    Z,
    queue,
    queued_state,
    soon,
    started,
)
from tests.lab.google.tpu_queue import PROVISIONING
from tests.lab.machines import NoMachines
from tests.lab.tpu_cloud import TpuCloud


@pytest.fixture
def clock() -> Skewed:
    return Skewed()


@pytest.fixture
def machines() -> NoMachines:
    return NoMachines()


@pytest.fixture
def cloud(machines: NoMachines, clock: Skewed) -> Iterator[TpuCloud]:
    with TpuCloud(machines=machines, clock=clock) as cloud:
        yield cloud


@pytest.fixture
def tpu(cloud: TpuCloud) -> Iterator[tpu_v2.TpuClient]:
    with grpc.insecure_channel(cloud.target) as channel:
        yield tpu_v2.TpuClient(transport=TpuGrpcTransport(channel=channel))


def test_a_queued_resource(cloud: TpuCloud, tpu: tpu_v2.TpuClient) -> None:
    cloud.dry.add(Z)
    token = str(uuid.uuid4())
    first, second = queue(tpu, token=token), queue(tpu, token=token)
    assert first.operation.name == second.operation.name
    assert started(tpu, first).response.type_url.endswith("QueuedResource")
    with pytest.raises(exceptions.AlreadyExists):
        queue(tpu)
    assert queued_state(tpu) == QueuedState.WAITING_FOR_RESOURCES
    assert cloud.alive() == [("queued-resource", QUEUED)]
    cloud.dry.clear()
    soon(lambda: queued_state(tpu) == QueuedState.ACTIVE)
    (node,) = tpu.list_nodes(parent=PARENT)
    assert (node.name, node.queued_resource) == (f"{PARENT}/nodes/q-node", QUEUED)
    (listed,) = tpu.list_queued_resources(parent="projects/lab/locations/-")
    assert listed.name == QUEUED
    with pytest.raises(exceptions.FailedPrecondition, match="force"):
        tpu.delete_queued_resource(name=QUEUED)
    request = tpu_v2.DeleteQueuedResourceRequest(name=QUEUED, force=True, request_id=token)
    deleted = tpu.delete_queued_resource(request)
    started(tpu, deleted)
    again = tpu.delete_queued_resource(request)
    assert again.operation.name == deleted.operation.name
    assert cloud.alive() == []
    assert {line.market for line in cloud.billing()} == {"spot"}


def test_waiting_has_an_end(cloud: TpuCloud, tpu: tpu_v2.TpuClient, clock: Skewed) -> None:
    cloud.dry.add((Z, "spot"))
    started(tpu, queue(tpu, valid_s=600))
    clock.move(300)
    assert queued_state(tpu) == QueuedState.WAITING_FOR_RESOURCES
    clock.move(301)
    said = tpu.get_queued_resource(name=QUEUED).state
    assert said.state == QueuedState.FAILED
    assert said.failed_data.error.code == 4
    clock.move(86_400)
    assert cloud.alive() == [("queued-resource", QUEUED)]
    started(tpu, tpu.delete_queued_resource(name=QUEUED))
    assert cloud.alive() == []


def test_provisioning_fails(cloud: TpuCloud, tpu: tpu_v2.TpuClient) -> None:
    cloud.faults.script(PROVISIONING, [Fault("INTERNAL", "broken", 13)], where=Z)
    started(tpu, queue(tpu))
    soon(lambda: queued_state(tpu) == QueuedState.FAILED)
    assert cloud.alive() == [("queued-resource", QUEUED)]


@pytest.mark.parametrize("how", ["preempted", "node deleted"])
def test_a_queued_resource_that_loses_its_node(
    cloud: TpuCloud, tpu: tpu_v2.TpuClient, how: str
) -> None:
    started(tpu, queue(tpu))
    soon(lambda: queued_state(tpu) == QueuedState.ACTIVE)
    if how == "preempted":
        cloud.preempt("q-node", notice_s=0)
    else:
        tpu.delete_node(name=f"{PARENT}/nodes/q-node")
    soon(lambda: queued_state(tpu) == QueuedState.SUSPENDED)
    nodes = [("node", f"{PARENT}/nodes/q-node")] if how == "preempted" else []
    assert cloud.alive() == [*nodes, ("queued-resource", QUEUED)]
    request = tpu_v2.DeleteQueuedResourceRequest(name=QUEUED, force=True)
    started(tpu, tpu.delete_queued_resource(request))
    assert cloud.alive() == []


def test_no_field_bounds_a_run() -> None:
    # google-cloud-tpu offers no run duration and no flex-start; this says when it begins to.
    assert set(tpu_v2.SchedulingConfig.meta.fields) == {"preemptible", "reserved", "spot"}
    assert set(tpu_v2.QueuedResource.meta.fields) == {
        "name", "create_time", "tpu", "spot", "guaranteed", "queueing_policy", "state",
        "reservation_name",
    }  # fmt: skip
