"""Say what a launch would do: cells, places and the most it can cost. Nothing is changed."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from decimal import Decimal

from orchestrator.application.cell.placing import RELEASE_MINUTES
from orchestrator.application.context import Context
from orchestrator.application.launch_run import LaunchOrder, check_order, find_payload
from orchestrator.domain.machine import Offers, Place, ProviderError
from orchestrator.domain.matrix import CellPlan, Matrix


@dataclass(frozen=True, slots=True)
class PlannedCell:
    """One cell as it would be launched."""

    cell: CellPlan
    places: tuple[Place, ...]
    """Where it would be tried, in order."""
    worst_usd: Decimal | None
    """What one attempt can cost at most, at the dearest place; None if a price is unknown."""
    note: str = ""
    """What the provider said instead of an offer."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a launch would do."""

    matrix: Matrix
    payload_digest: str
    cells: tuple[PlannedCell, ...]

    @property
    def worst_usd(self) -> Decimal | None:
        """Of one attempt of every cell; None if a price is unknown."""
        total = Decimal(0)
        for cell in self.cells:
            if cell.worst_usd is None:
                return None
            total += cell.worst_usd
        return total


def plan_run(context: Context, order: LaunchOrder) -> Plan:
    """Check the order as a launch would, and ask the providers what they offer.

    Raises InvalidDocumentError or PayloadMissingError.
    """
    payload = find_payload(context, order.payload)
    matrix, plans = check_order(context, order, payload)
    minutes = matrix.limits.max_minutes + RELEASE_MINUTES
    hours = Decimal(str(minutes)) / 60
    return Plan(matrix, payload.digest, tuple(_planned(context, plan, hours) for plan in plans))


def _planned(context: Context, plan: CellPlan, hours: Decimal) -> PlannedCell:
    provider = context.provider(plan.platform.provider)
    if not isinstance(provider, Offers):
        return PlannedCell(plan, (Place("here", price_usd_per_hour=Decimal(0)),), Decimal(0))
    document = {key: value for key, value in asdict(plan.platform).items() if value is not None}
    try:
        places = provider.places(document)
    except ProviderError as error:
        return PlannedCell(plan, (), None, str(error))
    prices = [place.price_usd_per_hour for place in places]
    known = [price for price in prices if price is not None]
    worst = max(known) * hours if known and len(known) == len(prices) else None
    return PlannedCell(plan, places, worst)
