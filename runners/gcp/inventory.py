"""Seatrial's labelled resources (machines, disks, addresses), and the quotas that they use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from google.cloud import compute_v1

from orchestrator.domain.machine import (
    Machine,
    MachineState,
    Place,
)
from orchestrator.domain.quota import Demand, Quota
from runners.gcp.clients import ComputeClients
from runners.gcp.instance import ResourceId, last
from runners.gcp.places import PROVIDER
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


def everything(
    clients: ComputeClients, *, project: str
) -> tuple[tuple[Machine, ...], dict[str, str]]:
    """Return the resources with the project's label, and the zones that did not answer.

    Args:
        clients: The clients of the cloud project.
        project: The controllers' project name.

    Raises:
        ProviderError: The cloud refused.
    """
    ours, gaps = f'labels.seatrial-project = "{label(project)}"', dict[str, str]()
    found = (
        *_instances(clients, ours, gaps),
        *_disks(clients, ours, gaps),
        *_addresses(clients, ours, gaps),
    )
    return found, gaps


def _instances(clients: ComputeClients, ours: str, gaps: dict[str, str]) -> Iterator[Machine]:
    request = compute_v1.AggregatedListInstancesRequest(project=clients.project, filter=ours)
    for zone, found in _scopes("machines", clients.instances, request, gaps):
        for each in found.instances:
            yield as_machine(each, zone, simulated=clients.is_simulated)


def _disks(clients: ComputeClients, ours: str, gaps: dict[str, str]) -> Iterator[Machine]:
    request = compute_v1.AggregatedListDisksRequest(project=clients.project, filter=ours)
    for zone, found in _scopes("disks", clients.disks, request, gaps):
        # One in use goes with its machine, which is listed.
        for each in (disk for disk in found.disks if not disk.users):
            yield _thing(clients, ResourceId(zone, "disks", each.name), each.labels)


def _addresses(clients: ComputeClients, ours: str, gaps: dict[str, str]) -> Iterator[Machine]:
    request = compute_v1.AggregatedListAddressesRequest(project=clients.project, filter=ours)
    for region, found in _scopes("addresses", clients.addresses, request, gaps):
        for each in found.addresses:
            yield _thing(clients, ResourceId(region, "addresses", each.name), each.labels)


def _scopes(
    what: str,
    client: Any,  # noqa: ANN401 - one of three clients
    request: object,
    gaps: dict[str, str],
) -> Iterator[tuple[str, Any]]:
    """Yield each zone or region with its part of an aggregated list; note the silent ones."""
    pages = listed(
        f"listing our {what}",
        lambda: list(client.aggregated_list(request, retry=None, timeout=READ_TIMEOUT_S).pages),
    )
    for page in pages:
        silent = {last(each): "unreachable" for each in page.unreachables}
        # An empty scope warns too, that it has no results.
        silent |= {
            last(scope): found.warning.message
            for scope, found in page.items.items()
            if found.warning.code == "UNREACHABLE"
        }
        gaps |= {place: f"listing our {what}: {why}" for place, why in silent.items()}
        yield from ((last(scope), found) for scope, found in page.items.items())


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
