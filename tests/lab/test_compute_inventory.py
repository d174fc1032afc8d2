"""What the emulated Compute Engine has beside instances: lists, disks, rules, images, prices."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

import pytest
import requests
from google.api_core import exceptions
from google.auth.credentials import AnonymousCredentials
from google.cloud import billing_v1, compute_v1

from tests.lab.compute_cloud import ComputeCloud
from tests.lab.faults import Fault
from tests.lab.google.billing_cloud import COMPUTE_SERVICE, BillingCloud
from tests.lab.google.compute_clients import (
    DLVM,
    DONE,
    FAMILY,
    Clients,
    P,
    R,
    Z,
    delete,
    insert,
    wait,
)
from tests.lab.google.skewed import Skewed


@pytest.fixture
def cloud() -> Iterator[ComputeCloud]:
    with ComputeCloud(clock=Skewed()) as cloud:
        cloud.quotas.set("NVIDIA_L4_GPUS", 8)
        cloud.quotas.set("GPUS_ALL_REGIONS", 8)
        cloud.quotas.set("CPUS_ALL_REGIONS", 64)
        yield cloud


@pytest.fixture
def gce(cloud: ComputeCloud) -> Iterator[Clients]:
    with Clients(cloud) as clients:
        yield clients


def test_lists(cloud: ComputeCloud, gce: Clients) -> None:
    for number in range(5):
        wait(gce, insert(gce, name=f"n{number}"))
    wait(gce, insert(gce, "us-west1-a", labels={"managed-by": "other"}), "us-west1-a")
    pages = gce.InstancesClient.list(
        compute_v1.ListInstancesRequest(project=P, zone=Z, max_results=2)
    ).pages
    assert [len(each.items) for each in pages] == [2, 2, 1]
    request = compute_v1.AggregatedListInstancesRequest(
        project=P, filter="labels.managed-by=seatrial", max_results=2
    )
    found = dict[str, list[str]]()
    for scope, listed in gce.InstancesClient.aggregated_list(request):
        found.setdefault(scope, []).extend(each.name for each in listed.instances)
    assert {scope: names for scope, names in found.items() if names} == {
        f"zones/{Z}": [f"n{number}" for number in range(5)]
    }
    cloud.gaps.always.add(Z)
    request = compute_v1.AggregatedListInstancesRequest(project=P)
    listed = dict(gce.InstancesClient.aggregated_list(request))
    assert listed[f"zones/{Z}"].warning.code == "UNREACHABLE"
    assert [each.name for each in listed["zones/us-west1-a"].instances] == ["one"]
    assert listed["zones/us-east1-b"].warning.code == "NO_RESULTS_ON_PAGE"
    with pytest.raises(exceptions.BadRequest):
        list(gce.InstancesClient.list(
            compute_v1.ListInstancesRequest(project=P, zone=Z, filter="name eq")))  # fmt: skip


def test_disks_outlive_a_careless_order(cloud: ComputeCloud, gce: Clients) -> None:
    wait(gce, insert(gce, auto_delete=False))
    with pytest.raises(exceptions.BadRequest, match="already being used"):
        gce.DisksClient.delete_unary(project=P, zone=Z, disk="one")
    delete(gce)
    assert cloud.alive() == [("disk", "one")]
    with pytest.raises(exceptions.Conflict):
        insert(gce)
    (disk,) = gce.DisksClient.list(project=P, zone=Z)
    assert (disk.name, disk.size_gb, list(disk.users)) == ("one", 100, [])
    everywhere = dict(gce.DisksClient.aggregated_list(project=P))
    assert [each.name for each in everywhere[f"zones/{Z}"].disks] == ["one"]
    wait(gce, gce.DisksClient.delete_unary(project=P, zone=Z, disk="one"))
    assert cloud.alive() == []


def test_firewalls_and_addresses(cloud: ComputeCloud, gce: Clients) -> None:
    rule = compute_v1.Firewall(
        name="seatrial-ssh",
        source_ranges=["192.0.2.1/32"],
        target_tags=["seatrial"],
        allowed=[compute_v1.Allowed(I_p_protocol="tcp", ports=["22"])],
    )
    operation = gce.FirewallsClient.insert_unary(project=P, firewall_resource=rule)
    ended = gce.GlobalOperationsClient.wait(project=P, operation=operation.name)
    assert ended.status == DONE
    with pytest.raises(exceptions.Conflict):
        gce.FirewallsClient.insert_unary(project=P, firewall_resource=rule)
    there = gce.FirewallsClient.get(project=P, firewall="seatrial-ssh")
    assert list(there.source_ranges) == ["192.0.2.1/32"]
    names = {each.name for each in gce.FirewallsClient.list(project=P)}
    assert names == {"default-allow-ssh", "default-allow-icmp", "seatrial-ssh"}
    assert cloud.alive() == [("firewall", "seatrial-ssh")]
    gce.FirewallsClient.delete_unary(project=P, firewall="seatrial-ssh")
    gce.AddressesClient.insert_unary(
        project=P, region=R, address_resource=compute_v1.Address(name="kept")
    )
    assert cloud.alive() == [("address", "kept")]
    listed = dict(gce.AddressesClient.aggregated_list(project=P))
    assert [each.name for each in listed[f"regions/{R}"].addresses] == ["kept"]
    gce.AddressesClient.delete_unary(project=P, region=R, address="kept")
    assert cloud.alive() == []


def test_images(cloud: ComputeCloud, gce: Clients) -> None:
    client = gce.ImagesClient
    image = client.get_from_family(project=DLVM, family=FAMILY)
    assert (image.name, image.disk_size_gb) == (f"{FAMILY}-v20260626", 50)
    cloud.images.deprecate(FAMILY)
    assert client.get_from_family(project=DLVM, family=FAMILY).deprecated.state == "DEPRECATED"
    cloud.images.deprecate(FAMILY, "OBSOLETE")
    with pytest.raises(exceptions.NotFound):
        client.get_from_family(project=DLVM, family=FAMILY)
    with pytest.raises(exceptions.NotFound):
        client.get_from_family(project=DLVM, family="no-such")


def test_what_there_is_where(gce: Clients) -> None:
    kind = gce.MachineTypesClient.get(project=P, zone=Z, machine_type="g2-standard-4")
    assert (kind.guest_cpus, kind.memory_mb) == (4, 16384)
    with_it = kind.accelerators[0]
    assert with_it.guest_accelerator_type == "nvidia-l4"
    assert with_it.guest_accelerator_count == 1
    with pytest.raises(exceptions.NotFound):
        gce.MachineTypesClient.get(project=P, zone=Z, machine_type="mi300x-1")
    with pytest.raises(exceptions.NotFound):
        gce.MachineTypesClient.get(project=P, zone="us-south1-a", machine_type="g2-standard-4")
    request = compute_v1.AggregatedListMachineTypesRequest(project=P, filter="name=g2-standard-4")
    offered = {scope for scope, listed in gce.MachineTypesClient.aggregated_list(request)
               if listed.machine_types}  # fmt: skip
    assert f"zones/{Z}" in offered
    assert "zones/us-south1-a" not in offered
    zones = {zone.name for zone in gce.ZonesClient.list(project=P)}
    assert Z in zones
    accelerators = gce.AcceleratorTypesClient.list(project=P, zone=Z)
    assert "nvidia-l4" in {each.name for each in accelerators}


def test_a_call_that_the_lab_does_not_know_breaks_it() -> None:
    cloud = ComputeCloud().start()
    assert requests.get(f"{cloud.endpoint_url}/compute/v1/none", timeout=60).status_code == 404
    with pytest.raises(RuntimeError, match="no such call"):
        cloud.stop()


def test_the_price_list() -> None:
    with BillingCloud() as cloud:
        client = billing_v1.CloudCatalogClient(
            transport="rest",
            credentials=AnonymousCredentials(),
            client_options={"api_endpoint": cloud.endpoint_url},
        )
        skus = list(client.list_skus(
            billing_v1.ListSkusRequest(parent=COMPUTE_SERVICE, page_size=7)))  # fmt: skip
        cloud.faults.script("services.skus.list", [Fault("forbidden", "denied", 403)])
        with pytest.raises(exceptions.Forbidden):
            client.list_skus(parent=COMPUTE_SERVICE)
        client.transport.close()
    spoken = {sku.description for sku in skus}
    assert any("Commitment" in each for each in spoken)
    assert any("DWS" in each for each in spoken)
    assert any("Sole Tenancy" in each for each in spoken)
    assert usd(skus, "G2 Instance Core") * 4 + usd(skus, "G2 Instance Ram") * 16 + usd(
        skus, "Nvidia L4 GPU"
    ) == Decimal("0.706832")


def usd(skus: list[billing_v1.Sku], starts: str) -> Decimal:
    (sku,) = [each for each in skus if each.description.startswith(f"{starts} running")
              and R in each.service_regions and each.category.usage_type == "OnDemand"]  # fmt: skip
    price = sku.pricing_info[0].pricing_expression.tiered_rates[-1].unit_price
    return price.units + Decimal(price.nanos) / 10**9
