"""PLACING: the ledger's row, then the launch call, place after place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import timedelta
from decimal import Decimal

from orchestrator.application.cell.world import (
    GO,
    STOP,
    Situation,
    World,
    blame,
    overdue,
    reach,
    situation,
    stopped_from_outside,
)
from orchestrator.application.ports.engine import NOT_YET, NotYet, Value
from orchestrator.application.ports.stores import Reservation
from orchestrator.domain.cell import CellState, Lease, LeaseState
from orchestrator.domain.machine import (
    CapacityError,
    ConfigError,
    CredentialsError,
    LaunchRequest,
    NotOfferedError,
    Offers,
    Place,
    Provider,
    ProviderError,
    ProviderUnavailableError,
    QuotaError,
)
from orchestrator.domain.outcome import Outcome

RELEASE_MINUTES = 15
"""What an attempt may need beyond its limit until its machine is gone; reserved as well."""
EXPIRY_GRACE = timedelta(minutes=30)

_REASONS: dict[type[ProviderError], str] = {
    CapacityError: "capacity",
    QuotaError: "quota",
    NotOfferedError: "not_offered",
    CredentialsError: "auth",
    ConfigError: "config",
}


def look_placed(world: World, attempt_id: str) -> Value | NotYet:
    """Reserve a place and ask the provider for a machine there; a refusal leads to the next."""
    now = situation(world, attempt_id)
    if now.cell.has_reached(CellState.BOOTING):
        return GO
    if now.lease is not None and now.lease.state is LeaseState.HELD:
        reach(world, now, CellState.BOOTING)
        return GO
    if stopped_from_outside(world, now):
        return STOP
    provider = world.provider(now.plan.platform.provider)
    try:
        places = _places(provider, _document(now))
    except ProviderError as error:
        return _give_up(world, now, [error])
    if now.lease is not None:
        return _launch(world, now, now.lease, provider, places)
    return _reserve(world, now, provider, places)


def _reserve(
    world: World, now: Situation, provider: Provider, places: tuple[Place, ...]
) -> Value | NotYet:
    tried = {lease.place for lease in world.stores.leases.of_attempt(now.attempt.id)}
    left = [place for place in places if place.name not in tried]
    worn = _gave_way(world, now)
    left.sort(key=lambda place: place.name in worn)
    if not left:
        return _refused_everywhere(world, now)
    answers = []
    for place in left:
        lease = _lease(world, now, place, len(tried) + 1)
        if lease is None:
            detail = f"the price at {place.name} is unknown and limits.allow_unknown_price is false"
            return blame(world, now.attempt.id, Outcome.ERRORED, "price", detail)
        answer = world.stores.leases.reserve(
            lease,
            run_id=now.run.id,
            exclusive=place.exclusive,
            max_usd=now.spec.matrix.limits.max_usd,
        )
        if answer is Reservation.RESERVED:
            return _launch(world, now, lease, provider, places)
        answers.append(answer)
    if Reservation.OVER_BUDGET in answers:
        detail = f"another machine could exceed limits.max_usd ({now.spec.matrix.limits.max_usd})"
        return blame(world, now.attempt.id, Outcome.ERRORED, "budget", detail)
    return NOT_YET


def _gave_way(world: World, now: Situation) -> set[str]:
    """Places where an earlier attempt of the cell broke down: they are tried last."""
    earlier = world.stores.cells.attempts(now.cell.id)[:-1]
    leases = [x for attempt in earlier for x in world.stores.leases.of_attempt(attempt.id)]
    return {lease.place for lease in leases}


def _lease(world: World, now: Situation, place: Place, number: int) -> Lease | None:
    """The ledger's row for a place; None if its price is unknown and must not be."""
    limits = now.spec.matrix.limits
    price = place.price_usd_per_hour
    if price is None and not limits.allow_unknown_price:
        return None
    hours = Decimal(str(limits.max_minutes + RELEASE_MINUTES)) / 60
    return Lease(
        id=f"{now.attempt.id}-{number}",
        attempt_id=now.attempt.id,
        provider=now.plan.platform.provider,
        place=place.name,
        state=LeaseState.RESERVED,
        reserved_usd=(price or Decimal(0)) * hours,
        price_usd_per_hour=price,
        reserved_at=world.clock.now(),
    )


def _launch(
    world: World, now: Situation, lease: Lease, provider: Provider, places: Iterable[Place]
) -> Value | NotYet:
    place = next((p for p in places if p.name == lease.place), Place(lease.place))
    leases = world.stores.leases
    leases.launching(lease.id, at=world.clock.now())
    request = LaunchRequest(lease.id, place, _document(now), _tags(world, now, lease))
    try:
        machine = provider.launch(request)
    except ProviderUnavailableError as error:
        if overdue(world, now.cell, world.timings.place_s):
            return blame(world, now.attempt.id, Outcome.ERRORED, "unavailable", str(error))
        return NOT_YET
    except ProviderError as error:
        refusal = f"{_reason(error)}: {error}"
        leases.gone(lease.id, at=world.clock.now(), cost_usd=Decimal(0), refusal=refusal)
        if isinstance(error, CredentialsError | ConfigError):
            return _give_up(world, now, [error])
        return NOT_YET
    leases.held(lease.id, machine.id, at=world.clock.now())
    reach(world, now, CellState.BOOTING, f"{lease.provider}: {lease.place}")
    return GO


def _refused_everywhere(world: World, now: Situation) -> Value:
    refusals = [lease.refusal for lease in world.stores.leases.of_attempt(now.attempt.id)]
    reasons = {refusal.partition(":")[0] for refusal in refusals}
    detail = "; ".join(refusals)
    if reasons == {"not_offered"}:
        return blame(world, now.attempt.id, Outcome.NOT_AVAILABLE, "not_offered", detail)
    reason = "capacity" if "capacity" in reasons else min(reasons)
    return blame(world, now.attempt.id, Outcome.ERRORED, reason, detail)


def _give_up(world: World, now: Situation, errors: list[ProviderError]) -> Value:
    reason = _reason(errors[0])
    outcome = Outcome.NOT_AVAILABLE if reason == "not_offered" else Outcome.ERRORED
    return blame(world, now.attempt.id, outcome, reason, "; ".join(map(str, errors)))


def _reason(error: ProviderError) -> str:
    return next((r for kind, r in _REASONS.items() if isinstance(error, kind)), "unavailable")


def _places(provider: Provider, platform: Mapping[str, object]) -> tuple[Place, ...]:
    if isinstance(provider, Offers):
        return provider.places(platform)
    return (Place("here", price_usd_per_hour=Decimal(0)),)


def _document(now: Situation) -> dict[str, object]:
    return {key: value for key, value in asdict(now.plan.platform).items() if value is not None}


def _tags(world: World, now: Situation, lease: Lease) -> dict[str, str]:
    minutes = now.spec.matrix.limits.max_minutes
    expires = lease.reserved_at + timedelta(minutes=minutes) + EXPIRY_GRACE
    return {
        "seatrial-project": world.identity.project,
        "seatrial-controller": world.identity.controller,
        "seatrial-run": now.run.id,
        "seatrial-cell": now.cell.id,
        "seatrial-attempt": now.attempt.id,
        "seatrial-expires-at": expires.isoformat(timespec="seconds"),
    }
