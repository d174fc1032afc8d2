"""Whether a machine that can be reached may be used: done with itself, and the one asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from orchestrator.application.cell.flow_context import AttemptState, FlowDeps, overdue
from orchestrator.application.ports.workspaces import Workspace
from orchestrator.domain.attestation import Attestation, devices_of, mismatch, unexpected
from orchestrator.domain.cell import Lease, LeaseFact
from orchestrator.domain.machine import LocalReach, SshReach
from orchestrator.domain.matrix import device_kind

_REASONS = {"cloud_init": "cloud_init", "apt": "packages", "driver": "driver"}


class NotReadyError(Exception):
    """The machine did not come to rest in time; `reason` is the attempt's."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class WrongHardwareError(Exception):
    """Another device was found than the matrix asks for."""


def await_machine(world: FlowDeps, now: AttemptState, workspace: Workspace) -> bool:
    """Whether the machine is done with its own affairs; each has its own time.

    Raises NotReadyError.
    """
    if now.lease is None or not isinstance(now.lease.reach, SshReach):
        return True
    counted = _counted(world, now, now.lease)
    waiting = False
    for check, state, detail in _checks(workspace.ready()):
        if check not in counted:
            continue
        if state == "failed":
            raise NotReadyError(_REASONS[check], f"{check}: {detail}")
        if state == "waiting":
            patience = world.timings.ready_s[check]
            if overdue(world, now.cell, patience):
                message = f"{check} is not done after {patience:g} s: {detail}"
                raise NotReadyError(_REASONS[check], message)
            waiting = True
    return not waiting


def _counted(world: FlowDeps, now: AttemptState, lease: Lease) -> set[str]:
    """What is waited for: a first boot where there was one, a driver where a device is promised.

    What a simulated machine says of its devices is not waited for.
    """
    first_boot = {"cloud_init", "apt"} if world.traits(lease.provider).rented else set()
    promised = device_kind(now.plan.platform) is not None and not lease.simulated
    return first_boot | ({"driver"} if promised else set())


def _checks(said: Mapping[str, object]) -> Iterator[tuple[str, str, str]]:
    checks = said.get("checks")
    if not isinstance(checks, Sequence) or isinstance(checks, str):
        return
    for one in checks:
        if isinstance(one, Mapping) and one.get("check") in _REASONS:
            yield str(one["check"]), str(one.get("state")), str(one.get("detail", ""))


def attest(world: FlowDeps, now: AttemptState, probed: Mapping[str, object]) -> None:
    """Keep who will produce the results. Raises WrongHardwareError when it is somebody else."""
    lease = now.lease
    if lease is None:
        return
    devices = devices_of(probed)
    local = isinstance(lease.reach, LocalReach)
    platform, simulated = now.plan.platform, lease.simulated
    wrong = "" if local else mismatch(platform.accelerator, devices, simulated=simulated)
    wrong = wrong or unexpected(
        platform.expect,
        provider=lease.provider,
        instance=lease.facts.get("instance_type", ""),
        devices=devices,
        simulated=simulated,
    )
    ours = (
        LeaseFact.GRANTED_AT,
        LeaseFact.ORDERED_AT,
        LeaseFact.ASKED_AT,
        LeaseFact.SEEN_AT,
        LeaseFact.UNHEARD,
    )
    facts = {k: v for k, v in lease.facts.items() if k not in ours}
    row = Attestation(facts, devices, "", lease.simulated, wrong)
    world.stores.leases.attest(lease.id, row)
    if wrong:
        raise WrongHardwareError(f"{wrong}, on {lease.machine_id} at {lease.place}")
