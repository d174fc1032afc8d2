"""The emulated Cloud TPU and its quotas, as the real google clients meet them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from google.api_core import exceptions, operation
from google.auth.credentials import AnonymousCredentials
from google.cloud import cloudquotas_v1, tpu_v2
from google.cloud.tpu_v2.services.tpu.transports import TpuGrpcTransport
from google.rpc import error_details_pb2

from tests.lab.faults import Fault
from tests.lab.google.quotas_cloud import TPU_SERVICE, V5E_QUOTAS, QuotasCloud
from tests.lab.google.skewed import Skewed
from tests.lab.google.tpu_clients import (
    NODE,
    PARENT,
    QUEUED,
    NodeState,
    Z,
    a_node,
    create,
    queue,
    soon,
    started,
)
from tests.lab.machines import NO_MACHINE_HOST_KEY, NoMachines
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


def test_a_life(cloud: TpuCloud, tpu: tpu_v2.TpuClient, machines: NoMachines) -> None:
    node = create(tpu, spot=True).result(timeout=120)
    assert (node.name, node.state) == (NODE, NodeState.READY)
    assert dict(node.labels) == {"managed-by": "seatrial"}
    endpoint = node.network_endpoints[0]
    assert endpoint.ip_address.startswith("10.128.")
    assert endpoint.access_config.external_ip.startswith("203.0.113.")
    (spec,) = machines.booted
    assert (spec.id, spec.cloud, spec.device) == (str(node.id), "tpu", "v5litepod-1")
    assert spec.addresses == (endpoint.ip_address, endpoint.access_config.external_ip)
    assert spec.attributes["ssh-keys"] == "ubuntu:ssh-ed25519 AAAA"
    request = tpu_v2.GetGuestAttributesRequest(name=NODE, query_path="hostkeys/")
    item = tpu.get_guest_attributes(request).guest_attributes[0].query_value.items[0]
    assert (item.namespace, item.key, item.value) == (
        "hostkeys", "ssh-ed25519", NO_MACHINE_HOST_KEY
    )  # fmt: skip
    assert [each.name for each in tpu.list_nodes(parent=PARENT)] == [NODE]
    assert [each.name for each in tpu.list_nodes(parent="projects/lab/locations/-")] == [NODE]
    assert cloud.alive() == [("node", NODE)]
    started(tpu, tpu.delete_node(name=NODE))
    with pytest.raises(exceptions.NotFound):
        tpu.get_node(name=NODE)
    with pytest.raises(exceptions.NotFound):
        tpu.delete_node(name=NODE)
    assert (cloud.alive(), machines.live()) == ([], ())
    lines = {line.kind: line for line in cloud.billing()}
    assert (lines["node"].item, lines["node"].market) == ("v5litepod-1", "spot")
    assert set(lines) == {"node", "address"}
    assert all(line.ended_at for line in lines.values())


def test_a_name_is_one_node(cloud: TpuCloud, tpu: tpu_v2.TpuClient) -> None:
    create(tpu)
    with pytest.raises(exceptions.AlreadyExists):
        create(tpu)
    assert [(call.key, call.answer) for call in cloud.calls if call.name == "CreateNode"] == [
        ("one", "ok"), ("one", "ALREADY_EXISTS")
    ]  # fmt: skip


def newer(message: Any) -> Any:
    """The message with a field that its descriptor does not have, as a newer client sends it."""
    kind = type(message)
    return kind.deserialize(kind.serialize(message) + b"\xfa\x3f\x01x")


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        (newer(tpu_v2.GetNodeRequest(name=NODE)), "Unknown field"),
        (tpu_v2.GetNodeRequest(), "Required field 'name' is missing"),
        (tpu_v2.GetNodeRequest(name="nodes/one"), "Malformed name"),
        (tpu_v2.ListNodesRequest(parent=f"{PARENT}/nodes"), "Malformed parent"),
        (tpu_v2.ListNodesRequest(parent=PARENT, page_size=1001), "page_size"),
        (tpu_v2.CreateNodeRequest(parent=PARENT, node_id="one"), "Required field 'node'"),
        (
            tpu_v2.CreateNodeRequest(parent=PARENT, node_id="one", node=newer(a_node())),
            'Unknown field "node.Node',
        ),
        (
            tpu_v2.CreateNodeRequest(
                parent=PARENT, node_id="one", node=tpu_v2.Node(accelerator_type="v5litepod-1")
            ),
            "Required field 'node.runtime_version'",
        ),
        (
            tpu_v2.CreateNodeRequest(
                parent=PARENT,
                node_id="one",
                node=a_node(
                    accelerator_config=tpu_v2.AcceleratorConfig(type_=4711, topology="1x1")
                ),
            ),
            "Invalid value at 'node.accelerator_config.type'",
        ),
        (tpu_v2.CreateQueuedResourceRequest(parent=PARENT), "Required field 'queued_resource'"),
        (tpu_v2.DeleteQueuedResourceRequest(force=True), "Required field 'name'"),
    ],
)
def test_a_request_is_held_against_the_descriptors(
    cloud: TpuCloud, tpu: tpu_v2.TpuClient, request_: Any, said: str
) -> None:
    name = type(request_).__name__.removesuffix("Request")
    method = "".join(f"_{c.lower()}" if c.isupper() else c for c in name).lstrip("_")
    with pytest.raises(exceptions.InvalidArgument) as caught:
        getattr(tpu, method)(request_)
    assert said in str(caught.value)
    assert cloud.alive() == []


@pytest.mark.parametrize(
    ("order", "said"),
    [
        ({"node_id": "Upper"}, "node_id"),
        ({"accelerator_type": "v4-8"}, "not offered"),
        ({"accelerator_type": ""}, "accelerator"),
        ({"runtime_version": "none"}, "Runtime version"),
        ({"labels": {"who": "a.b"}}, "label"),
        ({"labels": {f"l{n}": "" for n in range(65)}}, "64 labels"),
        ({"metadata": {"user-data": "x" * (256 * 1024 + 1)}}, "256 KB"),
        ({"metadata": {f"key{n}": "x" * (200 * 1024) for n in range(3)}}, "512 KB"),
        ({"scheduling_config": tpu_v2.SchedulingConfig(spot=True, preemptible=True)}, "one of"),
    ],
)
def test_the_rules(
    cloud: TpuCloud, tpu: tpu_v2.TpuClient, order: dict[str, Any], said: str
) -> None:
    with pytest.raises(exceptions.InvalidArgument, match=said):
        create(tpu, **order)
    assert cloud.alive() == []


def test_a_place_that_is_nowhere(tpu: tpu_v2.TpuClient) -> None:
    with pytest.raises(exceptions.NotFound, match="not found or access is unauthorized"):
        tpu.create_node(parent="projects/lab/locations/moon-1-a", node_id="one", node=a_node())


@pytest.mark.parametrize(
    ("code", "number", "left"),
    [("RESOURCE_EXHAUSTED", 8, []), ("FAILED_PRECONDITION", 9, []),
     ("INVALID_ARGUMENT", 3, [("node", NODE)])],
)  # fmt: skip
def test_errors_in_the_operation(
    cloud: TpuCloud, tpu: tpu_v2.TpuClient, code: str, number: int, left: list[tuple[str, str]]
) -> None:
    cloud.refuse("CreateNode", code, in_operation=True, where=Z)
    ended = started(tpu, create(tpu))
    assert ended.error.code == number
    assert cloud.alive() == left  # what was preempted while it was made stays listed
    assert cloud.faults.unused == 0
    if left:
        assert tpu.get_node(name=NODE).state == NodeState.PREEMPTED


def test_a_zone_without_capacity(cloud: TpuCloud, tpu: tpu_v2.TpuClient) -> None:
    cloud.dry.add((Z, "spot"))
    with pytest.raises(exceptions.ResourceExhausted, match="no more capacity"):
        create(tpu, spot=True).result(timeout=120)
    assert create(tpu).result(timeout=120).state == NodeState.READY


def test_quotas_are_kept(cloud: TpuCloud, tpu: tpu_v2.TpuClient) -> None:
    cloud.quotas.set(Z, 1, market="spot")
    started(tpu, create(tpu, spot=True))
    cloud.preempt("one", notice_s=0)
    assert cloud.state("one") == "PREEMPTED"
    with pytest.raises(exceptions.ResourceExhausted) as caught:
        create(tpu, "two", spot=True)
    (failure,) = caught.value.details
    assert isinstance(failure, error_details_pb2.QuotaFailure)
    assert V5E_QUOTAS["spot"] in failure.violations[0].description
    started(tpu, tpu.delete_node(name=NODE))
    started(tpu, create(tpu, "two", spot=True))
    assert cloud.alive() == [("node", f"{PARENT}/nodes/two")]


def test_the_quotas_service_tells_them() -> None:
    cloud = TpuCloud()
    cloud.quotas.set(Z, 3)
    service = f"projects/lab/locations/global/services/{TPU_SERVICE}"
    with QuotasCloud(quotas=cloud.quotas) as quotas:
        client = cloudquotas_v1.CloudQuotasClient(
            transport="rest",
            credentials=AnonymousCredentials(),
            client_options={"api_endpoint": quotas.endpoint_url},
        )
        listed = {info.quota_id for info in client.list_quota_infos(parent=service)}
        info = client.get_quota_info(name=f"{service}/quotaInfos/{V5E_QUOTAS['on-demand']}")
        with pytest.raises(exceptions.NotFound):
            client.get_quota_info(name=f"{service}/quotaInfos/none")
        client.transport.close()
    assert listed == set(V5E_QUOTAS.values())
    values = {each.dimensions["zone"]: each.details.value for each in info.dimensions_infos}
    assert (values[Z], values["us-central1-a"]) == (3, 4)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("UNAVAILABLE", exceptions.ServiceUnavailable),
        ("RESOURCE_EXHAUSTED", exceptions.ResourceExhausted),
        ("PERMISSION_DENIED", exceptions.PermissionDenied),
        ("UNAUTHENTICATED", exceptions.Unauthenticated),
        ("INTERNAL", exceptions.InternalServerError),
    ],
)
def test_errors_at_the_call(
    cloud: TpuCloud, tpu: tpu_v2.TpuClient, code: str, kind: type[Exception]
) -> None:
    cloud.refuse("CreateNode", code, where="on-demand")
    with pytest.raises(kind) as caught:
        create(tpu)
    assert bool(caught.value.details) == (code == "RESOURCE_EXHAUSTED")
    assert cloud.alive() == []


def test_an_answer_that_is_lost(cloud: TpuCloud, tpu: tpu_v2.TpuClient) -> None:
    cloud.refuse("CreateNode", "UNAVAILABLE", after=True)
    with pytest.raises(exceptions.ServiceUnavailable):
        create(tpu)
    assert cloud.alive() == [("node", NODE)]
    cloud.faults.script("DeleteNode", [Fault(drop=True)])
    with pytest.raises(exceptions.ServiceUnavailable, match="Socket closed"):
        tpu.delete_node(name=NODE)
    assert cloud.alive() == [("node", NODE)]
    assert [call.answer for call in cloud.calls] == ["UNAVAILABLE", "dropped"]


def test_preemption(
    cloud: TpuCloud, tpu: tpu_v2.TpuClient, machines: NoMachines, clock: Skewed
) -> None:
    started(tpu, create(tpu, spot=True))
    cloud.preempt("one", notice_s=30)
    assert machines.preempted_at(machines.booted[0].id) is not None
    assert tpu.get_node(name=NODE).state == NodeState.READY
    clock.move(31)
    assert tpu.get_node(name=NODE).state == NodeState.PREEMPTED
    soon(lambda: machines.live() == ())
    assert all(line.ended_at for line in cloud.billing())
    started(tpu, tpu.delete_node(name=NODE))
    assert cloud.alive() == []


def test_preempted_while_it_is_made(
    cloud: TpuCloud, tpu: tpu_v2.TpuClient, machines: NoMachines
) -> None:
    machines.boot_delay_s = 60
    running = create(tpu, spot=True)
    cloud.preempt("one", notice_s=0)
    assert started(tpu, running).error.code == 3
    assert cloud.state("one") == "PREEMPTED"


def test_a_guest_that_powers_off_is_paid_for(
    cloud: TpuCloud, tpu: tpu_v2.TpuClient, machines: NoMachines
) -> None:
    started(tpu, create(tpu))
    machines.end(machines.booted[0].id)
    time.sleep(0.3)
    assert tpu.get_node(name=NODE).state == NodeState.READY
    assert [line.ended_at for line in cloud.billing() if line.kind == "node"] == [None]


def test_a_guest_that_never_comes_up(
    tpu: tpu_v2.TpuClient, machines: NoMachines, clock: Skewed
) -> None:
    machines.boot_delay_s = 3600
    running = create(tpu)
    assert tpu.get_node(name=NODE).state == NodeState.CREATING
    clock.move(61)
    assert not started(tpu, running).HasField("error")
    with pytest.raises(exceptions.NotFound):
        tpu.get_guest_attributes(
            tpu_v2.GetGuestAttributesRequest(name=NODE, query_path="hostkeys/")
        )


def test_what_cannot_be_seen_yet(cloud: TpuCloud, tpu: tpu_v2.TpuClient) -> None:
    cloud.invisible_for_looks = 2
    create(tpu)
    with pytest.raises(exceptions.NotFound):
        tpu.get_node(name=NODE)
    assert not list(tpu.list_nodes(parent=PARENT))
    assert tpu.get_node(name=NODE).name == NODE
    queue(tpu)
    with pytest.raises(exceptions.NotFound):
        tpu.get_queued_resource(name=QUEUED)
    cloud.hides_from_changes = True
    with pytest.raises(exceptions.NotFound):
        tpu.delete_queued_resource(name=QUEUED)
    assert ("queued-resource", QUEUED) in cloud.alive()


def test_an_operation_outlives_its_client(cloud: TpuCloud, tpu: tpu_v2.TpuClient) -> None:
    name = create(tpu).operation.name
    with grpc.insecure_channel(cloud.target) as channel:
        other = tpu_v2.TpuClient(transport=TpuGrpcTransport(channel=channel))
        again = operation.from_gapic(
            other.get_operation({"name": name}), other.transport.operations_client, tpu_v2.Node,
            metadata_type=tpu_v2.OperationMetadata,
        )  # fmt: skip
        assert again.metadata.target == NODE
        assert again.result(timeout=120).state == NodeState.READY
        listed = other.list_operations({"name": PARENT})
        assert [each.name for each in listed.operations] == [name]


def test_a_creation_that_is_cancelled(cloud: TpuCloud, tpu: tpu_v2.TpuClient) -> None:
    cloud.nodes.operation_s = 3600
    running = create(tpu)
    tpu.cancel_operation({"name": running.operation.name})
    assert started(tpu, running).error.code == 1
    soon(lambda: cloud.alive() == [])


def test_what_there_is_where(tpu: tpu_v2.TpuClient) -> None:
    kinds = {each.type_ for each in tpu.list_accelerator_types(parent=PARENT)}
    assert "v5litepod-1" in kinds
    nowhere = tpu.list_accelerator_types(parent="projects/lab/locations/asia-southeast1-a")
    assert not list(nowhere)
    versions = {each.version for each in tpu.list_runtime_versions(parent=PARENT)}
    assert "v2-alpha-tpuv5-lite" in versions
    found = tpu.list_locations({"name": "projects/lab"}).locations
    assert Z in {each.location_id for each in found}


def test_a_machine_is_another_than_it_says(
    cloud: TpuCloud, tpu: tpu_v2.TpuClient, machines: NoMachines
) -> None:
    cloud.devices["v5litepod-1"] = "v6e-1"
    cloud.give_next_external_address("203.0.113.200")
    node = create(tpu).result(timeout=120)
    assert machines.booted[0].device == "v6e-1"
    assert node.network_endpoints[0].access_config.external_ip == "203.0.113.200"


def test_it_ends_cleanly() -> None:
    before = set(threading.enumerate())
    with TpuCloud() as cloud, grpc.insecure_channel(cloud.target) as channel:
        create(tpu_v2.TpuClient(transport=TpuGrpcTransport(channel=channel)))
    mine = [each.name for each in set(threading.enumerate()) - before]
    assert not [name for name in mine if "TpuCloud" in name or "tpu-cloud" in name]
