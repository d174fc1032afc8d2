"""Seatrial's labelled resources (machines, disks, addresses), and the quotas that they use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

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


class _Scoped(Protocol):
    """The answer of one zone or region in an aggregated list."""

    warning: compute_v1.Warning


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


def _instances(clients: ComputeClients, ours: str) -> Iterable[Machine]:
    request = compute_v1.AggregatedListInstancesRequest(project=clients.project, filter=ours)
    pages = listed(
        "listing our machines",
        lambda: list(
            clients.instances.aggregated_list(request, retry=None, timeout=READ_TIMEOUT_S).pages
        ),
    )
    for page in pages:
        _be_complete("machines", page.unreachables)
        for scope, found in page.items.items():
            _answered("machines", scope, found)
            for each in found.instances:
                yield as_machine(each, last(scope), simulated=clients.is_simulated)


def _disks(clients: ComputeClients, ours: str) -> Iterator[Machine]:
    request = compute_v1.AggregatedListDisksRequest(project=clients.project, filter=ours)
    pages = listed(
        "listing our disks",
        lambda: list(
            clients.disks.aggregated_list(request, retry=None, timeout=READ_TIMEOUT_S).pages
        ),
    )
    for page in pages:
        _be_complete("disks", page.unreachables)
        for scope, found in page.items.items():
            _answered("disks", scope, found)
            # One in use goes with its machine, which is listed.
            for each in (disk for disk in found.disks if not disk.users):
                yield _thing(clients, ResourceId(last(scope), "disks", each.name), each.labels)


def _addresses(clients: ComputeClients, ours: str) -> Iterator[Machine]:
    request = compute_v1.AggregatedListAddressesRequest(project=clients.project, filter=ours)
    pages = listed(
        "listing our addresses",
        lambda: list(
            clients.addresses.aggregated_list(request, retry=None, timeout=READ_TIMEOUT_S).pages
        ),
    )
    for page in pages:
        _be_complete("addresses", page.unreachables)
        for scope, found in page.items.items():
            _answered("addresses", scope, found)
            for each in found.addresses:
                which = ResourceId(last(scope), "addresses", each.name)
                yield _thing(clients, which, each.labels)


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


def _be_complete(what: str, unreachables: Iterable[str]) -> None:
    missing = ", ".join(last(each) for each in unreachables)
    if missing:
        raise _incomplete(what, missing, "unreachable")


def _answered(what: str, scope: str, scoped: _Scoped) -> None:
    # An empty scope warns too, that it has no results.
    if scoped.warning.code == "UNREACHABLE":
        raise _incomplete(what, last(scope), scoped.warning.message)


def _incomplete(what: str, where: str, why: str) -> ProviderUnavailableError:
    return ProviderUnavailableError(
        f"listing our {what}: {where} did not answer ({why}), so that the list is not complete; "
        "repeat it a little later",
        code="UNREACHABLE",
    )
