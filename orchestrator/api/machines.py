"""Machines: cloud inventory, termination, and SSH access."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response, Security

from orchestrator.api.dependencies import CellDep, ContextDep
from orchestrator.api.security import bearer, secured
from orchestrator.application.emergency_stop import stop_everything
from orchestrator.application.machines import (
    end_machine,
    inventory_answer,
    resource_answer,
    ssh_access,
)
from orchestrator.domain.caller_identity import Scope
from orchestrator.domain.inventory import InventoryResponse, ResourceResponse, StopReport
from orchestrator.domain.machine import SshAccess

_ASKED = [Security(bearer)]
reading = APIRouter(tags=["machines"], route_class=secured(Scope.READ), dependencies=_ASKED)
writing = APIRouter(tags=["machines"], route_class=secured(Scope.ADMIN), dependencies=_ASKED)


@reading.get("/machines")
def list_machines(
    context: ContextDep,
    orphans: Annotated[
        bool, Query(description="Only what has no owner: orphan, expired and idle")
    ] = False,
) -> InventoryResponse:
    """List the project's cloud resources with their owners."""
    return inventory_answer(context, orphans=orphans)


@writing.post("/machines/terminate-all", status_code=202)
def terminate_all(context: ContextDep) -> StopReport:
    """The emergency stop: cancel every run, and end every machine of the project now.

    The machines are those in the clouds' inventories, also those of other controllers of the
    project. A machine whose launch is under way appears later: repeat the request until `items` is
    empty.
    """
    return stop_everything(context)


@writing.post("/machines/{provider}/{machine_id:path}/terminate", status_code=202)
def terminate_machine(
    context: ContextDep,
    provider: str,
    machine_id: Annotated[str, Path(description="As `GET /machines` shows it")],
) -> ResourceResponse:
    """Terminate a machine without an owner. A leased one is released by cancelling its run."""
    return resource_answer(context, end_machine(context, provider, machine_id))


@writing.get("/runs/{run_id}/cells/{cell}/access")
def get_access(context: ContextDep, cell: CellDep, response: Response) -> SshAccess:
    """Return SSH access to the machine that the cell holds, with its private key."""
    response.headers["Cache-Control"] = "no-store"
    return ssh_access(context, cell)
