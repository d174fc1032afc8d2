"""The real google-cloud-compute clients, pointed to the lab, and the orders that tests place."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from typing import Any, Self

from google.auth.credentials import AnonymousCredentials
from google.cloud import compute_v1

from tests.lab.compute_cloud import ComputeCloud

P, Z, R = "lab", "us-central1-a", "us-central1"
FAMILY = "pytorch-2-9-cu129-ubuntu-2404-nvidia-580"
DLVM = "deeplearning-platform-release"
DONE = compute_v1.Operation.Status.DONE


class Clients:
    """One real client of each kind, pointed to the lab, and closed at the end."""

    def __init__(self, cloud: ComputeCloud) -> None:
        self._cloud = cloud
        self._open: dict[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        if name not in self._open:
            self._open[name] = getattr(compute_v1, name)(
                credentials=AnonymousCredentials(),
                client_options={"api_endpoint": self._cloud.endpoint_url},
            )
        return self._open[name]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for client in self._open.values():
            client.transport.close()


def an_instance(
    name: str = "one",
    *,
    zone: str = Z,
    spot: bool = False,
    max_run_s: int = 0,
    auto_delete: bool = True,
    labels: dict[str, str] | None = None,
    **scheduling: Any,
) -> compute_v1.Instance:
    usual: dict[str, Any] = {"on_host_maintenance": "TERMINATE", "automatic_restart": False}
    usual["provisioning_model"] = "SPOT" if spot else "STANDARD"
    if spot or max_run_s:
        usual["instance_termination_action"] = "DELETE"
    if max_run_s:
        usual["max_run_duration"] = compute_v1.Duration(seconds=max_run_s)
    items = {"ssh-keys": "ubuntu:ssh-ed25519 AAAA", "enable-guest-attributes": "TRUE"}
    disk = compute_v1.AttachedDiskInitializeParams(
        source_image=f"projects/{DLVM}/global/images/family/{FAMILY}",
        disk_size_gb=100,
        disk_type=f"zones/{zone}/diskTypes/pd-balanced",
    )
    return compute_v1.Instance(
        name=name,
        machine_type=f"zones/{zone}/machineTypes/g2-standard-4",
        labels={"managed-by": "seatrial"} if labels is None else labels,
        scheduling=compute_v1.Scheduling(**{**usual, **scheduling}),
        metadata=compute_v1.Metadata(
            items=[compute_v1.Items(key=key, value=value) for key, value in items.items()]
        ),
        disks=[compute_v1.AttachedDisk(boot=True, auto_delete=auto_delete, initialize_params=disk)],
        network_interfaces=[
            compute_v1.NetworkInterface(
                network="global/networks/default",
                access_configs=[compute_v1.AccessConfig(type_="ONE_TO_ONE_NAT")],
            )
        ],
    )


def insert(gce: Clients, zone: str = Z, token: str = "", **order: Any) -> compute_v1.Operation:
    return gce.InstancesClient.insert_unary(
        compute_v1.InsertInstanceRequest(
            project=P,
            zone=zone,
            request_id=token,
            instance_resource=an_instance(zone=zone, **order),
        )
    )


def wait(gce: Clients, operation: compute_v1.Operation, zone: str = Z) -> compute_v1.Operation:
    ended = gce.ZoneOperationsClient.wait(project=P, zone=zone, operation=operation.name)
    assert ended.status == DONE
    return ended


def get(gce: Clients, name: str = "one", zone: str = Z) -> compute_v1.Instance:
    return gce.InstancesClient.get(project=P, zone=zone, instance=name)


def delete(gce: Clients, name: str = "one", zone: str = Z) -> compute_v1.Operation:
    request = compute_v1.DeleteInstanceRequest(
        project=P, zone=zone, instance=name, request_id=str(uuid.uuid4())
    )
    return wait(gce, gce.InstancesClient.delete_unary(request), zone)


def soon(seen: Callable[[], bool], within_s: float = 120.0) -> None:
    until = time.monotonic() + within_s
    while not seen():
        assert time.monotonic() < until, "did not come about"
        time.sleep(0.02)


def leftover_kinds(cloud: ComputeCloud) -> list[str]:
    return [kind for kind, _ in cloud.alive()]
