"""PLACING: reserves a place in the ledger, then calls the provider, one place after another."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timedelta
from decimal import Decimal

from orchestrator.application.cell.environment import ExpectedShipments, image_name
from orchestrator.application.cell.flow_context import (
    GO,
    STOP,
    FlowDeps,
    billed_minutes,
    enter,
    overdue,
    record_failure,
    record_stop,
)
from orchestrator.application.cell.launching import (
    REASONS,
    confirm,
    decide,
    give_up,
    launch,
    reconcile,
    terminate_refused,
)
from orchestrator.application.cell.place_selection import RankedPlace, rank_places
from orchestrator.application.ports.engine import NOT_YET, NotYet, Value
from orchestrator.domain.budget import (
    Budget,
    BudgetUse,
    Period,
    budgets_of_run,
    why_price_is_needed,
)
from orchestrator.domain.cell import CellState, Lease, LeaseState, PlacementResult
from orchestrator.domain.machine import (
    Offers,
    Place,
    Provider,
    ProviderError,
    ProviderUnavailableError,
)
from orchestrator.domain.matrix import Limits, Platform
from orchestrator.domain.money import worst_usd
from orchestrator.domain.outcome import Outcome, Reason
from orchestrator.domain.prices import why_unpriced, without_old_prices
from orchestrator.domain.units import most_usd
from orchestrator.store.cells import AttemptState
from orchestrator.store.leases import Reservation

logger = logging.getLogger(__name__)


def poll_placement(deps: FlowDeps, attempt_id: str) -> Value | NotYet:
    """Advance the lease by one step: reserved, requested, granted.

    A refusal leads to the next place.
    """
    now = deps.stores.cells.attempt_state(attempt_id)
    if now.cell.has_reached(CellState.BOOTING):
        return GO
    if record_stop(deps, now):
        return STOP
    provider = deps.provider(now.plan.platform.provider)
    lease = now.lease
    if lease is None:
        return _reserve(deps, now, provider)
    match lease.state:
        case LeaseState.ACTIVE:
            return confirm(deps, now, lease, provider)
        case LeaseState.RELEASING:
            return terminate_refused(deps, lease, provider)
        case LeaseState.LAUNCHING if lease.refusal_reason:
            return reconcile(deps, lease, provider)
    return launch(deps, now, lease, provider)


def _reserve(deps: FlowDeps, now: AttemptState, provider: Provider) -> Value | NotYet:
    if not deps.backoff.is_due(now.attempt.id, deps.clock.now()):
        return NOT_YET
    try:
        places = places_of(provider, now.plan.platform)
        blind = not _why_price_is_needed(deps, now)
        places = without_old_prices(places, deps.clock.now(), allowed=blind)
        deps.backoff.forget(now.attempt.id)
    except ProviderUnavailableError as error:
        return _cannot_be_asked(deps, now, error)
    except ProviderError as error:
        decide(deps, now, now.plan.platform.provider, PlacementResult.REFUSED, error)
        return give_up(deps, now, error)
    since = deps.clock.now() - timedelta(seconds=deps.timings.exhausted_s)
    platform = now.plan.platform
    mine, lately = deps.stores.leases.placed(now.attempt.id, platform.provider, since)
    candidates = rank_places(places, mine=mine, worn=_worn(deps, now), lately=lately)
    left = []
    for one in candidates:
        if one.result is not None:
            decide(deps, now, one.place.name, one.result, one)
        if one.result is not PlacementResult.SKIPPED:
            left.append(one)
    if not left:
        return _refused_everywhere(deps, now, mine)
    refused = None if mine else _refuse_shipment(deps, now, provider, left[0].place)
    return refused or _set_aside(deps, now, provider, left, mine)


def _set_aside(
    deps: FlowDeps,
    now: AttemptState,
    provider: Provider,
    left: list[RankedPlace],
    mine: list[Lease],
) -> Value | NotYet:
    """Reserve the first place that is free and within budget, and request a machine there.

    If only the money that other machines of the run have reserved is missing, wait for it: their
    final cost may be lower.
    """
    limits, unpriced = now.spec.matrix.limits, []
    needed, budgets = _why_price_is_needed(deps, now), _budgets_of_runs(deps, now)
    over: dict[Reservation, BudgetUse] = {}
    for one in left:
        lease = _lease(deps, now, one.place, len(mine) + 1)
        if one.place.price_usd_per_hour is None and needed:
            why = why_unpriced(one.place)
            unpriced.append(f"{one.place.name} is {why}")
            skipped = f"price: its price is {why}"
            decide(deps, now, one.place.name, PlacementResult.SKIPPED, skipped)
            continue
        told = deps.stores.leases.reserve(
            lease,
            run_id=now.run.id,
            exclusive=one.place.exclusive,
            budgets=(*_own_budget(limits), *budgets),
        )
        if told.answer is Reservation.RESERVED:
            _tell_of_budgets(deps, lease.reserved_at)
            return launch(deps, now, lease, provider)
        if told.short is not None:
            over[told.answer] = told.short
            _skip_for_budget(deps, now, lease, told.short, told.answer)
    if Reservation.OVER_BUDGET in over and Reservation.BUDGET_RESERVED not in over:
        detail = f"another machine could exceed {over[Reservation.OVER_BUDGET]}"
        return record_failure(deps, now.attempt.id, Outcome.ERRORED, Reason.BUDGET, detail)
    if len(unpriced) == len(left):
        said = f"the price at {', at '.join(unpriced)}, and {needed}"
        if any(lease.refusal_reason for lease in mine):  # the other places refused
            return _refused_everywhere(deps, now, mine, said)
        return record_failure(deps, now.attempt.id, Outcome.ERRORED, Reason.PRICE, said)
    return NOT_YET


def _refuse_shipment(
    deps: FlowDeps, now: AttemptState, provider: Provider, place: Place
) -> Value | None:
    """End the attempt if its shipment prevents renting a machine; else return None.

    The shipment is checked once per attempt, because it does not change while a place is awaited.
    """
    approved, attempt = deps.contact_log.approved_shipments, now.attempt.id
    if attempt in approved or not deps.traits(now.plan.platform.provider).rented:
        return None
    image = ""
    with suppress(ProviderError):  # the launch reports faults of the image
        image = image_name(provider, now.plan.platform, place)
    shipments = ExpectedShipments(deps, now.spec)
    sent = shipments.of(now.plan, payload_bytes=0, image=image, is_rented=True)
    if not sent.refusal:
        approved.add(attempt)
        return None
    return record_failure(deps, attempt, Outcome.ERRORED, Reason.ENVIRONMENT, sent.refusal)


def _why_price_is_needed(deps: FlowDeps, now: AttemptState) -> str:
    allowed = now.spec.matrix.limits.allow_unknown_price
    return why_price_is_needed(_budgets_of_runs(deps, now), allow_unknown_price=allowed)


def _budgets_of_runs(deps: FlowDeps, now: AttemptState) -> tuple[Budget, ...]:
    """Return the budgets across runs that a machine must fit into."""
    return budgets_of_run(deps.budgets, untrusted=now.spec.manifest.is_untrusted)


def _own_budget(limits: Limits) -> Iterator[Budget]:
    if limits.max_usd is not None:
        yield Budget(Period.RUN, limits.max_usd)


def _skip_for_budget(
    deps: FlowDeps, now: AttemptState, lease: Lease, short: BudgetUse, answer: Reservation
) -> None:
    """Store that a place does not fit a budget; add one notice if the cell waits for the budget."""
    said = _refused_budget(lease, short, answer)
    is_new = decide(deps, now, lease.place, PlacementResult.SKIPPED, f"budget: {said}")
    if is_new and answer is Reservation.BUDGET_RESERVED:
        notice = {"cell": now.cell.name, "notice": f"{lease.place}: {said}"}
        deps.stores.run_events.add(now.run.id, "cell", notice)


def _refused_budget(lease: Lease, short: BudgetUse, answer: Reservation) -> str:
    worst = f"its worst case of {most_usd(lease.reserved_usd)}"
    if answer is Reservation.OVER_BUDGET:
        return f"{worst} does not fit {short}"
    words = short.budget.period.words
    return f"{worst} waits until other machines of {words} have settled ({short})"


def _tell_of_budgets(deps: FlowDeps, at: datetime) -> None:
    """Log a warning when the spending reaches the next share of a budget."""
    for use in deps.stores.leases.budget_uses(deps.budgets, at) if deps.budgets else ():
        key = f"{use.budget.period} {use.budget.since(at):%Y-%m-%d}"
        percent = use.warn_percent
        if percent > int(deps.contact_log.messages.get(key, "0")):
            deps.contact_log.messages[key] = str(percent)
            logger.warning("%s: %d %% or more is used", use, percent)


def _worn(deps: FlowDeps, now: AttemptState) -> dict[str, str]:
    """Return the places where earlier attempts of the cell failed, each with the reason."""
    if now.attempt.number == 1:
        return {}
    earlier = deps.stores.cells.attempts(now.cell.id)[:-1]
    return {
        lease.place: attempt.cause.reason if attempt.cause else "it stopped"
        for attempt in earlier
        for lease in deps.stores.leases.of_attempt(attempt.id)
        if not lease.refusal_reason
    }


def _lease(deps: FlowDeps, now: AttemptState, place: Place, number: int) -> Lease:
    return Lease(
        id=f"{now.attempt.id}-{number}",
        attempt_id=now.attempt.id,
        provider=now.plan.platform.provider,
        place=place.name,
        state=LeaseState.RESERVED,
        reserved_usd=worst_usd(place, billed_minutes(now.spec)) or Decimal(0),
        price_usd_per_hour=place.price_usd_per_hour,
        reserved_at=deps.clock.now(),
        offer=place,
    )


def _cannot_be_asked(deps: FlowDeps, now: AttemptState, error: ProviderError) -> Value | NotYet:
    if not overdue(deps, now.cell, deps.timings.place_s):
        deps.backoff.trouble(now.attempt.id, deps.clock.now())
        return NOT_YET
    return record_failure(deps, now.attempt.id, Outcome.ERRORED, Reason.UNAVAILABLE, str(error))


def _refused_everywhere(
    deps: FlowDeps, now: AttemptState, mine: list[Lease], also: str = ""
) -> Value:
    reasons = {lease.refusal_reason for lease in mine if lease.refusal_reason}
    detail = "; ".join([*(lease.refusal for lease in mine if lease.refusal), *filter(None, [also])])
    enter(deps, now, CellState.PLACING)
    if reasons == {Reason.NOT_OFFERED}:
        return record_failure(
            deps, now.attempt.id, Outcome.NOT_AVAILABLE, Reason.NOT_OFFERED, detail
        )
    ranked = [reason for reason in REASONS.values() if reason in reasons]
    reason = next(iter([*ranked, *sorted(reasons)]), Reason.CAPACITY)
    return record_failure(deps, now.attempt.id, Outcome.ERRORED, reason, detail)


def places_of(provider: Provider, platform: Platform) -> tuple[Place, ...]:
    """Return the provider's places for the platform; a generic place if none is listed."""
    if isinstance(provider, Offers):
        return provider.places(platform)
    return (Place("here", price_usd_per_hour=Decimal(0)),)
