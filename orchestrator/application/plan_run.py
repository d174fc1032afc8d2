"""Plans a launch: cells, places and maximum cost. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from decimal import Decimal

from orchestrator.application.cell.flow_context import billed_minutes
from orchestrator.application.cell.placing import places_of
from orchestrator.application.context import Context
from orchestrator.application.launch_run import LaunchOrder, check_order, find_payload, spec_of
from orchestrator.application.machines import check_hosts
from orchestrator.domain.budget import budget_warnings, why_price_is_needed
from orchestrator.domain.cell import RunSpec, is_own_baseline
from orchestrator.domain.launch_plan import Plan, PlannedCell, Shipment, cautions
from orchestrator.domain.machine import NotOfferedError, ProviderError
from orchestrator.domain.manifest import Manifest, StoredPayload
from orchestrator.domain.matrix import CellPlan, Matrix, unfit_jobs
from orchestrator.domain.money import worst_usd
from orchestrator.domain.prices import (
    REFRESH,
    price_age_warning,
    why_unpriced,
    without_old_prices,
)
from orchestrator.domain.quota import Demand, Headroom, Images, Quota, QuotaLevel, Quotas, headroom
from orchestrator.domain.reuse_inputs import Prepared, platform_document
from orchestrator.domain.torch_build import TorchBuild, cuda_warning, torch_build, torch_warning

_UNPRICED = "no price is known at any of {} places, and {}: none is rented"
_TOO_OLD = "every price is {}, and {}: none is rented; " + REFRESH


OWN_BASELINE = (
    "the baseline is the subject itself, so benchmarks compare it with itself: that measures noise,"
    " and a gate takes it as no evidence for a performance budget"
)
_REMEMBERED = 200
"""Number of attempts that are searched for the sizes of earlier uploads."""


def plan_run(context: Context, order: LaunchOrder, *, with_hosts: bool = False) -> Plan:
    """Validate the order as a launch would, and ask the providers for places.

    `with_hosts` checks your own hosts, too: it signs in on each. Raises InvalidDocumentError or
    PayloadMissingError.
    """
    payload = find_payload(context, order.payload)
    matrix, plans = check_order(context, order, payload)
    spec = RunSpec(matrix, payload.manifest, hold_minutes=order.hold_minutes)
    minutes = billed_minutes(spec)
    needed = why_price_is_needed(
        context.budgets, allow_unknown_price=matrix.limits.allow_unknown_price
    )
    cells = tuple(_planned(context, plan, minutes, needed) for plan in plans)
    room = _headroom(context, cells, at_once=matrix.limits.max_parallel)
    age = price_age_warning((p for cell in cells for p in cell.places), context.clock.now())
    builds = [_torch_build(context, cell, payload.manifest) for cell in cells]
    ends = cautions((plan.platform.provider for plan in plans), context.traits)
    uses = context.stores.leases.budget_uses(context.budgets, context.clock.now())
    hosts = check_hosts(context, payload.manifest, plans) if with_hosts else ()
    sent = _shipments(context, payload, order.subject_digest, plans)
    plan = Plan(payload.digest, matrix.limits.max_usd, cells, room, hosts=hosts, shipments=sent)
    warnings = (
        *budget_warnings(uses, plan.known_usd),
        *unfit_jobs(matrix, payload.manifest),
        age,
        torch_warning(builds),
        *(cuda_warning(plan, payload.manifest.environment(plan.environment)) for plan in plans),
        *ends,
        _own_baseline(context, order, payload, matrix),
    )
    return replace(plan, warnings=tuple(filter(None, warnings)))


def _own_baseline(
    context: Context, order: LaunchOrder, payload: StoredPayload, matrix: Matrix
) -> str:
    """Return the warning about a subject that is compared with itself; empty if it is not."""
    if matrix.baseline is None:
        return ""
    spec = spec_of(context, order, payload.manifest, matrix)
    return OWN_BASELINE if is_own_baseline(payload.digest, spec) else ""


def _shipments(
    context: Context, payload: StoredPayload, wheel: str | None, plans: Iterable[CellPlan]
) -> tuple[Shipment, ...]:
    """Return the expected uploads to each cell's machine, by those to the newest similar cell."""
    earlier = context.stores.reusable_results.newest_preparations(_REMEMBERED)
    wheel_bytes = sum(map(len, context.blobs.open(wheel))) if wheel else 0
    return tuple(
        _shipment(plan, payload, wheel_bytes, earlier)
        for plan in plans
        if plan.platform.provider != "local"
    )


def _shipment(
    plan: CellPlan, payload: StoredPayload, wheel_bytes: int, earlier: Iterable[Prepared]
) -> Shipment:
    environment = payload.manifest.environment(plan.environment)
    platform = platform_document(plan.platform)
    alike = (
        one.shipped_bytes
        for one in earlier
        if one.ingredients.platform == platform
        and one.ingredients.environment == plan.environment
        and one.ingredients.product == payload.manifest.name
    )
    return Shipment(
        plan.id,
        payload.size_bytes,
        wheel_bytes,
        environment.pip if environment else (),
        next(alike, None),
        has_index=environment is not None and environment.index,
    )


def _planned(context: Context, plan: CellPlan, minutes: float, needed: str) -> PlannedCell:
    """Plan one cell; `needed` says why a known price is needed, and is empty if none is."""
    try:
        places = places_of(context.provider(plan.platform.provider), plan.platform)
    except NotOfferedError as error:
        return PlannedCell(plan, (), Decimal(0), str(error))
    except ProviderError as error:
        return PlannedCell(plan, (), None, str(error))
    places = without_old_prices(places, context.clock.now(), allowed=not needed)
    worst = [worst_usd(place, minutes) for place in places]
    known = [amount for amount in worst if amount is not None]
    if not known and needed:
        old = [place for place in places if place.priced_at is not None]
        note = (
            _TOO_OLD.format(why_unpriced(old[0]), needed)
            if old
            else _UNPRICED.format(len(places), needed)
        )
        return PlannedCell(plan, places, None, note)
    told = known and (len(known) == len(worst) or needed)
    return PlannedCell(plan, places, max(known) if told else None)


def _torch_build(context: Context, planned: PlannedCell, manifest: Manifest) -> TorchBuild:
    """Return the torch build at the cell's first place; unknown where the provider does not say."""
    plan, image = planned.cell, ""
    provider = context.provider(plan.platform.provider)
    if planned.places and isinstance(provider, Images):
        with suppress(ProviderError):  # a launch says what is wrong with the image
            image = provider.image(plan.platform, planned.places[0]).name
    environment = manifest.environment(plan.environment)
    return torch_build(plan.id, image, environment.pip if environment else ())


def _headroom(
    context: Context, cells: tuple[PlannedCell, ...], *, at_once: int
) -> tuple[Headroom, ...]:
    demands: list[Demand] = []
    levels: dict[Quota, QuotaLevel] = {}
    for cell in cells:
        provider = context.provider(cell.cell.platform.provider)
        if not cell.places or not isinstance(provider, Quotas):
            continue
        try:
            wanted = provider.demands(cell.cell.platform, cell.places[0])
        except ProviderError as error:
            unread = _unreadable(cell)
            demands.append(unread)
            levels[unread.quota] = QuotaLevel(None, None, str(error))
            continue
        demands += wanted
        for quota in {demand.quota for demand in wanted} - levels.keys():
            levels[quota] = provider.level(quota)
    return headroom(demands, levels, at_once=at_once)


def _unreadable(cell: PlannedCell) -> Demand:
    """Return demands on quotas that the provider cannot read."""
    place, provider = cell.places[0], cell.cell.platform.provider
    quota = Quota(provider, place.region or place.name, "", "quotas", "machine")
    return Demand(quota, 1)
