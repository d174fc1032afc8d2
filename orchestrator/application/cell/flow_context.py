"""Shared context of a cell's phases: stores, clock, back-off and time limits."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path

from orchestrator.application.ports.archives import UnpackBundle
from orchestrator.application.ports.blobs import Blobs
from orchestrator.application.ports.clock import Clock
from orchestrator.application.ports.engine import Value
from orchestrator.application.ports.result_parsers import ReadMetrics, SelfReport
from orchestrator.application.ports.wheels import Wheels
from orchestrator.application.ports.workspaces import OpenWorkspace, Workspace
from orchestrator.domain.budget import Budget
from orchestrator.domain.cell import (
    Attempt,
    Cause,
    Cell,
    CellState,
    Lease,
    LeaseFact,
    RunSpec,
)
from orchestrator.domain.machine import (
    ForeignMachineError,
    Login,
    Machine,
    MachineState,
    Provider,
    ProviderTraits,
)
from orchestrator.domain.outcome import Outcome, Reason
from orchestrator.domain.run_record import Evidence
from orchestrator.store.cells import AttemptState
from orchestrator.store.stores import Stores

BASE_S = 2.0
CAP_S = 60.0


class Locks:
    """Locks by name; unused names take no memory."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._locks: dict[str, tuple[threading.Lock, int]] = {}

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        """Wait for the lock, and hold it."""
        with self._guard:
            lock, waiting = self._locks.get(name, (threading.Lock(), 0))
            self._locks[name] = lock, waiting + 1
        try:
            with lock:
                yield
        finally:
            with self._guard:
                lock, waiting = self._locks[name]
                self._locks[name] = lock, waiting - 1
                if waiting == 1:
                    del self._locks[name]


@dataclass(slots=True)
class Backoff:
    """Exponential back-off with full jitter, by key; kept in memory only.

    The jitter is drawn from the key and the count, so that it can be repeated in a test.
    """

    _waits: dict[str, tuple[int, datetime]] = field(default_factory=dict)

    def is_due(self, key: str, now: datetime) -> bool:
        """Whether the next call is due."""
        return key not in self._waits or now >= self._waits[key][1]

    def trouble(self, key: str, now: datetime) -> float:
        """Record a failure; return the seconds to wait."""
        count = self._waits[key][0] + 1 if key in self._waits else 1
        ceiling = min(CAP_S, BASE_S * 2.0 ** (count - 1))
        seconds = max(0.5, ceiling * _fraction(f"{key}|{count}"))
        self._waits[key] = (count, now + timedelta(seconds=seconds))
        return seconds

    def forget(self, key: str) -> None:
        """Reset after a success."""
        self._waits.pop(key, None)


def _fraction(text: str) -> float:
    drawn: float = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) / (1 << 64)
    return drawn


ORDER_MINUTES = 10
"""Maximum minutes to wait for a machine at one place."""
RELEASE_MINUTES = 15
"""Minutes for the release of a machine, after the attempt's time limit."""

GO = "go"
"""The phase is done; the next one begins."""
STOP = "stop"
"""The attempt ends; its cause is stored."""


@dataclass(frozen=True, slots=True)
class Timings:
    """Time limits of the phases, in seconds."""

    place_s: float = 1800.0
    """Maximum wait until a machine is granted, over all places."""
    ordered_s: float = ORDER_MINUTES * 60.0
    """Maximum wait at one place without a refusal."""
    note_every_s: float = 5.0
    """Interval of notices that a machine is not granted yet."""
    exhausted_s: float = 600.0
    """Seconds for which a place's refusal is respected by all runs."""
    retry_after_s: Mapping[str, float] = field(
        default_factory=lambda: {"capacity": 120.0, "unavailable": 60.0}
    )
    """Wait before the next attempt, by cause of the last one."""
    visible_after_s: float = 60.0
    """Maximum delay until a provider lists a new machine."""
    boot_s: float = 900.0
    own_boot_s: float = 60.0
    """Maximum wait until an own host, which has booted already, answers."""
    ready_s: Mapping[str, float] = field(
        default_factory=lambda: {"cloud_init": 600.0, "apt": 600.0, "driver": 900.0}
    )
    """Maximum time of a reachable machine for each readiness check."""
    host_key_s: float = 180.0
    """Seconds for which another host key than the published one is tolerated."""
    host_key_settle_s: float = 10.0
    """Seconds of preparation within which a guest may make its own host key. Google's guest agent
    does so once cloud-init has configured the machine; the needed time was not measured.
    """
    prepare_s: float = 1800.0
    first_event_s: float = 90.0
    contact_timeout_s: float = 180.0
    """Maximum time without contact while running."""
    host_key_look_s: float = 5.0
    """Minimum interval of requests to the provider for a changed host key."""
    inspect_every_s: float = 30.0
    collect_s: float = 60.0
    close_s: float = 60.0
    """Maximum time for cleaning a machine; after it, the machine is released without cleaning."""
    never_made_after_s: float = 120.0
    """Seconds after an unanswered launch call within which its machine may still appear."""
    pull_limit_bytes: int = 4 * 1024 * 1024


@dataclass(slots=True)
class ContactLog:
    """Contacts, messages and states by attempt; kept in memory only."""

    silent_since: dict[str, datetime] = field(default_factory=dict)
    inspected_at: dict[str, datetime] = field(default_factory=dict)
    messages: dict[str, str] = field(default_factory=dict)
    """The last reported message by cell or attempt."""
    left: dict[str, tuple[datetime, AttemptState | None]] = field(default_factory=dict)
    """By attempt: the time at which its state was last read, and the state for the next poll (None:
    read the state again).
    """
    approved_shipments: set[str] = field(default_factory=set)
    """Attempts whose shipment was checked and does not prevent renting a machine."""

    def remember(self, key: str, message: str) -> bool:
        """Store the message; return whether it differs from the last one and must be reported."""
        last, self.messages[key] = self.messages.get(key), message
        return last != message


@dataclass(frozen=True, slots=True)
class Identity:
    """Owner of the machines: project and controller."""

    project: str
    controller: str


@dataclass(frozen=True, slots=True)
class FlowDeps:
    """The dependencies of the flow's phases."""

    stores: Stores
    blobs: Blobs
    clock: Clock
    provider: Callable[[str], Provider]
    open_workspace: OpenWorkspace
    wheels: Wheels
    secret: Callable[[str], str | None]
    unpack: UnpackBundle
    self_report: Callable[[Iterable[bytes]], SelfReport]
    """Returns the failures and fallbacks that a job's output reports."""
    read_metrics: ReadMetrics
    publish: Callable[[Evidence], Path]
    identity: Identity
    own_python: str
    """The interpreter that runs the controller."""
    traits: Callable[[str], ProviderTraits]
    """Returns the traits of a provider by its name. Raises ConfigError."""
    new_login: Callable[[], Login]
    """Returns new keys for a machine."""
    budgets: tuple[Budget, ...] = ()
    """Budgets across runs; the budget of a single run is in its matrix."""
    timings: Timings = field(default_factory=Timings)
    contact_log: ContactLog = field(default_factory=ContactLog)
    backoff: Backoff = field(default_factory=Backoff)
    locks: Locks = field(default_factory=Locks)
    """Locks by run, so that one thread at a time ends a run; shared with the context of REST and
    pages.
    """


_FRESH = timedelta(seconds=1)
"""Maximum age of a stored state that a poll may use instead of reading the state again."""


def state_of(deps: FlowDeps, attempt_id: str) -> AttemptState:
    """Return the attempt's state: as the last poll left it if that is fresh, else as stored."""
    at = deps.clock.now()
    read_at, state = deps.contact_log.left.get(attempt_id, (at, None))
    if state is None or not timedelta(0) <= at - read_at <= _FRESH:
        read_at, state = at, deps.stores.cells.attempt_state(attempt_id)
    deps.contact_log.left[attempt_id] = read_at, None
    return state


def leave(deps: FlowDeps, now: AttemptState) -> None:
    """Keep this state for the next poll; it has everything that this poll has stored.

    The state is not kept if the lease records a missing contact, because that may be outdated.
    """
    read_at, _ = deps.contact_log.left.get(now.attempt.id, (None, None))
    if now.position.goes_on:
        read_at = deps.clock.now()
        now = replace(now, position=replace(now.position, goes_on=False))
    if read_at is not None and not (now.lease and now.lease.unheard):
        deps.contact_log.left[now.attempt.id] = read_at, now


def workspace_of(deps: FlowDeps, lease: Lease | None) -> Workspace:
    """Return the workspace on a lease's machine. Raises LookupError before the first contact."""
    if lease is None or lease.endpoint is None:
        raise LookupError("the attempt has no machine that was reached")
    return deps.open_workspace(lease.endpoint)


def record_failure(
    deps: FlowDeps, attempt_id: str, outcome: Outcome, reason: str, detail: str
) -> Value:
    """Record the cause (the first one stays) and return STOP."""
    deps.stores.cells.record_cause(attempt_id, Cause(outcome, str(reason), detail))
    return STOP


def record_stop(deps: FlowDeps, now: AttemptState) -> bool:
    """Record a cancel or a passed deadline as the cause; return whether the attempt must stop."""
    if record_cancel(deps, now):
        return True
    if is_out_of_time(deps, now):
        record_deadline(deps, now)
        return True
    return False


def record_cancel(deps: FlowDeps, now: AttemptState) -> bool:
    """Record a requested cancel as the cause; return whether the attempt must stop.

    Also true if a cause is already stored: the engine may have failed to record the step.
    """
    if now.attempt.cause is not None:
        return True
    if now.run.cancel_requested_at is not None:
        record_failure(
            deps, now.attempt.id, Outcome.CANCELLED, Reason.CANCELLED, "its run was cancelled"
        )
        return True
    return False


def is_out_of_time(deps: FlowDeps, now: AttemptState) -> bool:
    """Whether the attempt's deadline has passed."""
    deadline = attempt_deadline(now)
    return deadline is not None and deps.clock.now() >= deadline


def record_deadline(deps: FlowDeps, now: AttemptState, detail: str = "") -> Value:
    """Stop the attempt at its time limit: timed out if jobs ran, errored before that."""
    minutes = now.spec.matrix.limits.max_minutes
    detail = detail or f"limits.max_minutes ({minutes:g}) is over"
    if now.cell.has_reached(CellState.RUNNING):
        return record_failure(deps, now.attempt.id, Outcome.TIMED_OUT, Reason.DEADLINE, detail)
    detail = f"{detail}, and the machine was still {now.cell.state}: no job had begun"
    return record_failure(deps, now.attempt.id, Outcome.ERRORED, Reason.DEADLINE, detail)


def attempt_deadline(now: AttemptState) -> datetime | None:
    """Return when the attempt must stop, counted from the machine's grant; None before that."""
    if now.lease is None or now.lease.granted_at is None:
        return None
    return now.lease.granted_at + timedelta(minutes=now.spec.matrix.limits.max_minutes)


def billed_minutes(spec: RunSpec) -> float:
    """Return the maximum billed minutes of a machine of the run, for which cost is reserved."""
    return billed_minutes_of(spec.matrix.limits.max_minutes, spec.hold_minutes)


def billed_minutes_of(max_minutes: float, hold_minutes: float) -> float:
    """Return the maximum billed minutes for these limits of attempt and hold."""
    return max_minutes + hold_minutes + ORDER_MINUTES + RELEASE_MINUTES


def minutes_in_words(spec: RunSpec) -> str:
    """Return the maximum billed minutes with their parts.

    ``55 minutes (max_minutes 30, 10 to launch, 15 to terminate)``.
    """
    parts = [f"max_minutes {spec.matrix.limits.max_minutes:g}", f"{ORDER_MINUTES} to launch"]
    parts.append(f"{RELEASE_MINUTES} to terminate")
    if spec.hold_minutes:
        parts.append(f"{spec.hold_minutes:g} to hold it")
    return f"{billed_minutes(spec):g} minutes ({', '.join(parts)})"


def record_machine_ended_at(
    stores: Stores, lease: Lease, machine: Machine, *, since: datetime | None, at: datetime
) -> Lease:
    """Store when the machine ended, so that it is billed only until then; return the lease.

    Args:
        stores: The stores of the lease.
        lease: The lease of the machine.
        machine: The provider's description of it.
        since: A time at which the machine existed, for clouds whose clock differs from ours.
        at: When the provider was asked.
    """
    if machine.ended_at is None:
        return lease
    ended = min(max(machine.ended_at, since or machine.ended_at), at)
    known = lease.billed_until
    if known is not None and ended >= known:
        return lease
    facts: dict[str, str] = {LeaseFact.ENDED_AT: ended.isoformat()}
    return stores.leases.note(lease.id, facts, simulated=machine.simulated)


def require_machine_of(lease: Lease, machine: Machine, project: str) -> None:
    """Raise ForeignMachineError if the machine is not the one that was launched for the lease.

    A lease in a manipulated backup may name any machine of the account. A machine that is only
    requested may have no tags yet, and is accepted without a token.
    """
    if machine.state is MachineState.TERMINATED:
        return
    is_unknown = not machine.token and machine.state is MachineState.REQUESTED
    owner = machine.tags.get("seatrial-project", project)
    if (machine.token == lease.id or is_unknown) and owner == project:
        return
    found = (
        f"the token {machine.token!r} and the project {owner!r}" if machine.token else "no token"
    )
    raise ForeignMachineError(
        f"{machine.kind} {machine.id} is not ended: it has {found}, and the lease {lease.id} of the"
        f" project {project!r} names it: end it at the provider if it is yours; the lease is closed"
        " when it is gone"
    )


def expires_at(spec: RunSpec, lease: Lease) -> datetime:
    """Return when the machine must terminate itself without a controller.

    The time counts from the first launch call, so that a repeated call sends the same time.
    """
    begin = lease.launched_at or lease.reserved_at
    return (begin + timedelta(minutes=billed_minutes(spec))).replace(microsecond=0)


def tags_of(deps: FlowDeps, now: AttemptState, lease: Lease, ends: datetime) -> dict[str, str]:
    """Return the tags of a machine, its disks and its addresses."""
    return {
        "seatrial-project": deps.identity.project,
        "seatrial-controller": deps.identity.controller,
        "seatrial-run": now.run.id,
        "seatrial-cell": now.cell.id,
        "seatrial-attempt": now.attempt.id,
        "seatrial-token": lease.id,
        "seatrial-expires-at": str(int(ends.timestamp())),
    }


def overdue(deps: FlowDeps, cell: Cell, patience_s: float) -> bool:
    """Whether the cell has been in its state for longer than the limit."""
    entered = cell.entered_at
    return entered is not None and deps.clock.now() - entered >= timedelta(seconds=patience_s)


def is_unreachable(attempt: Attempt) -> bool:
    """Whether the attempt's machine is gone or denies access; then only one more try is made."""
    hopeless = (Reason.LOST, Reason.PREEMPTED, Reason.HOST_KEY, Reason.AUTH, Reason.SSH)
    return attempt.cause is not None and attempt.cause.reason in hopeless


def enter(deps: FlowDeps, now: AttemptState, state: CellState, reason: str = "") -> AttemptState:
    """Move the cell to a state; do nothing if the cell is in the state or past it."""
    if now.cell.has_reached(state):
        return now
    cells = deps.stores.cells
    cell = cells.enter(now.cell.id, state, at=deps.clock.now(), reason=reason)
    _, left = deps.contact_log.left.get(now.attempt.id, (None, None))
    if left is not None:
        leave(deps, replace(left, cell=cell))
    return replace(now, cell=cell)
