"""LAUNCHING and BOOTING.

Requests exactly one machine, and waits until it is refused, or granted and booted.

The lease's id is the token of the launch call. A call without an answer is repeated with the same
token. A refusal after an unanswered call counts only if the provider's inventory has no machine
with the token.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal

from orchestrator.application.cell.flow_context import (
    GO,
    STOP,
    FlowDeps,
    enter,
    expires_at,
    is_out_of_time,
    leave,
    overdue,
    record_cancel,
    record_failure,
    record_machine_ended_at,
    require_machine_of,
    state_of,
    tags_of,
)
from orchestrator.application.cell.lease_machine import (
    activate,
    is_gone,
    is_young,
    note_still_ordered,
    resolve_unanswered_launch,
)
from orchestrator.application.cell.place_selection import RankedPlace, refusal_facts
from orchestrator.application.cell.running import (
    note_contact,
    note_no_contact,
    note_provider_trouble,
)
from orchestrator.application.ports.engine import NOT_YET, NotYet, Value
from orchestrator.domain.cell import (
    CellState,
    Lease,
    LeaseFact,
    LeaseState,
    PlacementDecision,
    PlacementResult,
)
from orchestrator.domain.machine import (
    AuthenticationError,
    CapacityError,
    ClosedPortError,
    ConfigError,
    ConsoleLog,
    CredentialsError,
    Endpoint,
    Extent,
    HostKeyError,
    LaunchRequest,
    Machine,
    MachineError,
    MachineState,
    NotOfferedError,
    Offers,
    Place,
    Provider,
    ProviderError,
    ProviderUnavailableError,
    QuotaError,
    ShellError,
    SshAddress,
    SshEndpoint,
)
from orchestrator.domain.money import machine_cost
from orchestrator.domain.outcome import Outcome, Reason
from orchestrator.domain.units import elapsed
from orchestrator.store.cells import AttemptState

logger = logging.getLogger(__name__)

REASONS: dict[type[ProviderError], str] = {
    CapacityError: Reason.CAPACITY,
    QuotaError: Reason.QUOTA,
    NotOfferedError: Reason.NOT_OFFERED,
    CredentialsError: Reason.AUTH,
    ConfigError: Reason.CONFIG,
    ProviderUnavailableError: Reason.UNAVAILABLE,
}
"""Reason by error class, most transient first."""
_NOT_GRANTED = "not_granted"
_NEVER_RAN = (Reason.CAPACITY, Reason.QUOTA)
_WHOLE = (Extent.PLACE, Extent.PROJECT)
"""Extents of an invalid request, or of invalid credentials, that end the search for a place."""


def launch(deps: FlowDeps, now: AttemptState, lease: Lease, provider: Provider) -> Value | NotYet:
    """Call the provider's launch, or repeat the call with the same token."""
    leases, at = deps.stores.leases, deps.clock.now()
    if not deps.backoff.is_due(lease.id, at):
        return NOT_YET
    asked_before = lease.state is LeaseState.LAUNCHING
    lease = leases.launching(lease.id, at=at)
    try:
        machine = provider.launch(_request(deps, now, lease))
    except ProviderUnavailableError as error:
        return _ask_again(deps, now, lease, error)
    except ProviderError as error:
        return _refused(deps, now, lease, error, requested_before=asked_before)
    deps.backoff.forget(lease.id)
    is_granted = machine.state is not MachineState.REQUESTED
    lease = activate(deps, lease, machine, is_granted=is_granted)
    return _chosen(deps, now, lease) if is_granted else NOT_YET


def confirm(deps: FlowDeps, now: AttemptState, lease: Lease, provider: Provider) -> Value | NotYet:
    """Check whether the requested machine is granted; a late refusal leads to the next place."""
    at = deps.clock.now()
    if not deps.backoff.is_due(lease.id, at):
        return NOT_YET
    try:
        machine = provider.inspect(lease.machine_id)
    except ProviderError as error:
        if overdue(deps, now.cell, deps.timings.place_s):
            return record_failure(deps, now.attempt.id, Outcome.ERRORED, _word(error), str(error))
        deps.backoff.trouble(lease.id, deps.clock.now())
        return NOT_YET
    deps.backoff.forget(lease.id)
    if machine.state is not MachineState.TERMINATED and machine.token and not lease.is_seen:
        deps.stores.leases.note(
            lease.id, {LeaseFact.SEEN_AT: at.isoformat()}, simulated=machine.simulated
        )
    return _confirmed(deps, now, lease, machine, at=at)


def _confirmed(
    deps: FlowDeps, now: AttemptState, lease: Lease, machine: Machine, *, at: datetime
) -> Value | NotYet:
    if machine.state in (MachineState.TERMINATED, MachineState.STOPPING):
        if not machine.ended and is_young(deps, lease, at=at):
            return NOT_YET
        said = machine.detail or f"the provider says that it is {machine.state}"
        return _withdraw(deps, now, lease, machine.ended or Reason.BOOT, said, machine.extent)
    if machine.state is not MachineState.REQUESTED:
        return _granted(deps, now, lease, machine)
    note_still_ordered(deps, lease, machine, at=at)
    if at - (lease.launched_at or lease.reserved_at) < timedelta(seconds=deps.timings.ordered_s):
        return NOT_YET
    waited = f"not granted within {deps.timings.ordered_s:g} s; {machine.detail}".rstrip("; ")
    return _withdraw(deps, now, lease, _NOT_GRANTED, waited, Extent.PLACE)


def terminate_refused(deps: FlowDeps, lease: Lease, provider: Provider) -> NotYet:
    """Terminate a machine that was refused after its launch, before the next place is tried."""
    try:
        at, machine = deps.clock.now(), provider.inspect(lease.machine_id)
        if not is_gone(deps, lease, machine, at=at):
            require_machine_of(lease, machine, deps.identity.project)
            provider.terminate(lease.machine_id)
            at, machine = deps.clock.now(), provider.inspect(lease.machine_id)
    except ProviderError as error:
        logger.warning("lease %s: not terminated yet: %s", lease.id, error)
        return NOT_YET
    lease = note_still_ordered(deps, lease, machine, at=at)
    lease = record_machine_ended_at(deps.stores, lease, machine, since=lease.launched_at, at=at)
    if not is_gone(deps, lease, machine, at=at):
        return NOT_YET
    at = deps.clock.now()
    # a request that was withdrawn late may have been granted just before
    never_ran = lease.refusal_code in _NEVER_RAN or machine.ended in _NEVER_RAN
    cost = Decimal(0) if never_ran else machine_cost(lease, at)
    deps.stores.leases.gone(lease.id, at=at, cost_usd=cost, refusal=_refusal(lease))
    return NOT_YET


def reconcile(deps: FlowDeps, lease: Lease, provider: Provider) -> NotYet:
    """Resolve an unanswered launch call whose repetition was refused: adopt its machine, if any."""
    resolve_unanswered_launch(deps, lease, provider, refusal=_refusal(lease))
    return NOT_YET


def decide(
    deps: FlowDeps,
    now: AttemptState,
    place: str,
    result: PlacementResult,
    why: ProviderError | RankedPlace | str,
) -> bool:
    """Store a placement decision; return whether the decision is new."""
    match why:
        case ProviderError():
            reason, detail = _word(why), str(why)
        case RankedPlace():
            reason, detail = why.reason, why.detail
        case _:
            reason, _, detail = why.partition(": ")
    line = PlacementDecision(deps.clock.now(), place, result, reason, detail)
    return deps.stores.leases.decide(now.attempt.id, line)


def give_up(deps: FlowDeps, now: AttemptState, error: ProviderError) -> Value:
    """End the attempt, since no other place can help."""
    outcome = Outcome.NOT_AVAILABLE if isinstance(error, NotOfferedError) else Outcome.ERRORED
    return record_failure(deps, now.attempt.id, outcome, _word(error), str(error))


def _request(deps: FlowDeps, now: AttemptState, lease: Lease) -> LaunchRequest:
    """Return the launch request, equal at every call for the lease."""
    ends = expires_at(now.spec, lease)
    login = None
    if deps.traits(lease.provider).rented:
        login = deps.stores.leases.keep_login(lease.id, deps.new_login())
    place = lease.offer or Place(lease.place)
    tags = tags_of(deps, now, lease, ends)
    return LaunchRequest(
        lease.id,
        place,
        now.plan.platform,
        tags,
        login=login,
        expires_at=ends,
        asked_at=lease.launched_at,
    )


def _ask_again(
    deps: FlowDeps, now: AttemptState, lease: Lease, error: ProviderError
) -> Value | NotYet:
    if overdue(deps, now.cell, deps.timings.place_s):
        return record_failure(deps, now.attempt.id, Outcome.ERRORED, Reason.UNAVAILABLE, str(error))
    decide(deps, now, lease.place, PlacementResult.AGAIN, error)
    deps.backoff.trouble(lease.id, deps.clock.now())
    return NOT_YET


def _refused(
    deps: FlowDeps, now: AttemptState, lease: Lease, error: ProviderError, *, requested_before: bool
) -> Value | NotYet:
    deps.backoff.forget(lease.id)
    decide(deps, now, lease.place, PlacementResult.REFUSED, error)
    whole = isinstance(error, CredentialsError | ConfigError) and error.extent in _WHOLE
    if requested_before and whole:  # the lease stays open: RELEASING looks for its machine
        return give_up(deps, now, error)
    facts = refusal_facts(error, _word(error))
    deps.stores.leases.note(lease.id, facts, simulated=lease.simulated)
    if requested_before:
        return NOT_YET
    at, refusal = deps.clock.now(), f"{_word(error)}: {error}"
    deps.stores.leases.gone(lease.id, at=at, cost_usd=Decimal(0), refusal=refusal)
    return give_up(deps, now, error) if whole else NOT_YET


def _withdraw(
    deps: FlowDeps, now: AttemptState, lease: Lease, ended: str, message: str, extent: Extent
) -> NotYet:
    """Handle a refusal after an accepted launch: refuse the place, release the machine."""
    reason = ended if ended in _NEVER_RAN else Reason.BOOT
    if ended == _NOT_GRANTED:
        reason = Reason.CAPACITY
    kind = CapacityError if reason != Reason.QUOTA else QuotaError
    error = kind(message, code=ended, extent=extent)
    decide(deps, now, lease.place, PlacementResult.REFUSED, f"{reason}: {message}")
    facts = {**refusal_facts(error, reason), LeaseFact.SEEN_AT: deps.clock.now().isoformat()}
    deps.stores.leases.note(lease.id, facts, simulated=lease.simulated)
    deps.stores.leases.releasing(lease.id)
    return NOT_YET


def _granted(deps: FlowDeps, now: AttemptState, lease: Lease, machine: Machine) -> Value:
    at = deps.clock.now()
    facts = {**lease.facts, **machine.facts, LeaseFact.GRANTED_AT: at.isoformat()}
    return _chosen(deps, now, deps.stores.leases.note(lease.id, facts, simulated=machine.simulated))


def _chosen(deps: FlowDeps, now: AttemptState, lease: Lease) -> Value:
    decide(deps, now, lease.place, PlacementResult.CHOSEN, f": {_price(lease)}")
    leave(deps, replace(now, lease=lease))
    enter(deps, now, CellState.BOOTING, f"{lease.provider}: {lease.place}")
    return GO


def _price(lease: Lease) -> str:
    price = lease.offer.usd_per_hour if lease.offer else lease.price_usd_per_hour
    if price is None:
        return "at an unknown price"
    said = f" ({lease.offer.priced})" if lease.offer and lease.offer.priced else ""
    return f"{price:.4f} USD per hour{said}" if price else "at no price"


def _refusal(lease: Lease) -> str:
    return f"{lease.refusal_reason}: {lease.refusal_detail}"


def _word(error: ProviderError) -> str:
    return next(
        (word for kind, word in REASONS.items() if isinstance(error, kind)), Reason.UNAVAILABLE
    )


CONSOLE_LINES = 12
_AS_THEY_ARE = (Reason.CAPACITY, Reason.QUOTA, Reason.PREEMPTED)
"""Reasons for a machine's end that become the attempt's reason; any other is a failed boot."""


def poll_boot(deps: FlowDeps, attempt_id: str) -> Value | NotYet:
    """Wait until the machine has an address and is reachable."""
    now = state_of(deps, attempt_id)
    if now.cell.has_reached(CellState.PREPARING):
        return GO
    if record_cancel(deps, now) or now.lease is None:
        return STOP
    late = _is_late(deps, now, now.lease)
    at = deps.clock.now()
    if not deps.backoff.is_due(now.lease.id, at):
        return NOT_YET
    try:
        machine = deps.provider(now.lease.provider).inspect(now.lease.machine_id)
    except ProviderError as error:
        deps.backoff.trouble(now.lease.id, deps.clock.now())
        note_provider_trouble(deps, now, error)
        return (
            record_failure(deps, attempt_id, Outcome.ERRORED, Reason.BOOT, str(error))
            if late
            else NOT_YET
        )
    deps.backoff.forget(now.lease.id)
    if machine.state in (MachineState.TERMINATED, MachineState.STOPPING):
        return _ended(deps, now, now.lease, machine, at=at)
    if machine.state is MachineState.READY and machine.endpoint is not None:
        # No payload has run yet, so the keys that were published last are the guest's own. Some
        # guests make new host keys after they published the first ones.
        way = _pinned(deps, now, now.lease, machine.endpoint)
        lease = deps.stores.leases.reached(now.lease.id, way)
        reached = replace(now, lease=_noted(deps, lease, machine))
        return _knock(deps, reached, machine.endpoint, way, late=late)
    if late:
        detail = f"machine {machine.id} is still {machine.state}. {machine.detail}"
        return _blame_boot(deps, attempt_id, now.lease, Reason.BOOT, detail.strip())
    return NOT_YET


def _is_late(deps: FlowDeps, now: AttemptState, lease: Lease) -> bool:
    """Whether the boot takes too long, or the attempt's deadline has passed."""
    return overdue(deps, now.cell, _patience_s(deps, lease)) or is_out_of_time(deps, now)


def _patience_s(deps: FlowDeps, lease: Lease) -> float:
    """Return the maximum seconds to wait for the machine's boot."""
    timings = deps.timings
    rented = deps.traits(lease.provider).rented
    return timings.boot_s if rented else min(timings.own_boot_s, timings.contact_timeout_s)


def _is_only_host(deps: FlowDeps, now: AttemptState, lease: Lease) -> bool:
    """Whether the platform has one own host only, so that every attempt is on it."""
    provider = deps.provider(lease.provider)
    if deps.traits(lease.provider).rented or not isinstance(provider, Offers):
        return False
    return len(provider.places(now.plan.platform)) == 1


def _final(deps: FlowDeps, now: AttemptState, lease: Lease, message: str) -> str:
    """Return the message; for the only host, also store and add that no other host can be tried."""
    if not _is_only_host(deps, now, lease):
        return message
    deps.stores.leases.note(lease.id, {LeaseFact.FINAL: "yes"}, simulated=lease.simulated)
    return f"{message}; there is no other host to try"


def _ended(
    deps: FlowDeps, now: AttemptState, lease: Lease, machine: Machine, *, at: datetime
) -> Value | NotYet:
    not_shown = machine.state is MachineState.TERMINATED and is_young(deps, lease, at=at)
    if not machine.ended and not_shown:
        return NOT_YET
    record_machine_ended_at(deps.stores, lease, machine, since=now.cell.entered_at, at=at)
    reason = machine.ended if machine.ended in _AS_THEY_ARE else Reason.BOOT
    detail = f"machine {machine.id} is {machine.state} before it could be used. {machine.detail}"
    return _blame_boot(deps, now.attempt.id, lease, reason, detail.strip())


def _pinned(
    deps: FlowDeps, now: AttemptState, lease: Lease, way: Endpoint | SshAddress
) -> Endpoint:
    """Return the endpoint with the pinned host key.

    The key is the one that the machine published to its provider, else the one that it was given.
    """
    if not isinstance(way, SshAddress):
        return way
    login = deps.stores.leases.login(lease.id)
    if login is None:
        raise LookupError(f"lease {lease.id} has no keys")
    host_key = way.host_key or login.host_public_key
    return SshEndpoint(
        way.address,
        way.user,
        host_key,
        port=way.port,
        lease=lease.id,
        bastion=now.plan.platform.bastion,
        proxy_command=way.proxy_command,
    )


def _await_published_host_key(
    deps: FlowDeps, now: AttemptState, shown: Endpoint | SshAddress | None, error: Exception
) -> bool:
    """Store the mismatch; return whether the guest may still publish another host key."""
    is_published = isinstance(shown, SshAddress) and bool(shown.host_key)
    return is_published and _note_host_key_mismatch(deps, now, error)


def _note_host_key_mismatch(deps: FlowDeps, now: AttemptState, error: Exception) -> bool:
    """Store the mismatch as no contact; return whether it is still tolerated."""
    return note_no_contact(deps, now, error) < timedelta(seconds=deps.timings.host_key_s)


def await_new_host_key(
    deps: FlowDeps, now: AttemptState, machine: Machine | None, error: Exception
) -> bool:
    """Pin the host key that the machine publishes now; return whether to try the machine again.

    Google's guest agent makes new host keys some seconds after it published the first ones, before
    a job begins. The later key is pinned instead.

    Args:
        deps: The ports.
        now: The attempt.
        machine: The provider's current description; None if the provider did not answer.
        error: The error of the last contact.
    """
    if machine is None:
        return _note_host_key_mismatch(deps, now, error)
    if not _await_published_host_key(deps, now, machine.endpoint, error):
        return False
    pin_published_key(deps, now, machine)
    return True


def pin_published_key(deps: FlowDeps, now: AttemptState, machine: Machine) -> None:
    """Pin the host key that the guest published last, through its provider."""
    if now.lease is not None and machine.endpoint is not None:
        way = _pinned(deps, now, now.lease, machine.endpoint)
        deps.stores.leases.reached(now.lease.id, way)


def _noted(deps: FlowDeps, lease: Lease, machine: Machine) -> Lease:
    facts = {**lease.facts, **machine.facts}
    if facts == dict(lease.facts):
        return lease
    return deps.stores.leases.note(lease.id, facts, simulated=machine.simulated)


def _knock(
    deps: FlowDeps, now: AttemptState, shown: Endpoint | SshAddress, way: Endpoint, *, late: bool
) -> Value | NotYet:
    """Connect to the machine by `way`, derived from what its provider has `shown`."""
    attempt_id, lease = now.attempt.id, now.lease
    if lease is None:
        return STOP
    try:
        deps.open_workspace(way).put_agent()
    except HostKeyError as error:
        if not late and _await_published_host_key(deps, now, shown, error):
            return NOT_YET
        said = _final(deps, now, lease, str(error))
        return record_failure(deps, attempt_id, Outcome.ERRORED, Reason.HOST_KEY, said)
    except AuthenticationError as error:
        # a rented machine refuses the sign-in until it has created our user
        if deps.traits(lease.provider).rented and not late:
            note_no_contact(deps, now, error)
            return NOT_YET
        return record_failure(deps, attempt_id, Outcome.ERRORED, Reason.AUTH, str(error))
    except ShellError as error:
        return _unreached(deps, now, lease, error, late=late)
    except MachineError as error:
        return record_failure(deps, attempt_id, Outcome.ERRORED, Reason.AGENT, str(error))
    note_contact(deps, now)
    leave(deps, now)
    enter(deps, now, CellState.PREPARING)
    return GO


def _unreached(
    deps: FlowDeps, now: AttemptState, lease: Lease, error: ShellError, *, late: bool
) -> Value | NotYet:
    """Add a notice with the remaining patience and wait, or end the attempt if it is late."""
    is_closed, said = isinstance(error, ClosedPortError), str(error)
    if late:
        said = _final(deps, now, lease, said) if is_closed else said
        return _blame_boot(deps, now.attempt.id, lease, Reason.SSH, said)
    is_last = is_closed and _is_only_host(deps, now, lease)
    tries = 1 if is_last else now.spec.matrix.limits.infra_retries + 1
    wait = elapsed(_patience_s(deps, lease))
    which = f"try {now.attempt.number} of {tries}, " if tries > 1 else ""
    note_no_contact(deps, now, error, patience=f"{which}up to {wait}")
    return NOT_YET


def _blame_boot(deps: FlowDeps, attempt_id: str, lease: Lease, reason: str, detail: str) -> Value:
    """Store a boot failure, with the machine's console where it is available."""
    provider = deps.provider(lease.provider)
    if isinstance(provider, ConsoleLog):
        try:
            lines = provider.console(lease.machine_id).splitlines()[-CONSOLE_LINES:]
        except ProviderError as error:
            lines = [f"(not available: {error})"]
        if lines:
            detail = "\n".join([detail, "Its console's last lines:", *lines])
    return record_failure(deps, attempt_id, Outcome.ERRORED, reason, detail)
