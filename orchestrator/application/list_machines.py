"""Lists cloud resources of this project, as REST returns them."""

from __future__ import annotations

from orchestrator.application.context import Context
from orchestrator.application.janitor import CloudResource
from orchestrator.domain.extend_record import filled
from orchestrator.domain.inventory import DOOMED, InventoryResponse, ResourceResponse


def inventory_answer(context: Context, *, orphans: bool = False) -> InventoryResponse:
    """Return the inventory of all providers; with `orphans`, only resources without an owner."""
    report = context.janitor.survey()
    wanted = [one for one in report.sights if not orphans or one.ownership in DOOMED]
    items = tuple(resource_answer(context, one) for one in wanted)
    return InventoryResponse(items, report.unread, report.asked)


def resource_answer(context: Context, found: CloudResource) -> ResourceResponse:
    """Return one resource; run and cell come from its tags, the cell's name from the ledger."""
    machine, tags = found.machine, found.machine.tags
    cell = tags.get("seatrial-cell", "")
    if found.lease is not None:
        attempt = context.stores.cells.attempt(found.lease.attempt_id)
        cell = context.stores.cells.get(attempt.cell_id).name
    return filled(
        ResourceResponse,
        machine,
        provider=found.provider,
        ownership=found.ownership,
        run=tags.get("seatrial-run", ""),
        cell=cell,
        attempt=tags.get("seatrial-attempt", ""),
        controller=tags.get("seatrial-controller", ""),
        expires_at=found.expires_at,
        first_seen=found.first_seen,
        ends_after=found.ends_after,
    )
