"""PREPARING: the machine is ready and the one that was asked for; then everything goes to it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from orchestrator.application.cell.agent_plan import agent_plan
from orchestrator.application.cell.baseline import ship_baseline
from orchestrator.application.cell.environment import (
    EnvironmentRefusedError,
    prepare_environment,
)
from orchestrator.application.cell.flow_context import (
    GO,
    STOP,
    FlowDeps,
    enter,
    is_out_of_time,
    is_stopped,
    overdue,
    record_deadline,
    record_failure,
    workspace_of,
)
from orchestrator.application.cell.liveness import note_contact, note_no_contact, record_machine_end
from orchestrator.application.cell.reuse_decision import reuse_on_machine, reused_jobs
from orchestrator.application.cell.reuse_inputs import note_prepared
from orchestrator.application.ports.engine import NOT_YET, NotYet, Value
from orchestrator.application.ports.workspaces import Workspace
from orchestrator.domain.attestation import Attestation, devices_of, mismatch, unexpected
from orchestrator.domain.cell import CellState, Lease, LeaseFact
from orchestrator.domain.machine import (
    ConfigError,
    HostKeyError,
    LocalEndpoint,
    MachineError,
    ShellError,
    SshEndpoint,
)
from orchestrator.domain.matrix import device_kind
from orchestrator.domain.outcome import Outcome
from orchestrator.store.cells import AttemptState


def poll_preparation(world: FlowDeps, attempt_id: str) -> Value | NotYet:
    """Bring the machine to where the agent runs; a broken connection is tried again."""
    now = world.stores.cells.attempt_state(attempt_id)
    if now.cell.has_reached(CellState.RUNNING):
        return GO
    if is_stopped(world, now):
        return STOP
    late = is_out_of_time(world, now)
    try:
        workspace = workspace_of(world, now.lease)
        # Late, it is only asked whether it can be reached at all.
        answer = _late(world, now, workspace) if late else _prepare(world, now, workspace)
    except (NotReadyError, WrongHardwareError, EnvironmentRefusedError, MachineError) as error:
        return _trouble(world, now, error, late=late)
    note_contact(world, now)
    if answer == GO:
        enter(world, now, CellState.RUNNING)
    return answer


def _late(world: FlowDeps, now: AttemptState, workspace: Workspace) -> Value:
    workspace.put_agent()
    return record_deadline(world, now)


def _trouble(world: FlowDeps, now: AttemptState, error: Exception, *, late: bool) -> Value | NotYet:
    """A machine that cannot be spoken to may be gone; one that is there is given time."""
    reason = _reason(error)
    if reason in ("ssh", "host_key"):
        ended = record_machine_end(world, now, str(error), at_once=reason == "host_key")
        if ended is not None:
            return ended
    if reason == "ssh" and not (_is_given_up(world, now, str(error)) or late):
        return NOT_YET
    return record_failure(world, now.attempt.id, Outcome.ERRORED, reason, str(error))


def _is_given_up(world: FlowDeps, now: AttemptState, said: str) -> bool:
    """Whether it has been silent for too long; a rented machine may boot once more meanwhile."""
    silent_s = note_no_contact(world, now, said).total_seconds()
    rented = now.lease is not None and world.traits(now.lease.provider).rented
    lost = not rented and silent_s >= world.timings.contact_timeout_s
    return lost or overdue(world, now.cell, world.timings.prepare_s)


def _reason(error: Exception) -> str:
    match error:
        case NotReadyError():
            return error.reason
        case WrongHardwareError():
            return "wrong_hardware"
        case EnvironmentRefusedError():
            return "environment"
        case ConfigError():
            return "config"
        case HostKeyError():
            return "host_key"
        case ShellError():
            return "ssh"
    return "agent"


def _prepare(world: FlowDeps, now: AttemptState, workspace: Workspace) -> Value | NotYet:
    """Everything up to the agent's start; NOT_YET while the machine is busy with itself.

    STOP where nothing is left to run: earlier evidence stands for every job.
    """
    workspace.put_agent()
    if not await_machine(world, now, workspace):
        return NOT_YET
    digest = now.run.payload_digest
    workspace.put_archive("payloads", digest, lambda: world.blobs.open(digest))
    probe = workspace.probe(candidates_of(world, now))
    attest(world, now, probe)
    environment = prepare_environment(world, now, probe)
    if reuse_on_machine(world, now, note_prepared(world, now, probe, environment)):
        return STOP
    if environment.wheels_digest is not None:
        workspace.put_archive("wheels", environment.wheels_digest, environment.wheels)
    finished = _finished_jobs(world, now)
    plan = agent_plan(
        now,
        environment,
        finals=world.stores.results.final_tests(now.cell.id),
        finished=finished,
        notice=world.traits(now.plan.platform.provider).notice,
        baseline=ship_baseline(world, now, workspace, environment.interpreter, finished=finished),
    )
    workspace.start(now.attempt.id, plan, secrets_of(world, now))
    return GO


def candidates_of(world: FlowDeps, now: AttemptState) -> list[str]:
    """Interpreters to look for; on this computer, our own is the last resort."""
    here = now.lease is not None and isinstance(now.lease.endpoint, LocalEndpoint)
    return [*now.spec.manifest.python.candidates, *([world.own_python] if here else [])]


def _finished_jobs(world: FlowDeps, now: AttemptState) -> set[str]:
    facts = world.stores.results.jobs(now.cell.id)
    cut_short = ("stopped", "disk_full")
    ran = {j for j, f in facts.items() if f.finished_ts is not None and f.cause not in cut_short}
    return ran | reused_jobs(world, now.cell.id)


def secrets_of(world: FlowDeps, now: AttemptState) -> Mapping[str, str]:
    """What the jobs are promised, by name. Raises EnvironmentRefusedError."""
    jobs = [job for job in now.spec.manifest.job if job.id in now.plan.jobs]
    names = {name for job in jobs for name in job.secrets}
    found = {name: world.secret(name) for name in names}
    missing = sorted(name for name, value in found.items() if value is None)
    if missing:
        raise EnvironmentRefusedError(
            f"the controller has no {', '.join(missing)} to hand out, which the matrix promises "
            "to its jobs; set it where the controller is started and, where others can reach it, "
            "list it in SEATRIAL_JOB_SECRETS"
        )
    return {name: value for name, value in found.items() if value is not None}


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
    if now.lease is None or not isinstance(now.lease.endpoint, SshEndpoint):
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
    local = isinstance(lease.endpoint, LocalEndpoint)
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
