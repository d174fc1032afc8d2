"""The emulated Compute Engine's instances, as the real google-cloud-compute clients meet them."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
import requests
from google.api_core import exceptions
from google.auth.exceptions import GoogleAuthError
from google.cloud import compute_v1, tpu_v2

from tests.lab.compute_cloud import ComputeCloud
from tests.lab.faults import Fault
from tests.lab.google.codes import gce_fault
from tests.lab.google.compute_clients import (
    DONE,
    Clients,
    P,
    R,
    Z,
    an_instance,
    delete,
    get,
    insert,
    leftover_kinds,
    soon,
    wait,
)
from tests.lab.google.descriptors import check_body, check_query
from tests.lab.google.front import ApiError, Request
from tests.lab.google.skewed import Skewed
from tests.lab.machines import NO_MACHINE_HOST_KEY, NoMachines


@pytest.fixture
def clock() -> Skewed:
    return Skewed()


@pytest.fixture
def machines() -> NoMachines:
    return NoMachines()


@pytest.fixture
def cloud(machines: NoMachines, clock: Skewed) -> Iterator[ComputeCloud]:
    with ComputeCloud(machines=machines, clock=clock) as cloud:
        cloud.quotas.set("NVIDIA_L4_GPUS", 8)
        cloud.quotas.set("PREEMPTIBLE_NVIDIA_L4_GPUS", 8)
        cloud.quotas.set("GPUS_ALL_REGIONS", 8)
        yield cloud


@pytest.fixture
def gce(cloud: ComputeCloud) -> Iterator[Clients]:
    with Clients(cloud) as clients:
        yield clients


def test_a_life(cloud: ComputeCloud, gce: Clients, machines: NoMachines) -> None:
    operation = insert(gce, spot=True, max_run_s=600)
    assert operation.status != DONE
    assert not wait(gce, operation).error.errors
    instance = get(gce)
    assert (instance.status, instance.labels) == ("RUNNING", {"managed-by": "seatrial"})
    nic = instance.network_interfaces[0]
    assert nic.network_i_p.startswith("10.128.")
    assert nic.access_configs[0].nat_i_p.startswith("203.0.113.")
    assert instance.disks[0].source.endswith(f"zones/{Z}/disks/one")
    spec = machines.booted[0]
    assert spec.id == str(instance.id)
    assert spec.addresses == (nic.network_i_p, nic.access_configs[0].nat_i_p)
    assert (spec.device, spec.max_run_s, spec.cloud) == ("L4", 600.0, "gcp")
    assert spec.attributes["ssh-keys"] == "ubuntu:ssh-ed25519 AAAA"
    request = compute_v1.GetGuestAttributesInstanceRequest(
        project=P, zone=Z, instance="one", query_path="hostkeys/"
    )
    item = gce.InstancesClient.get_guest_attributes(request).query_value.items[0]
    assert (item.key, item.value) == ("ssh-ed25519", NO_MACHINE_HOST_KEY)
    serial = gce.InstancesClient.get_serial_port_output(project=P, zone=Z, instance="one")
    assert spec.id in serial.contents
    assert leftover_kinds(cloud) == ["instance", "disk"]
    delete(gce)
    with pytest.raises(exceptions.NotFound):
        get(gce)
    assert cloud.alive() == []
    assert machines.live() == ()
    metered = {line.kind: line for line in cloud.billing()}
    assert set(metered) == {"instance", "disk", "address"}
    assert all(line.ended_at for line in metered.values())
    assert (metered["instance"].item, metered["instance"].market) == ("g2-standard-4", "spot")
    assert metered["disk"].item == "pd-balanced:100"


def test_a_request_id_means_one_instance(cloud: ComputeCloud, gce: Clients, clock: Skewed) -> None:
    token = str(uuid.uuid4())
    first, second = insert(gce, token=token), insert(gce, token=token)
    assert first.name == second.name
    with pytest.raises(exceptions.Conflict) as caught:
        insert(gce, token=str(uuid.uuid4()))
    assert caught.value.errors[0]["reason"] == "alreadyExists"
    elsewhere = insert(gce, "us-west1-a", token=token)
    assert elsewhere.name != first.name
    clock.move(3700)
    with pytest.raises(exceptions.Conflict):
        insert(gce, token=token)
    assert leftover_kinds(cloud).count("instance") == 2
    with pytest.raises(exceptions.BadRequest):
        insert(gce, token="no-uuid", name="two")
    assert [call.answer for call in cloud.calls if call.name == "instances.insert"] == [
        "ok", "ok", "alreadyExists", "ok", "alreadyExists", "invalid"
    ]  # fmt: skip


def test_a_request_id_of_another_request_is_refused(cloud: ComputeCloud, gce: Clients) -> None:
    token = str(uuid.uuid4())
    insert(gce, token=token, max_run_s=600)
    with pytest.raises(exceptions.BadRequest, match="another request"):
        insert(gce, token=token, max_run_s=540)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"machineTyp": "x"}, "machineTyp"),
        ({"scheduling": {"maxRunDuration": {"second": 60}}}, "second"),
        ({"scheduling": {"provisioningModel": "SPOTS"}}, "provisioningModel"),
        ({"networkInterfaces": [{"accessConfigs": [{"type": "NAT"}]}]}, "accessConfigs.type"),
        ({"labels": ["a"]}, "labels"),
    ],
)
def test_a_body_is_held_against_the_descriptors(body: dict[str, Any], said: str) -> None:
    with pytest.raises(ApiError, match=said):
        check_body(compute_v1.Instance, body)


@pytest.mark.parametrize(
    ("method", "library", "query", "is_known"),
    [
        ("instances.insert", compute_v1, {"requestId": "x", "$alt": "json"}, True),
        ("instances.insert", compute_v1, {"requestID": "x"}, False),
        ("instances.aggregatedList", compute_v1, {"maxResults": "5", "filter": "x"}, True),
        ("disks.aggregatedList", compute_v1, {"returnPartialSuccess": "true"}, True),
        ("disks.delete", compute_v1, {"returnPartialSuccess": "true"}, False),
        ("instances.getGuestAttributes", compute_v1, {"querypath": "x"}, False),
        ("queuedResources.delete", tpu_v2, {"force": "true"}, True),
        ("nodes.list", tpu_v2, {"maxResults": "5"}, False),
    ],
)
def test_a_query_is_held_against_the_descriptors(
    method: str, library: ModuleType, query: dict[str, str], is_known: bool
) -> None:
    request = Request(method, {}, query, {})
    if is_known:
        check_query(request, library)
        return
    with pytest.raises(ApiError, match="Cannot bind query parameter"):
        check_query(request, library)


def test_a_minutes_quota_comes_back_at_the_start_of_the_next(
    cloud: ComputeCloud, gce: Clients, clock: Skewed
) -> None:
    clock.move(60 - clock().timestamp() % 60 + 1)
    cloud.rates.per_minute = 2
    for _ in range(2):
        gce.InstancesClient.list(project="lab", zone="us-central1-a")
    with pytest.raises(exceptions.Forbidden) as caught:
        gce.InstancesClient.list(project="lab", zone="us-central1-a")
    assert caught.value.errors[0]["reason"] == "rateLimitExceeded"
    gce.InstancesClient.list(project="lab", zone="us-west1-a")
    insert(gce)
    clock.move(60)
    gce.InstancesClient.list(project="lab", zone="us-central1-a")


@pytest.mark.parametrize(
    ("order", "said"),
    [
        ({"name": "Upper"}, "resource.name"),
        ({"labels": {"who": "a.b"}}, "resource.labels"),
        ({"on_host_maintenance": "MIGRATE"}, "live migration"),
        ({"max_run_s": 29}, "between 30"),
        ({"max_run_s": 60, "instance_termination_action": None}, "termination action"),
        ({"spot": True, "automatic_restart": True}, "automaticRestart"),
        ({"zone": "europe-west4-a", "machine": "none-standard-4"}, "does not exist in zone"),
        ({"image": "projects/lab/global/images/gone"}, "was not found"),
        ({"size_gb": 20}, "cannot be smaller than the image size"),
    ],
)
def test_the_rules(cloud: ComputeCloud, gce: Clients, order: dict[str, Any], said: str) -> None:
    zone = order.pop("zone", Z)
    machine, image = order.pop("machine", ""), order.pop("image", "")
    size_gb = order.pop("size_gb", 0)
    instance = an_instance(zone=zone, **order)
    if machine:
        instance.machine_type = f"zones/{zone}/machineTypes/{machine}"
    if image:
        instance.disks[0].initialize_params.source_image = image
    if size_gb:
        instance.disks[0].initialize_params.disk_size_gb = size_gb
    with pytest.raises((exceptions.BadRequest, exceptions.NotFound), match=said):
        gce.InstancesClient.insert_unary(project=P, zone=zone, instance_resource=instance)
    assert cloud.alive() == []


@pytest.mark.parametrize(
    "code",
    [
        "ZONE_RESOURCE_POOL_EXHAUSTED", "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS",
        "RESOURCE_NOT_FOUND", "UNSUPPORTED_OPERATION", "INTERNAL_ERROR",
    ],
)  # fmt: skip
def test_errors_in_the_operation(cloud: ComputeCloud, gce: Clients, code: str) -> None:
    cloud.refuse("instances.insert", code, where=Z)
    ended = wait(gce, insert(gce))
    assert [each.code for each in ended.error.errors] == [code]
    assert ended.http_error_status_code == gce_fault(code).status
    with pytest.raises(exceptions.NotFound):
        get(gce)
    assert cloud.alive() == []
    assert cloud.faults.unused == 0


def test_an_operation_takes_its_time(cloud: ComputeCloud, gce: Clients, clock: Skewed) -> None:
    cloud.fleet.operation_s = 20
    cloud.dry.add((Z, "spot"))
    operation = insert(gce, spot=True)
    assert get(gce).status == "PROVISIONING"
    clock.move(21)
    assert wait(gce, operation).error.errors[0].code == "ZONE_RESOURCE_POOL_EXHAUSTED"
    cloud.fleet.operation_s = 0
    assert not wait(gce, insert(gce)).error.errors  # on demand there is room


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("quotaExceeded", exceptions.Forbidden),
        ("rateLimitExceeded", exceptions.Forbidden),
        ("tooManyRequests", exceptions.TooManyRequests),
        ("forbidden", exceptions.Forbidden),
        ("accessNotConfigured", exceptions.Forbidden),
        ("backendError", exceptions.ServiceUnavailable),
    ],
)
def test_errors_at_the_call(
    cloud: ComputeCloud, gce: Clients, reason: str, kind: type[Exception]
) -> None:
    cloud.refuse("instances.insert", reason, where="on-demand")
    with pytest.raises(kind) as caught:
        insert(gce)
    assert caught.value.errors[0]["reason"] == reason
    assert cloud.alive() == []


def test_an_answer_that_is_lost(cloud: ComputeCloud, gce: Clients) -> None:
    cloud.refuse("instances.insert", "backendError", after=True)
    token = str(uuid.uuid4())
    with pytest.raises(exceptions.ServiceUnavailable):
        insert(gce, token=token)
    assert leftover_kinds(cloud) == ["instance", "disk"]
    wait(gce, insert(gce, token=token))
    assert len(cloud.machines.live()) == 1
    cloud.faults.script("instances.insert", [Fault(drop=True, after=True)])
    with pytest.raises(requests.ConnectionError):
        insert(gce, name="two")
    assert len(cloud.machines.live()) == 2
    assert [call.answer for call in cloud.calls if call.name == "instances.insert"] == [
        "backendError", "ok", "dropped"
    ]  # fmt: skip


def test_quotas_are_kept(cloud: ComputeCloud, gce: Clients) -> None:
    cloud.quotas.set("NVIDIA_L4_GPUS", 1, region=R)
    wait(gce, insert(gce))
    quotas = {each.metric: each for each in gce.RegionsClient.get(project=P, region=R).quotas}
    assert (quotas["NVIDIA_L4_GPUS"].limit, quotas["NVIDIA_L4_GPUS"].usage) == (1, 1)
    assert quotas["CPUS"].usage == 4
    error = wait(gce, insert(gce, name="two")).error.errors[0]
    assert error.code == "QUOTA_EXCEEDED"
    assert "'NVIDIA_L4_GPUS' exceeded" in error.message
    assert R in error.message
    assert error.error_details[0].quota_info.metric_name == "NVIDIA_L4_GPUS"
    assert not wait(gce, insert(gce, name="two", spot=True)).error.errors  # its own metric
    cloud.quotas.set("GPUS_ALL_REGIONS", 2)
    error = wait(gce, insert(gce, "us-west1-a"), "us-west1-a").error.errors[0]
    assert "'GPUS_ALL_REGIONS' exceeded" in error.message
    whole = {each.metric: each for each in gce.ProjectsClient.get(project=P).quotas}
    assert (whole["GPUS_ALL_REGIONS"].limit, whole["GPUS_ALL_REGIONS"].usage) == (2, 2)
    cloud.quotas.forget("NVIDIA_L4_GPUS", region=R)
    answer = gce.RegionsClient.get(project=P, region=R)
    assert "NVIDIA_L4_GPUS" not in {each.metric for each in answer.quotas}


def test_the_run_duration_ends_it(cloud: ComputeCloud, gce: Clients, clock: Skewed) -> None:
    wait(gce, insert(gce, max_run_s=60))
    clock.move(20)
    assert get(gce).status == "RUNNING"
    clock.move(41)
    soon(lambda: cloud.alive() == [])
    (line,) = [line for line in cloud.billing() if line.kind == "instance"]
    assert line.ended_at is not None
    assert 60 <= (line.ended_at - line.started_at).total_seconds() < 180


def test_deleting(cloud: ComputeCloud, gce: Clients, clock: Skewed) -> None:
    wait(gce, insert(gce))
    cloud.refuse("instances.delete", "backendError", "RESOURCE_NOT_READY")
    with pytest.raises(exceptions.ServiceUnavailable):
        delete(gce)
    assert delete(gce).error.errors[0].code == "RESOURCE_NOT_READY"
    cloud.fleet.stopping_s = 30
    operation = gce.InstancesClient.delete_unary(project=P, zone=Z, instance="one")
    assert get(gce).status == "STOPPING"
    clock.move(31)
    wait(gce, operation)
    with pytest.raises(exceptions.NotFound):
        gce.InstancesClient.delete_unary(project=P, zone=Z, instance="one")
    assert cloud.alive() == []


def test_a_deletion_that_is_asked_for_again_ends_no_later(
    cloud: ComputeCloud, gce: Clients, clock: Skewed
) -> None:
    wait(gce, insert(gce))
    cloud.fleet.stopping_s = 3600
    for _ in range(2):
        gce.InstancesClient.delete_unary(project=P, zone=Z, instance="one")
        clock.move(1900)
    soon(lambda: "instance" not in leftover_kinds(cloud))


def test_what_cannot_be_seen_yet(cloud: ComputeCloud, gce: Clients) -> None:
    cloud.invisible_for_looks = 2
    wait(gce, insert(gce))
    with pytest.raises(exceptions.NotFound):
        get(gce)
    assert not list(gce.InstancesClient.list(project=P, zone=Z))
    assert get(gce).name == "one"
    cloud.hides_from_changes = True
    wait(gce, insert(gce, name="two"))
    with pytest.raises(exceptions.NotFound):
        delete(gce, "two")
    assert leftover_kinds(cloud).count("instance") == 2


def test_a_guest_that_never_comes_up_is_running_all_the_same(
    cloud: ComputeCloud, gce: Clients, machines: NoMachines, clock: Skewed
) -> None:
    machines.boot_delay_s = 3600
    wait(gce, insert(gce))
    assert get(gce).status == "STAGING"
    clock.move(31)
    assert get(gce).status == "RUNNING"
    request = compute_v1.GetGuestAttributesInstanceRequest(
        project=P, zone=Z, instance="one", query_path="hostkeys/"
    )
    with pytest.raises(exceptions.NotFound):
        gce.InstancesClient.get_guest_attributes(request)


def test_an_instance_that_never_runs(cloud: ComputeCloud, gce: Clients) -> None:
    cloud.die_in_staging("compute.instances.hostError")
    wait(gce, insert(gce))
    soon(lambda: get(gce).status == "TERMINATED")
    assert not [line for line in cloud.billing() if line.kind == "instance"]


def test_the_guest_powers_off(cloud: ComputeCloud, gce: Clients, machines: NoMachines) -> None:
    wait(gce, insert(gce))
    machines.end(machines.booted[0].id)
    soon(lambda: get(gce).status == "TERMINATED")
    assert leftover_kinds(cloud) == ["instance", "disk"]
    delete(gce)
    assert cloud.alive() == []


@pytest.mark.parametrize(("action", "left"), [("DELETE", []), ("STOP", ["instance", "disk"])])
def test_preemption(
    cloud: ComputeCloud, gce: Clients, clock: Skewed, machines: NoMachines, action: str,
    left: list[str],
) -> None:  # fmt: skip
    wait(gce, insert(gce, spot=True, instance_termination_action=action))
    machine_id = machines.booted[0].id
    cloud.preempt(machine_id, notice_s=30)
    assert machines.preempted_at(machine_id) is not None
    assert get(gce).status == "STOPPING"
    assert machines.live() == (machine_id,)
    clock.move(31)
    soon(lambda: machines.live() == ())
    soon(lambda: leftover_kinds(cloud) == left)
    found = gce.ZoneOperationsClient.list(project=P, zone=Z)
    kinds = [each.operation_type for each in found]
    assert kinds == ["insert", "compute.instances.preempted"]
    if left:
        assert get(gce).status == "TERMINATED"
        delete(gce)
    assert cloud.alive() == []


def test_a_reset_boots_again(cloud: ComputeCloud, gce: Clients, machines: NoMachines) -> None:
    wait(gce, insert(gce))
    wait(gce, gce.InstancesClient.reset_unary(project=P, zone=Z, instance="one"))
    assert get(gce).status == "RUNNING"


def test_a_machine_is_another_than_it_says(cloud: ComputeCloud, gce: Clients) -> None:
    cloud.devices["g2-standard-4"] = "T4"
    cloud.give_next_external_address("203.0.113.77")
    wait(gce, insert(gce))
    assert isinstance(cloud.machines, NoMachines)
    assert cloud.machines.booted[0].device == "T4"
    assert get(gce).network_interfaces[0].access_configs[0].nat_i_p == "203.0.113.77"


def test_a_delete_meets_a_create(cloud: ComputeCloud, gce: Clients) -> None:
    cloud.fleet.operation_s = 3600
    operation = insert(gce)
    delete(gce)
    assert wait(gce, operation).error.errors[0].code == "OPERATION_CANCELED_BY_USER"
    assert cloud.alive() == []


def test_credentials_that_have_expired(cloud: ComputeCloud, gce: Clients) -> None:
    # A 401 makes the client renew its credentials, and that is what fails: no GoogleAPICallError.
    cloud.refuse("instances.insert", "authError")
    with pytest.raises(GoogleAuthError):
        insert(gce)
    assert cloud.alive() == []
