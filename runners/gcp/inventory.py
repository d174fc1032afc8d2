"""Seatrial's labelled resources (machines, disks, addresses), and the quotas that they use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from google.cloud import compute_v1

from orchestrator.domain.machine import (
    Machine,
    MachineState,
    Place,
    ProviderUnavailableError,
)
from orchestrator.domain.quota import Demand, Quota
from runners.gcp.clients import ComputeClients
from runners.gcp.instance import ResourceId, last
from runners.gcp.offers import PROVIDER
from runners.gcp.platform_config import KNOWN, GcpPlatformConfig
from runners.gcp.status import as_machine
from runners.google.names import label, tags
from runners.google.quotas import CPUS_ALL, GPUS_ALL, address_demand
from runners.google.responses import READ_TIMEOUT_S, listed


def demands(config: GcpPlatformConfig, place: Place, *, project: str) -> tuple[Demand, ...]:
    """Return the quotas that one machine at the place uses.

    Args:
        config: The platform's configuration.
        place: Zone, instance type and market.
        project: The cloud project, which is the scope of global quotas.
    """
    shape = KNOWN.get(place.instance_type)
    spot = "PREEMPTIBLE_" if place.market == "spot" else ""
    found = [(place.region, "SSD_TOTAL_GB", "SSD disks", "GB", config.disk_gb)]
    ours: list[Demand] = []
    if config.is_public:
        ours.append(address_demand(place.region))
    if shape is not None:
        gpu = shape.accelerator.removeprefix("nvidia-").upper()
        found += [
            (place.region, f"{spot}{shape.quota}", f"{gpu} {place.market}", "GPU", shape.count),
            (place.region, f"{spot}CPUS", f"CPUs {place.market}", "vCPU", shape.cpus),
            (project, GPUS_ALL, "GPUs in all regions", "GPU", shape.count),
            (project, CPUS_ALL, "CPUs in all regions", "vCPU", shape.cpus),
        ]
    ours += [
        Demand(Quota(PROVIDER, scope, code, name, unit), amount)
        for scope, code, name, unit, amount in found
    ]
    return tuple(ours)


def everything(clients: ComputeClients, *, project: str) -> tuple[Machine, ...]:
    """Return the resources with the project's label, in every zone.

    Args:
        clients: The clients of the cloud project.
        project: The controllers' project name.

    Raises:
        ProviderUnavailableError: A zone did not answer: the list would be incomplete.
        ProviderError: The cloud refused.
    """
    ours = f'labels.seatrial-project = "{label(project)}"'
    return (
        *_instances(clients, ours),
        *_disks(clients, ours),
        *_addresses(clients, ours),
    )


def _instances(clients: ComputeClients, ours: str) -> Iterator[Machine]:
    request = compute_v1.AggregatedListInstancesRequest(project=clients.project, filter=ours)
    for zone, found in _scopes("machines", clients.instances, request):
        for each in found.instances:
            yield as_machine(each, zone, simulated=clients.is_simulated)


def _disks(clients: ComputeClients, ours: str) -> Iterator[Machine]:
    request = compute_v1.AggregatedListDisksRequest(project=clients.project, filter=ours)
    for zone, found in _scopes("disks", clients.disks, request):
        # One in use goes with its machine, which is listed.
        for each in (disk for disk in found.disks if not disk.users):
            yield _thing(clients, ResourceId(zone, "disks", each.name), each.labels)


def _addresses(clients: ComputeClients, ours: str) -> Iterator[Machine]:
    request = compute_v1.AggregatedListAddressesRequest(project=clients.project, filter=ours)
    for region, found in _scopes("addresses", clients.addresses, request):
        for each in found.addresses:
            yield _thing(clients, ResourceId(region, "addresses", each.name), each.labels)


def _scopes(what: str, client: Any, request: object) -> Iterator[tuple[str, Any]]:  # noqa: ANN401 - one of three clients
    """Yield each zone or region with its part of an aggregated list, complete or not at all."""
    pages = listed(
        f"listing our {what}",
        lambda: list(client.aggregated_list(request, retry=None, timeout=READ_TIMEOUT_S).pages),
    )
    for page in pages:
        missing = ", ".join(last(each) for each in page.unreachables)
        if missing:
            raise _incomplete(what, missing, "unreachable")
        for scope, found in page.items.items():
            # An empty scope warns too, that it has no results.
            if found.warning.code == "UNREACHABLE":
                raise _incomplete(what, last(scope), found.warning.message)
            yield last(scope), found


def _thing(clients: ComputeClients, which: ResourceId, labels: Mapping[str, str]) -> Machine:
    carried = tags(labels)
    return Machine(
        id=str(which),
        token=carried.get("seatrial-token", ""),
        state=MachineState.READY,
        kind=which.kind,
        tags=carried,
        facts={"zone": which.scope},
        simulated=clients.is_simulated,
    )


def _incomplete(what: str, where: str, why: str) -> ProviderUnavailableError:
    return ProviderUnavailableError(
        f"listing our {what}: {where} did not answer ({why}), so that the list is not complete; "
        "repeat it a little later",
        code="UNREACHABLE",
    )
