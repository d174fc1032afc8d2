"""Plans a launch: cells, places and maximum cost. Changes nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from decimal import Decimal
from operator import itemgetter

from orchestrator.application.cell.environment import ExpectedShipments, image_name
from orchestrator.application.cell.flow_context import billed_minutes, minutes_in_words
from orchestrator.application.cell.placing import places_of
from orchestrator.application.context import Context
from orchestrator.application.launch_run import LaunchOrder, check_order, payload_of, spec_of
from orchestrator.application.machines import check_hosts
from orchestrator.domain.budget import (
    Budget,
    BudgetUse,
    Period,
    budget_warnings,
    budgets_of_run,
    why_price_is_needed,
)
from orchestrator.domain.cell import RunSpec, is_own_baseline
from orchestrator.domain.launch_plan import Plan, PlannedCell, Shipment, cautions
from orchestrator.domain.machine import (
    ConfigError,
    CredentialsError,
    Extent,
    NotOfferedError,
    ProviderError,
)
from orchestrator.domain.manifest import (
    Manifest,
    PythonChoice,
    dropped_exit_codes,
    untested,
)
from orchestrator.domain.matrix import CellPlan, Matrix, jobs_left_out
from orchestrator.domain.money import worst_usd
from orchestrator.domain.prices import (
    REFRESH,
    PriceLists,
    price_age_warning,
    unpriced_warning,
    why_unpriced,
    why_unpriced_list,
    without_old_prices,
)
from orchestrator.domain.quota import Demand, Headroom, Quota, QuotaLevel, Quotas, headroom
from orchestrator.domain.torch_build import TorchBuild, torch_build, torch_warning
from orchestrator.domain.units import most_usd, price, rounded_up

_UNPRICED = "no price is known at any of {} places, and {}: none is rented"
_OVER = "one attempt may cost {} at its cheapest place, which does not fit"
_LISTED = "by its price list, an attempt costs at most {}: {} of {} at {}/h ({})"
_LISTED_AND_OTHERS = "; places without a known price may be rented, too"
_TOO_OLD = "every price is {}, and {}: none is rented; " + REFRESH


OWN_BASELINE = (
    "the baseline is the subject itself, so benchmarks compare it with itself: that measures noise,"
    " and a gate takes it as no evidence for a performance budget"
)
OWN_PACKAGES = (
    "{}: if python3 of this computer does not meet python.requires, jobs run in Seatrial's own"
    " Python and can import all its packages, even undeclared ones; name another one in"
    " python.candidates"
)
_NOTHING = Decimal(0)


def plan_run(context: Context, order: LaunchOrder, *, with_hosts: bool = False) -> Plan:
    """Validate the order as a launch would, and ask the providers for places.

    With `with_hosts`, also sign in on each own host and check it.

    Raises InvalidDocumentError or PayloadMissingError.
    """
    payload = payload_of(context, order)
    matrix, plans = check_order(context, order, payload)
    spec = spec_of(context, order, payload.manifest, matrix)
    minutes = billed_minutes(spec)
    budgets = budgets_of_run(context.budgets, untrusted=payload.manifest.is_untrusted)
    needed = why_price_is_needed(budgets, allow_unknown_price=matrix.limits.allow_unknown_price)
    uses = context.stores.leases.budget_uses(budgets, context.clock.now())
    limits = [*_limit_of_run(matrix), *uses]
    placed = [_within(_planned(context, plan, spec, needed), minutes, limits) for plan in plans]
    sent = _shipments(context, spec, payload.size_bytes, placed)
    refused = {one.cell: one.refusal for one in sent}
    cells = tuple(
        one if one.note else replace(one, note=refused.get(one.cell.id, "")) for one in placed
    )
    room = _headroom(context, cells, at_once=matrix.limits.max_parallel)
    age = price_age_warning((p for cell in cells for p in cell.places), context.clock.now())
    # a cell without any price has a note
    priced = [
        cell for cell in cells if any(place.usd_per_hour is not None for place in cell.places)
    ]
    unpriced = unpriced_warning(p for cell in priced for p in cell.places) if needed else ""
    builds = [_torch_build(cell, payload.manifest) for cell in cells]
    ends = cautions((plan.platform.provider for plan in plans), context.traits)
    hosts = check_hosts(context, payload.manifest, plans) if with_hosts else ()
    plan = Plan(payload.digest, matrix.limits.max_usd, cells, room, hosts=hosts, shipments=sent)
    warnings = (
        *budget_warnings(uses, plan.known_usd),
        *jobs_left_out(matrix, payload.manifest),
        *untested(payload.manifest),
        *dropped_exit_codes(payload.manifest),
        age,
        unpriced,
        torch_warning(builds),
        _own_packages(payload.manifest, plans),
        *ends,
        OWN_BASELINE if matrix.baseline and is_own_baseline(payload.digest, spec) else "",
    )
    return replace(plan, warnings=tuple(filter(None, warnings)))


def _own_packages(manifest: Manifest, plans: Iterable[CellPlan]) -> str:
    """Return the warning about Seatrial's own packages as the last resort; empty without one."""
    cells = [
        plan.id
        for plan in plans
        if plan.platform.provider == "local"
        and manifest.python.requires
        and manifest.python.candidates == PythonChoice().candidates
        and not ((named := manifest.environment(plan.environment)) and named.python)
    ]
    return OWN_PACKAGES.format(", ".join(cells)) if cells else ""


def _shipments(
    context: Context, spec: RunSpec, payload_bytes: int, cells: Iterable[PlannedCell]
) -> tuple[Shipment, ...]:
    """Return the expected shipments of cells that have a place and do not run on this computer."""
    shipments = ExpectedShipments(context, spec)
    return tuple(
        shipments.of(
            one.cell,
            payload_bytes=payload_bytes,
            image=one.image,
            is_rented=context.traits[one.cell.platform.provider].rented,
        )
        for one in cells
        if one.cell.platform.provider != "local" and one.places
    )


def _limit_of_run(matrix: Matrix) -> Iterator[BudgetUse]:
    if matrix.limits.max_usd is not None:
        yield BudgetUse(Budget(Period.RUN, matrix.limits.max_usd), _NOTHING, _NOTHING)


def _planned(context: Context, plan: CellPlan, spec: RunSpec, needed: str) -> PlannedCell:
    """Plan one cell; `needed` says why a known price is needed, and is empty if none is."""
    provider = context.provider(plan.platform.provider)
    try:
        places = places_of(provider, plan.platform)
    except NotOfferedError as error:
        return PlannedCell(plan, (), Decimal(0), str(error))
    except ProviderError as error:
        return _listed(context, plan, spec, needed, str(error))
    places = without_old_prices(places, context.clock.now(), allowed=not needed)
    minutes = billed_minutes(spec)
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
    try:
        image, note = image_name(provider, plan.platform, places[0]) if places else "", ""
    except (ConfigError, CredentialsError) as error:
        image, note = "", str(error) if error.extent is Extent.PROJECT else ""
    except ProviderError:  # a launch asks again
        image, note = "", ""
    return PlannedCell(plan, places, rounded_up(max(known)) if told else None, note, image)


def _listed(
    context: Context, plan: CellPlan, spec: RunSpec, needed: str, refusal: str
) -> PlannedCell:
    """Plan a cell whose provider cannot be used; its maximum cost comes from the price list."""
    provider = context.provider(plan.platform.provider)
    try:
        found = provider.listed_places(plan.platform) if isinstance(provider, PriceLists) else ()
    except ProviderError:
        return PlannedCell(plan, (), None, refusal)
    listed = without_old_prices(found, context.clock.now(), allowed=not needed)
    minutes = billed_minutes(spec)
    costs = [(worst_usd(place, minutes), place) for place in listed if place.priced]
    priced = [(amount, place) for amount, place in costs if amount is not None]
    if not priced:
        unknown = f"; {why_unpriced_list(found)}" if isinstance(provider, PriceLists) else ""
        return PlannedCell(plan, (), None, f"{refusal}{unknown}")
    most, dearest = max(priced, key=itemgetter(0))
    rate = price(dearest.usd_per_hour)
    told = _LISTED.format(
        most_usd(most), minutes_in_words(spec), dearest.instance_type, rate, dearest.priced
    )
    note = f"{refusal}; {told}{'' if needed else _LISTED_AND_OTHERS}"
    return PlannedCell(plan, (), rounded_up(most) if needed else None, note)


def _within(planned: PlannedCell, minutes: float, limits: Iterable[BudgetUse]) -> PlannedCell:
    """Return the cell with a note if even its cheapest place is above a limit."""
    amounts = [worst_usd(place, minutes) or _NOTHING for place in planned.places]
    cheapest = min(amounts, default=_NOTHING)
    over = [use for use in limits if cheapest > use.budget.limit_usd - use.settled_usd]
    if planned.note or not over:
        return planned
    note = f"{_OVER.format(most_usd(cheapest))} {over[0]}"
    return replace(planned, note=note)


def _torch_build(planned: PlannedCell, manifest: Manifest) -> TorchBuild:
    """Return the torch build at the cell's first place; unknown where the provider does not say."""
    environment = manifest.environment(planned.cell.environment)
    return torch_build(planned.cell.id, planned.image, environment.pip if environment else ())


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
