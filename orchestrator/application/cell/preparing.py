"""PREPARING: waits for the machine, checks its devices, ships everything, starts the agent."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from orchestrator.application.cell.baseline import BENCHMARK, ship_baseline
from orchestrator.application.cell.environment import (
    EnvironmentRefusedError,
    PreparedEnvironment,
    prepare_environment,
)
from orchestrator.application.cell.flow_context import (
    GO,
    STOP,
    FlowDeps,
    enter,
    is_out_of_time,
    overdue,
    record_cancel,
    record_deadline,
    record_failure,
    state_of,
    workspace_of,
)
from orchestrator.application.cell.launching import await_new_host_key, pin_published_key
from orchestrator.application.cell.reuse_decision import (
    note_prepared,
    reuse_on_machine,
    reused_jobs,
)
from orchestrator.application.cell.running import (
    inspected,
    note_contact,
    note_no_contact,
    record_machine_end,
)
from orchestrator.application.ports.engine import NOT_YET, NotYet, Value
from orchestrator.application.ports.workspaces import Workspace
from orchestrator.domain.attestation import Attestation, devices_of, mismatch, unexpected
from orchestrator.domain.cell import CellState, Lease, LeaseFact
from orchestrator.domain.machine import (
    ConfigError,
    HostKeyError,
    LocalEndpoint,
    MachineError,
    ProviderTraits,
    ShellError,
    SshEndpoint,
)
from orchestrator.domain.manifest import OUTPUT, Job
from orchestrator.domain.matrix import Subject, device_kind, idle_timeouts_of, system_of
from orchestrator.domain.outcome import Outcome, Reason
from orchestrator.store.cells import AttemptState
from orchestrator.store.stores import Stores

DEFAULT_S = 180.0
_MARGIN = 2.0
"""Factor over the longest earlier duration."""


Source = Literal["matrix", "payload", "durations", "default"]


@dataclass(frozen=True, slots=True)
class IdleTimeout:
    """Seconds without output and events after which a job has hung."""

    seconds: float = DEFAULT_S
    tests: Mapping[str, float] = field(default_factory=dict)
    """Longer timeouts of single tests, by node id; always derived from earlier durations."""
    source: Source = "default"
    """Source of `seconds`: configured, derived from durations of earlier runs, or the default."""


def idle_timeouts(stores: Stores, now: AttemptState) -> Mapping[str, IdleTimeout]:
    """Return the timeout of each job; a configured timeout is that of every test of the job."""
    jobs = {job.id: job for job in now.spec.manifest.job if job.id in now.plan.jobs}
    found = {
        name: stated for name, job in jobs.items() if (stated := _stated(now, job)) is not None
    }
    others = [name for name in jobs if name not in found]
    silences, tests = stores.durations.longest(now.spec.manifest.name, others)
    for name in others:
        silence_s = _MARGIN * silences.get(name, 0.0)
        seconds = max(DEFAULT_S, silence_s)
        source: Source = "durations" if silence_s > DEFAULT_S else "default"
        known = {test: _MARGIN * took for test, took in tests.get(name, {}).items()}
        longer = {test: allowed for test, allowed in known.items() if allowed > seconds}
        found[name] = IdleTimeout(seconds, longer, source)
    return found


def _stated(now: AttemptState, job: Job) -> IdleTimeout | None:
    by_matrix = idle_timeouts_of(job.id, now.plan.platform.id, now.spec.matrix)
    if by_matrix:
        return IdleTimeout(max(by_matrix) * 60, source="matrix")
    if job.idle_timeout_minutes is None:
        return None
    return IdleTimeout(job.idle_timeout_minutes * 60, source="payload")


PLAN_VERSION = 1
LOG_LIMIT_BYTES = 64 * 1024 * 1024
TEXT_LIMIT_BYTES = 64 * 1024
READINESS_S = 180
RESTARTS = 5
"""Fresh processes per job after a crash or a hang."""


def agent_plan(
    now: AttemptState,
    environment: PreparedEnvironment,
    *,
    finals: Mapping[str, Sequence[str]],
    finished: Collection[str],
    idle: Mapping[str, IdleTimeout],
    traits: ProviderTraits,
    baseline: Mapping[str, object] | None = None,
) -> dict[str, object]:
    """Build the agent's plan of an attempt.

    Args:
        now: The attempt.
        environment: The environment of the jobs.
        finals: By job, the tests that an earlier attempt finished; these are not run again.
        finished: The jobs that an earlier attempt finished.
        idle: By job, its idle timeout.
        traits: Traits of the machine's provider.
        baseline: The baseline arm of paired benchmarks; None without one.
    """
    manifest, subject = now.spec.manifest, now.spec.matrix.subject
    return {
        "v": PLAN_VERSION,
        "attempt": now.attempt.id,
        "payload": now.run.payload_digest,
        "wheels": environment.wheels_digest,
        "python": environment.python,
        "environment": _environment(now, environment),
        "subject": dict(environment.subject) if environment.subject else None,
        "product": _product(subject),
        "payload_user": now.plan.platform.provider != "local",
        "readiness": _readiness(now),
        "preemption": traits.notice or None,
        "metadata_guard": traits.metadata_guard,
        "untrusted": manifest.is_untrusted,
        "baseline": baseline,
        "limits": {
            "log_bytes": LOG_LIMIT_BYTES,
            "text_bytes": TEXT_LIMIT_BYTES,
            "restarts": RESTARTS,
            "deadline_s": now.spec.matrix.limits.max_minutes * 60,
            "kill_grace_s": 5,
            "heartbeat_s": 5,
        },
        "jobs": [
            _job(job, finals.get(job.id, ()), idle[job.id]) | _turns(now, job, baseline)
            for job in manifest.job
            if job.id in now.plan.jobs and job.id not in finished
        ],
    }


def _product(subject: Subject) -> dict[str, str] | None:
    """Return the subject's name and version that installed metadata is compared with.

    None for a baseline without a version.
    """
    return {"name": subject.name, "version": subject.version} if subject.version else None


def _environment(now: AttemptState, environment: PreparedEnvironment) -> dict[str, object]:
    asked = now.spec.manifest.environment(now.plan.environment)
    return {
        "name": now.plan.environment,
        "requirements": list(environment.requirements),
        "constraints": list(environment.constraints),
        "index": bool(asked and asked.index),
        "variables": dict(asked.variables) if asked else {},
    }


def _readiness(now: AttemptState) -> dict[str, object] | None:
    """Return the torch check before the first job; None on the controller's own computer."""
    platform, lease = now.plan.platform, now.lease
    if lease is None or isinstance(lease.endpoint, LocalEndpoint):
        return None
    return {
        "device": device_kind(platform),
        "enforce": not lease.simulated,
        "timeout_s": READINESS_S,
    }


def _turns(now: AttemptState, job: Job, baseline: Mapping[str, object] | None) -> dict[str, object]:
    """Return the paired settings of a benchmark with a baseline; empty for other jobs."""
    asked = now.spec.matrix.baseline
    if asked is None or baseline is None or job.kind != BENCHMARK:
        return {}
    pairing = {
        "min_pairs": asked.min_pairs,
        "max_pairs": asked.max_pairs,
        "precision": asked.half_width,
    }
    return {"paired": pairing, "turns": job.turns}


def _job(job: Job, finals: Sequence[str], idle: IdleTimeout) -> dict[str, object]:
    return {
        "id": job.id,
        "kind": job.kind,
        "pytest": list(job.pytest) or None,
        "command": list(job.command) or None,
        "timeout_s": job.timeout_minutes * 60,
        "silence_s": idle.seconds,
        "silence_source": idle.source,
        "test_silence_s": dict(idle.tests),
        "env": dict(job.env),
        "path_variables": ["PYTHONPATH"],
        "gpus": job.gpus_needed,
        "secrets": list(job.secrets),
        "skip": list(finals),
        "metrics": [name for name in job.metrics if name != OUTPUT],
    }


def poll_preparation(deps: FlowDeps, attempt_id: str) -> Value | NotYet:
    """Prepare the machine until the agent runs; broken connections are retried."""
    now = state_of(deps, attempt_id)
    if now.cell.has_reached(CellState.RUNNING):
        return GO
    if record_cancel(deps, now):
        return STOP
    late = is_out_of_time(deps, now)
    try:
        workspace = workspace_of(deps, now.lease)
        # After the time limit, only check whether the machine can be reached.
        answer = _late(deps, now, workspace) if late else _prepare(deps, now, workspace)
    except (NotReadyError, WrongHardwareError, EnvironmentRefusedError, MachineError) as error:
        return _trouble(deps, now, error, late=late)
    note_contact(deps, now)
    if answer == GO:
        enter(deps, now, CellState.RUNNING)
    return answer


def _late(deps: FlowDeps, now: AttemptState, workspace: Workspace) -> Value:
    workspace.put_agent()
    return record_deadline(deps, now)


def _trouble(deps: FlowDeps, now: AttemptState, error: Exception, *, late: bool) -> Value | NotYet:
    """Handle an unreachable machine: check whether it is gone, else wait."""
    reason, said = _reason(error), str(error)
    if reason in (Reason.SSH, Reason.HOST_KEY):
        every_s = deps.timings.host_key_look_s if reason == Reason.HOST_KEY else None
        machine = inspected(deps, now, every_s=every_s)
        ended = record_machine_end(deps, now, machine, said)
        if ended is not None:
            return ended
        awaited = reason == Reason.HOST_KEY and not late
        if awaited and await_new_host_key(deps, now, machine, error):
            return NOT_YET
    if reason == Reason.SSH and not (_note_failed_contact(deps, now, error) or late):
        return NOT_YET
    return record_failure(deps, now.attempt.id, Outcome.ERRORED, reason, said)


def _note_failed_contact(deps: FlowDeps, now: AttemptState, error: Exception) -> bool:
    """Store the failed contact; return whether the machine has been unreachable for too long.

    A rented machine may reboot once.
    """
    silent_s = note_no_contact(deps, now, error).total_seconds()
    rented = now.lease is not None and deps.traits(now.lease.provider).rented
    lost = not rented and silent_s >= deps.timings.contact_timeout_s
    return lost or overdue(deps, now.cell, deps.timings.prepare_s)


def _reason(error: Exception) -> str:
    match error:
        case NotReadyError():
            return error.reason
        case WrongHardwareError():
            return Reason.WRONG_HARDWARE
        case EnvironmentRefusedError():
            return Reason.ENVIRONMENT
        case ConfigError():
            return Reason.CONFIG
        case HostKeyError():
            return Reason.HOST_KEY
        case ShellError():
            return Reason.SSH
    return "agent"


def _prepare(deps: FlowDeps, now: AttemptState, workspace: Workspace) -> Value | NotYet:
    """Prepare everything up to the agent's start; NOT_YET while the machine is not ready.

    STOP if nothing is left to run, because every job reuses earlier evidence.
    """
    if not await_machine(deps, now, workspace):
        return NOT_YET
    digest = now.run.payload_digest
    workspace.put_archive("payloads", digest, lambda: deps.blobs.open(digest))
    if not _pin_final_host_key(deps, now):
        return NOT_YET
    probe = workspace.probe(interpreters_to_probe(deps, now))
    attest(deps, now, probe)
    environment = prepare_environment(deps, now, probe)
    if reuse_on_machine(deps, now, note_prepared(deps, now, probe, environment)):
        return STOP
    if environment.wheels_digest is not None:
        workspace.put_archive("wheels", environment.wheels_digest, environment.wheels)
    is_first = now.attempt.number == 1  # the cell has run nothing before
    finished = reused_jobs(deps, now) | (set() if is_first else _finished_jobs(deps, now))
    plan = agent_plan(
        now,
        environment,
        finals={} if is_first else deps.stores.results.final_tests(now.cell.id),
        finished=finished,
        idle=idle_timeouts(deps.stores, now),
        traits=deps.traits(now.plan.platform.provider),
        baseline=ship_baseline(deps, now, workspace, environment.interpreter, finished=finished),
    )
    workspace.start(now.attempt.id, plan, secrets_of(deps, now))
    return GO


def _pin_final_host_key(deps: FlowDeps, now: AttemptState) -> bool:
    """Pin the last host key that the guest makes; return False while it may still make one.

    No later key is accepted. A guest that answers with the injected key makes no other key. An open
    connection does not show a new key, so the provider is asked for it.
    """
    lease = now.lease
    if lease is None or not isinstance(lease.endpoint, SshEndpoint):
        return True
    login = deps.stores.leases.login(lease.id)
    if login is None or lease.endpoint.host_key == login.host_public_key:
        return True
    if not overdue(deps, now.cell, deps.timings.host_key_settle_s):
        return False
    machine = inspected(deps, now, every_s=deps.timings.host_key_look_s)
    if machine is None:
        return False
    pin_published_key(deps, now, machine)
    return True


def interpreters_to_probe(deps: FlowDeps, now: AttemptState) -> list[str]:
    """Return interpreters to probe.

    On the controller's computer, the controller's own interpreter comes last, unless the
    environment names others.
    """
    manifest, name = now.spec.manifest, now.plan.environment
    environment = manifest.environment(name)
    is_named = environment is not None and bool(environment.python)
    here = now.lease is not None and isinstance(now.lease.endpoint, LocalEndpoint)
    own = [deps.own_python] if here and not is_named else []
    return [*manifest.candidates(name), *own]


def _finished_jobs(deps: FlowDeps, now: AttemptState) -> set[str]:
    facts = deps.stores.results.jobs(now.cell.id)
    cut_short = ("stopped", "disk_full")
    return {j for j, f in facts.items() if f.finished_ts is not None and f.cause not in cut_short}


def secrets_of(deps: FlowDeps, now: AttemptState) -> Mapping[str, str]:
    """Return the jobs' secrets by name. Raises EnvironmentRefusedError."""
    jobs = [job for job in now.spec.manifest.job if job.id in now.plan.jobs]
    names = {name for job in jobs for name in job.secrets}
    found = {name: deps.secret(name) for name in names}
    missing = sorted(name for name, value in found.items() if value is None)
    if missing:
        raise EnvironmentRefusedError(
            f"the controller has no {', '.join(missing)} to hand out, which the matrix promises "
            "to its jobs; set it where the controller is started and, where others can reach it, "
            "list it in SEATRIAL_JOB_SECRETS"
        )
    return {name: value for name, value in found.items() if value is not None}


_REASONS = {
    "cloud_init": Reason.CLOUD_INIT,
    "apt": Reason.PACKAGES,
    "driver": Reason.DRIVER,
}


class NotReadyError(Exception):
    """The machine was not ready in time; `reason` becomes the attempt's reason."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class WrongHardwareError(Exception):
    """The device differs from the requested one."""


def await_machine(deps: FlowDeps, now: AttemptState, workspace: Workspace) -> bool:
    """Return whether the machine is ready; each check has its own time limit.

    A simulated machine without a driver is used after the time limit.

    Raises NotReadyError.
    """
    if now.lease is None or not isinstance(now.lease.endpoint, SshEndpoint):
        return True
    counted = _counted(deps, now, now.lease)
    if not counted:
        return True
    dispensable = {"driver"} if now.lease.simulated else set[str]()
    waiting: list[str] = []
    for check, state, detail in _checks(workspace.ready()):
        if check not in counted or state not in ("failed", "waiting"):
            continue
        patience = deps.timings.ready_s[check]
        if state == "waiting" and not overdue(deps, now.cell, patience):
            waiting.append(f"{check} ({detail})" if detail else check)
        elif check not in dispensable:
            late = f" is not done after {patience:g} s" if state == "waiting" else ""
            raise NotReadyError(_REASONS[check], f"{check}{late}: {detail}")
    _tell_awaited(deps, now, now.lease, ", ".join(waiting))
    return not waiting


def _tell_awaited(deps: FlowDeps, now: AttemptState, lease: Lease, awaited: str) -> None:
    """Add a notice for each readiness check that is awaited, once."""
    if lease.awaited == awaited:
        return
    facts: dict[str, str] = {LeaseFact.AWAITED: awaited}
    deps.stores.leases.note(lease.id, facts, simulated=lease.simulated)
    if awaited:
        said = {"cell": now.cell.name, "notice": f"waiting for {awaited}", "shown": "detail"}
        deps.stores.run_events.add(now.run.id, "cell", said)


def _counted(deps: FlowDeps, now: AttemptState, lease: Lease) -> set[str]:
    """Return the readiness checks that apply.

    First boot if the machine had one, driver if the platform requires a device.
    """
    first_boot = {"cloud_init", "apt"} if deps.traits(lease.provider).rented else set()
    return first_boot | ({"driver"} if device_kind(now.plan.platform) is not None else set())


def _checks(document: Mapping[str, object]) -> Iterator[tuple[str, str, str]]:
    checks = document.get("checks")
    if not isinstance(checks, Sequence) or isinstance(checks, str):
        return
    for one in checks:
        if isinstance(one, Mapping) and one.get("check") in _REASONS:
            yield str(one["check"]), str(one.get("state")), str(one.get("detail", ""))


def attest(deps: FlowDeps, now: AttemptState, probed: Mapping[str, object]) -> None:
    """Store the machine's attestation. Raises WrongHardwareError if it is not as requested."""
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
        system=system_of(probed),
        simulated=simulated,
    )
    ours = (
        LeaseFact.GRANTED_AT,
        LeaseFact.ORDERED_AT,
        LeaseFact.ASKED_AT,
        LeaseFact.SEEN_AT,
        LeaseFact.UNHEARD,
        LeaseFact.AWAITED,
    )
    facts = {k: v for k, v in lease.facts.items() if k not in ours}
    row = Attestation(facts, devices, "", lease.simulated, wrong)
    deps.stores.leases.attest(lease.id, row)
    if wrong:
        raise WrongHardwareError(f"{wrong}, on {lease.machine_id} at {lease.place}")
