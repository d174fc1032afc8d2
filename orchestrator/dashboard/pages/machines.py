"""What is rented now, until when, what nobody owns, and what went last."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from typing import Annotated

from fastapi import APIRouter, Path, Response

from orchestrator.application.cost_summary import is_real
from orchestrator.application.terminate_machine import (
    MachineInUseError,
    MachineMissingError,
    MachineStaysError,
    ProviderUnreadError,
    end_machine,
)
from orchestrator.dashboard import urls
from orchestrator.dashboard.pages.machine_tables import (
    gone_table,
    looks_table,
    orphans_of,
    orphans_table,
    rented_table,
)
from orchestrator.dashboard.responses import Asked, AskedDep, Page
from orchestrator.dashboard.session import Viewer, needs
from orchestrator.domain.money import machine_cost
from orchestrator.domain.person import Scope
from orchestrator.domain.units import plural, usd
from orchestrator.store.machine_list import Rented

_GONE_SHOWN = 20
_REFUSALS: dict[type[Exception], int] = {
    MachineMissingError: 404,
    MachineInUseError: 409,
    MachineStaysError: 409,
    ProviderUnreadError: 502,
}

router = APIRouter()


@router.get(urls.MACHINES)
def show_machines(asked: AskedDep) -> Response:
    """As the ledger has them, and as the janitor saw the clouds last. No cloud is asked."""
    return _answer(asked)


@router.post(urls.MACHINES + "/{provider}/{machine:path}/terminate")
def terminate(
    asked: AskedDep,
    provider: Annotated[str, Path()],
    machine: Annotated[str, Path()],
    _viewer: Annotated[Viewer, needs(Scope.ADMIN)],
) -> Response:
    """End what nobody owns; the cloud is asked, before and after."""
    try:
        end_machine(asked.context, provider, machine)
    except tuple(_REFUSALS) as error:
        return _answer(asked, refused=str(error), status=_REFUSALS[type(error)])
    asked.context.janitor.survey([provider])
    return asked.go(urls.MACHINES)


def _answer(asked: Asked, *, refused: str = "", status: int = 200) -> Response:
    rented = asked.context.stores.rented
    now = rented.now()
    looks = asked.context.janitor.looks.all()
    orphans = orphans_of(rented.sightings(), looks)
    tables = (
        orphans_table(asked, orphans),
        rented_table(asked, now),
        looks_table(asked, looks),
        gone_table(rented.gone(limit=_GONE_SHOWN), asked.now),
    )
    facts = {
        "parts": {table.id: table for table in tables},
        "orphans": orphans,
        "is_looked_at": bool(looks),
        "said": _said(asked, now, has_orphans=bool(orphans)),
        "refused": refused,
    }
    page = Page(
        template="machines.html.j2",
        title="Machines",
        tables=tables,
        facts=facts,
        section=urls.MACHINES,
    )
    return asked.answer(page, status=status)


def _said(asked: Asked, now: Sequence[Rented], *, has_orphans: bool) -> str:
    real = [one for one in now if is_real(one)]
    unreal = f"{plural(len(now) - len(real), 'simulated machine')}, no money"
    if not real:
        if has_orphans:
            return "No machine is rented for a run, and yet something is there."
        nothing = "No machine is running; nothing costs money."
        return nothing if not now else f"Nothing costs money: {unreal}."
    so_far = sum((machine_cost(one.lease, asked.now) for one in real), Decimal(0))
    by_hour = sum((one.lease.price_usd_per_hour or Decimal(0) for one in real), Decimal(0))
    said = f"{plural(len(real), 'machine')}: {usd(so_far)} so far, {usd(by_hour)} an hour"
    return said if len(real) == len(now) else f"{said}; {unreal}"
