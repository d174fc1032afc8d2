"""Machines: what the clouds show of this project, ending one, and the way into a cell's."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import APIRouter, Path, Query, Response, Security

from orchestrator.api.dependencies import CellDep, ContextDep
from orchestrator.api.models import ResponseModel, Usd, documented
from orchestrator.api.security import bearer, secured
from orchestrator.application.context import Context
from orchestrator.application.janitor import DOOMED, CloudResource, Ownership
from orchestrator.application.ssh_access import SshAccess, ssh_access
from orchestrator.application.terminate_machine import end_machine
from orchestrator.domain.attestation import Attestation, Device
from orchestrator.domain.cell import PlacementDecision
from orchestrator.domain.machine import MachineState
from orchestrator.domain.person import Scope
from orchestrator.domain.run_record import LeaseRecord

documented(Attestation, Device, SshAccess, PlacementDecision)


class BillResponse(ResponseModel):
    """What was or will be paid; the parts come to the total."""

    machine_usd: Usd
    disk_usd: Usd
    address_usd: Usd
    total_usd: Usd


class MachineResponse(ResponseModel):
    """A machine as the ledger has it."""

    provider: str
    place: str
    id: str
    """As its provider calls it; empty where none was given."""
    address: str
    state: str
    """Of the lease: reserved, launching, held, releasing or gone."""
    price_usd_per_hour: Usd | None
    seconds: float
    """From the launch call until it was gone, or until now."""
    instance_type: str
    market: str
    """``spot`` or ``on-demand``."""
    region: str
    zone: str
    image_id: str
    image_name: str
    simulated: bool
    """Its provider is an emulation: no gate accepts what it produced."""


class LeaseResponse(MachineResponse):
    """One row of the ledger."""

    attempt: int
    cost_usd: Usd
    """What was settled, or what it comes to so far."""
    bill: BillResponse
    """The parts of the cost."""
    billed_s: int
    """Seconds of the machine's price: whole ones, and at least the offer's minimum."""
    priced: str
    """Where its prices are from, and of when."""
    refusal: str
    """The provider's answer where it gave no machine."""


class CloudResourceResponse(ResponseModel):
    """One thing that a cloud shows, and what is made of it."""

    provider: str
    id: str
    kind: str
    """``machine``, or what else costs or lingers: ``disk``, ``firewall`` ..."""
    state: MachineState
    ownership: Ownership
    """``orphan``, ``expired`` and ``idle`` are ended by the janitor; the others are not."""
    run: str
    cell: str
    """Its name in the run; of another controller's machine, its id."""
    attempt: str
    token: str
    controller: str
    expires_at: datetime | None
    first_seen: datetime | None
    """When it was first seen without an owner."""
    ends_after: datetime | None
    """When the janitor will end it, if nothing changes."""
    detail: str
    facts: dict[str, str]
    simulated: bool


class InventoryResponse(ResponseModel):
    """Everything that the clouds show of this project."""

    items: list[CloudResourceResponse]
    unread: dict[str, str]
    """Providers that could not be asked, with the reason: nothing is known of these."""


_ASKED = [Security(bearer)]
reading = APIRouter(tags=["machines"], route_class=secured(Scope.READ), dependencies=_ASKED)
writing = APIRouter(tags=["machines"], route_class=secured(Scope.ADMIN), dependencies=_ASKED)


@reading.get("/machines")
def list_machines(
    context: ContextDep,
    orphans: Annotated[
        bool, Query(description="Only what nobody owns: orphan, expired and idle")
    ] = False,
) -> InventoryResponse:
    """Ask the clouds what they have of this project, and say whose each thing is."""
    survey = context.janitor.survey()
    wanted = [s for s in survey.sights if not orphans or s.ownership in DOOMED]
    return InventoryResponse(
        items=[_told(context, sight) for sight in wanted], unread=dict(survey.unread)
    )


@writing.post("/machines/{provider}/{machine_id:path}/terminate", status_code=202)
def terminate_machine(
    context: ContextDep,
    provider: str,
    machine_id: Annotated[str, Path(description="As `GET /machines` shows it")],
) -> CloudResourceResponse:
    """End now what nobody owns. A leased machine goes by cancelling its run."""
    return _told(context, end_machine(context, provider, machine_id))


@writing.get("/runs/{run_id}/cells/{cell}/access")
def get_access(context: ContextDep, cell: CellDep, response: Response) -> SshAccess:
    """How to sign in on the machine that the cell holds now, with the private key to it."""
    response.headers["Cache-Control"] = "no-store"
    return ssh_access(context, cell)


def _told(context: Context, sight: CloudResource) -> CloudResourceResponse:
    """By the name that its run calls the cell, where the ledger knows it; the tag has an id."""
    if sight.lease is None:
        return cloud_resource_response(sight)
    attempt = context.stores.cells.attempt(sight.lease.attempt_id)
    return cloud_resource_response(sight, cell=context.stores.cells.get(attempt.cell_id).name)


def tell_machine(lease: LeaseRecord) -> MachineResponse:
    """The machine of a lease."""
    return MachineResponse.of(lease, id=lease.machine_id)


def tell_lease(lease: LeaseRecord) -> LeaseResponse:
    """A row of the ledger."""
    return LeaseResponse.of(lease, id=lease.machine_id)


def cloud_resource_response(sight: CloudResource, *, cell: str = "") -> CloudResourceResponse:
    """What a cloud shows. Its tags say whose it is; they are the cloud's words."""
    machine, tags = sight.machine, sight.machine.tags
    return CloudResourceResponse.of(
        machine,
        sight,
        run=tags.get("seatrial-run", ""),
        cell=cell or tags.get("seatrial-cell", ""),
        attempt=tags.get("seatrial-attempt", ""),
        controller=tags.get("seatrial-controller", ""),
    )
