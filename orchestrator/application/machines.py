"""Machines for a person: list cloud resources, terminate one, check own hosts, SSH access."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from orchestrator.application.context import Context
from orchestrator.application.janitor import CloudResource
from orchestrator.domain.attestation import devices_of, mismatch, unexpected
from orchestrator.domain.cell import Cell, Lease, LeaseState
from orchestrator.domain.copied_fields import extended, filled
from orchestrator.domain.document_problems import nearest
from orchestrator.domain.inventory import DOOMED, InventoryResponse, Ownership, ResourceResponse
from orchestrator.domain.launch_plan import HostCheck
from orchestrator.domain.machine import MachineError, OwnHosts, SshAccess, SshEndpoint
from orchestrator.domain.manifest import Manifest
from orchestrator.domain.matrix import CellPlan, Platform, system_of


def inventory_answer(context: Context, *, orphans: bool = False) -> InventoryResponse:
    """Return the inventory of all providers; with `orphans`, only resources without an owner."""
    report = context.janitor.take_inventory()
    wanted = [one for one in report.resources if not orphans or one.ownership in DOOMED]
    items = tuple(resource_answer(context, one) for one in wanted)
    return InventoryResponse(items, report.unread, report.asked)


def resource_answer(context: Context, cloud_resource: CloudResource) -> ResourceResponse:
    """Return one resource; run and cell come from its tags, the cell's name from the ledger."""
    machine, tags = cloud_resource.machine, cloud_resource.machine.tags
    cell = tags.get("seatrial-cell", "")
    if cloud_resource.lease is not None:
        attempt = context.stores.cells.attempt(cloud_resource.lease.attempt_id)
        cell = context.stores.cells.get(attempt.cell_id).name
    return filled(
        ResourceResponse,
        machine,
        provider=cloud_resource.provider,
        ownership=cloud_resource.ownership,
        run=tags.get("seatrial-run", ""),
        cell=cell,
        attempt=tags.get("seatrial-attempt", ""),
        controller=tags.get("seatrial-controller", ""),
        expires_at=cloud_resource.expires_at,
        first_seen=cloud_resource.first_seen,
        ends_after=cloud_resource.ends_after,
    )


class MachineMissingError(LookupError):
    """The provider's inventory lacks the machine; the message says what to do."""


class MachineInUseError(Exception):
    """An open lease holds the machine."""


class MachineStaysError(Exception):
    """The resource belongs to another controller, or an open lease may use it."""


class ProviderUnreadError(Exception):
    """The provider was unreachable, or rejected the call; the machine's state is unknown."""


def end_machine(context: Context, provider: str, machine_id: str) -> CloudResource:
    """Terminate a machine now. A leased one is released by cancelling its run.

    Raises MachineMissingError, MachineInUseError, MachineStaysError, ProviderUnreadError.
    """
    sight = _find(context, provider, machine_id)
    _refuse_owned(sight)
    if not context.janitor.end(sight):
        _refuse_needed(context, sight)
        raise ProviderUnreadError(
            f"{provider} did not take the order to end {machine_id}; the controller's log says why,"
            " and the janitor tries again"
        )
    return sight


def _find(context: Context, provider: str, machine_id: str) -> CloudResource:
    if provider not in context.traits:
        near = nearest(provider, list(context.traits))
        raise MachineMissingError(f"there is no provider {provider!r}{near}")
    survey = context.janitor.take_inventory([provider])
    for sight in survey.resources:
        if sight.machine.id == machine_id:
            return sight
    if provider in survey.unread:
        raise ProviderUnreadError(f"{provider} cannot be asked: {survey.unread[provider]}")
    raise MachineMissingError(
        f"{provider} shows no {machine_id!r} of this project; GET /api/v1/machines lists them"
    )


def _refuse_owned(cloud_resource: CloudResource) -> None:
    tags, name = cloud_resource.machine.tags, cloud_resource.machine.id
    if cloud_resource.ownership is Ownership.LEASED:
        run = tags.get("seatrial-run", "") or "RUN"
        raise MachineInUseError(
            f"{name} is at work for a cell: `seatrial cancel {run}` gives it back in order"
        )
    if cloud_resource.ownership is Ownership.FOREIGN:
        until = (
            f"{cloud_resource.expires_at:%Y-%m-%d %H:%M:%S} UTC"
            if cloud_resource.expires_at
            else "it expires"
        )
        owner = tags.get("seatrial-controller", "another controller")
        raise MachineStaysError(f"{name} is controller {owner}'s until {until}; only that ends it")
    if cloud_resource.ownership is Ownership.SHARED:
        raise MachineStaysError(
            f"{name} is shared, and machines of the project exist, or may exist where a zone does "
            "not answer: terminate these first, or try again later"
        )


def _refuse_needed(context: Context, cloud_resource: CloudResource) -> None:
    needs = context.janitor.needed_by(cloud_resource)
    if needs is not None:
        raise MachineStaysError(
            f"{cloud_resource.machine.id} is shared, and lease {needs.id} of {needs.provider} "
            "still uses it:"
            " the janitor ends it after the last lease"
        )


_AT_ONCE = 16


def check_hosts(
    context: Context, manifest: Manifest, plans: Iterable[CellPlan]
) -> tuple[HostCheck, ...]:
    """Sign in on every host of the cells' platforms, and look for what their jobs need.

    The agent's archive is stored in the host's work folder, as by a run; nothing else changes.
    """
    environments: dict[str, list[str]] = {}
    platforms: dict[str, Platform] = {}
    for plan in plans:
        platforms[plan.platform.id] = plan.platform
        environments.setdefault(plan.platform.id, []).append(plan.environment)

    def check(target: tuple[Platform, SshEndpoint]) -> HostCheck:
        platform, endpoint = target
        try:
            return _check(context, manifest, platform, endpoint, environments[platform.id])
        except MachineError as error:
            why = str(error).removeprefix(f"{endpoint.label}: ")
            return HostCheck(platform.id, endpoint.label, failure=why)

    with ThreadPoolExecutor(_AT_ONCE) as threads:
        return tuple(threads.map(check, _hosts(context, platforms.values())))


def _hosts(
    context: Context, platforms: Iterable[Platform]
) -> Iterator[tuple[Platform, SshEndpoint]]:
    for platform in platforms:
        provider = context.provider(platform.provider)
        if isinstance(provider, OwnHosts):
            yield from ((platform, endpoint) for endpoint in provider.endpoints(platform))


def _check(
    context: Context,
    manifest: Manifest,
    platform: Platform,
    endpoint: SshEndpoint,
    environments: Sequence[str],
) -> HostCheck:
    """Check one host. Raises MachineError."""
    workspace = context.open_workspace(endpoint)
    workspace.put_agent()
    names = list(dict.fromkeys(environments))
    probes = {
        asked: workspace.probe(asked) for asked in dict.fromkeys(map(manifest.candidates, names))
    }
    probe = next(iter(probes.values()))
    devices = devices_of(probe)
    seen = HostCheck(platform.id, endpoint.label, devices=tuple(one.label for one in devices))
    wrong = mismatch(platform.accelerator, devices, simulated=False) or unexpected(
        platform.expect,
        provider=platform.provider,
        instance="",
        devices=devices,
        system=system_of(probe),
        simulated=False,
    )
    if wrong:
        return replace(seen, failure=wrong)
    pythons = []
    for environment in names:
        probe = probes[manifest.candidates(environment)]
        choice = context.wheels.choose(probe, manifest, environment)
        if choice.interpreter is None:
            return replace(seen, failure=f"environment {environment}: {choice.reason}")
        pythons.append(f"{choice.interpreter.path} ({choice.interpreter.version})")
    return replace(seen, pythons=tuple(dict.fromkeys(pythons)))


class NoMachineError(LookupError):
    """The cell has no machine that is reachable over SSH now; the message says why."""


def ssh_access(context: Context, cell: Cell) -> SshAccess:
    """Return SSH access to the machine that the cell holds. Raises NoMachineError."""
    if cell.id in context.stores.ingests.of_run(cell.run_id):
        raise NoMachineError(f"cell {cell.name} was ingested: it has no machine that one can enter")
    attempts = context.stores.cells.attempts(cell.id)
    leases = context.stores.leases.of_attempt(attempts[-1].id) if attempts else []
    lease = next((one for one in reversed(leases) if one.state is LeaseState.ACTIVE), None)
    if lease is None:
        raise NoMachineError(
            f"cell {cell.name} holds no machine ({cell.state}); "
            "`seatrial run --hold-on-failure 30` keeps those of cells that do not pass"
        )
    if not isinstance(lease.endpoint, SshEndpoint):
        raise NoMachineError(
            f"the machine of cell {cell.name} is not reached over SSH, or not known to be yet"
        )
    return _entrance(context, lease, lease.endpoint)


def _entrance(context: Context, lease: Lease, endpoint: SshEndpoint) -> SshAccess:
    login = context.stores.leases.login(lease.id) if endpoint.lease else None
    if endpoint.lease and login is None:
        raise NoMachineError(f"the keys of {lease.machine_id} are gone: it is being given back")
    return extended(SshAccess, endpoint, private_key=login.private_key if login else "")
