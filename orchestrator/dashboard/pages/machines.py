"""The page of rented machines, orphans, and the latest inventory of each provider."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Annotated

from fastapi import APIRouter, Path, Response

from orchestrator.application.cell.flow_context import billed_minutes_of
from orchestrator.application.cost_summary import is_real
from orchestrator.application.emergency_stop import stop_everything
from orchestrator.application.janitor import ORPHAN_GRACE, CloudResource, LastLook
from orchestrator.application.machines import (
    MachineInUseError,
    MachineMissingError,
    MachineStaysError,
    ProviderUnreadError,
    end_machine,
)
from orchestrator.dashboard import urls
from orchestrator.dashboard.responses import Page, PageRequest, PageRequestDep
from orchestrator.dashboard.session import Viewer, needs
from orchestrator.dashboard.table import (
    Act,
    Badge,
    Column,
    Moment,
    Row,
    Span,
    Table,
    TableCell,
    Text,
    Usd,
)
from orchestrator.domain.caller_identity import Scope
from orchestrator.domain.charges import cost_of
from orchestrator.domain.inventory import DOOMED, Orphan
from orchestrator.domain.money import machine_cost, machine_seconds
from orchestrator.domain.units import plural, price, usd
from orchestrator.store.machines import Rented

_ORPHAN = "orphan"
_OVERDUE = "the janitor should have ended it: look at the controller's log"


@dataclass(frozen=True, slots=True, kw_only=True)
class OrphanRow:
    """An orphan: a billed resource without an owner."""

    provider: str
    machine: str
    kind: str
    ownership: str
    state: str
    first_seen: datetime
    ends_after: datetime
    run: str = ""
    detail: str = ""


def orphans_of(sightings: Sequence[Orphan], looks: Mapping[str, LastLook]) -> Sequence[OrphanRow]:
    """Return orphans from the janitor's notes and this process's state, oldest first."""
    sights = {
        (sight.provider, sight.machine.id): sight
        for look in looks.values()
        for sight in look.resources
        if sight.ownership in DOOMED
    }
    return [_orphan(one, sights.get((one.provider, one.machine_id))) for one in sightings]


def _orphan(one: Orphan, cloud_resource: CloudResource | None) -> OrphanRow:
    if cloud_resource is None:
        return OrphanRow(
            provider=one.provider,
            machine=one.machine_id,
            kind="",
            ownership=_ORPHAN,
            state="",
            first_seen=one.first_seen,
            ends_after=one.first_seen + ORPHAN_GRACE,
        )
    return OrphanRow(
        provider=one.provider,
        machine=one.machine_id,
        kind=cloud_resource.machine.kind,
        ownership=cloud_resource.ownership.value,
        state=cloud_resource.machine.state.value,
        first_seen=one.first_seen,
        ends_after=cloud_resource.ends_after or one.first_seen + ORPHAN_GRACE,
        run=cloud_resource.machine.tags.get("seatrial-run", ""),
        detail=cloud_resource.machine.detail,
    )


def orphans_table(request: PageRequest, orphans: Sequence[OrphanRow]) -> Table:
    """Return the table of orphans."""
    may_end = request.viewer.may("admin")
    columns = (
        Column("machine", "Machine"),
        Column("provider", "Provider"),
        Column("ownership", "Ownership"),
        Column("age", "First seen"),
        Column("ends_after", "Ended after"),
        Column("run", "Run"),
        *((Column("action", "Action", is_title_hidden=True),) if may_end else ()),
    )
    rows = []
    for one in orphans:
        cells: list[TableCell] = [
            Text(one.machine, is_code=True, note=" ".join(filter(None, (one.kind, one.state)))),
            Text(one.provider),
            Badge(one.ownership, note=one.detail if request.now < one.ends_after else _OVERDUE),
            Moment(one.first_seen, request.now),
            Moment(one.ends_after),
            Text(one.run, urls.run_url(one.run), is_code=True) if one.run else Text("–"),
        ]
        if may_end:
            href = urls.end_machine_url(one.provider, one.machine)
            cells.append(Act("End", href, request.viewer.csrf(), one.machine))
        rows.append(Row(tuple(cells), tone="bad"))
    return Table(
        id="orphans",
        caption="Orphans",
        columns=columns,
        rows=rows,
        empty="No resource without an owner.",
    )


def rented_table(request: PageRequest, rented: Sequence[Rented]) -> Table:
    """Return the table of machines in the ledger that are not terminated."""
    return Table(
        id="rented",
        caption="Rented now",
        columns=(
            Column("machine", "Machine"),
            Column("provider", "Provider"),
            Column("cell", "Cell"),
            Column("state", "State"),
            Column("age_s", "Age", is_number=True),
            Column("cost_usd", "Cost so far", is_number=True),
            Column("deadline", "Deadline"),
            Column("expires_at", "Terminates itself"),
        ),
        rows=[_rented_row(one, request.now) for one in rented],
        empty="No machine is rented. A run whose matrix names a cloud rents them.",
    )


def _rented_row(one: Rented, now: datetime) -> Row:
    lease = one.lease
    expires = _expires(one)
    deadline = _deadline(one)
    is_late = now > expires
    return Row(
        (
            Text(lease.machine_id or "asked for", is_code=bool(lease.machine_id), note=_what(one)),
            Text(lease.provider, note=_unreal(one)),
            Text(one.cell, urls.cell_url(one.run, one.cell), note=f"run {one.run}"),
            Badge(lease.state.value, urls.run_url(one.run), note=f"cell {one.state}"),
            Span((now - (lease.launched_at or lease.reserved_at)).total_seconds()),
            Usd.of(cost_of(lease, machine_cost(lease, now)), is_loud=is_late),
            Moment(deadline) if deadline is not None else Text("once granted"),
            Moment(expires),
        ),
        tone="bad" if is_late else "",
    )


def _what(one: Rented) -> str:
    """Return the machine's type, place and price."""
    lease = one.lease
    hourly = f"{price(lease.price_usd_per_hour)}/h" if lease.price_usd_per_hour else ""
    return ", ".join(part for part in (lease.instance_type, lease.place, hourly) if part)


def _unreal(one: Rented) -> str:
    return "" if is_real(one) else "simulated: no money"


def _deadline(one: Rented) -> datetime | None:
    """Return the time at which the machine's attempt must stop; None if unknown."""
    granted = one.lease.granted_at
    return None if granted is None else granted + timedelta(minutes=one.max_minutes)


def _expires(one: Rented) -> datetime:
    """Return the time at which the machine terminates itself without a controller."""
    begin = one.lease.launched_at or one.lease.reserved_at
    return begin + timedelta(minutes=billed_minutes_of(one.max_minutes, one.hold_minutes))


def looks_table(request: PageRequest, looks: Mapping[str, LastLook]) -> Table:
    """Return the latest inventory answer of each provider."""
    return Table(
        id="providers",
        caption="Latest answers of the providers",
        columns=(
            Column("provider", "Provider"),
            Column("asked_at", "Last checked"),
            Column("said", "Response"),
        ),
        rows=[_look_row(request, name, look) for name, look in looks.items()],
        empty=(
            "No cloud was asked yet. One is asked where this controller has credentials of it, or"
            " its ledger a machine."
        ),
    )


def _look_row(request: PageRequest, name: str, look: LastLook) -> Row:
    if look.unread:
        answered = f"it answered last at {look.read_at:%H:%M} UTC" if look.read_at else ""
        said: TableCell = Badge("unknown", note=" ".join(filter(None, (look.unread, answered))))
    else:
        said = Text(_counted(look.resources))
    return Row((Text(name), Moment(look.at, request.now), said), tone="warn" if look.unread else "")


def _counted(cloud_resources: Sequence[CloudResource]) -> str:
    kinds = Counter((sight.machine.kind, sight.ownership.value) for sight in cloud_resources)
    told = [
        f"{plural(many, kind)} {ownership}" for (kind, ownership), many in sorted(kinds.items())
    ]
    return ", ".join(told) or "nothing of this project"


def gone_table(gone: Sequence[Rented], now: datetime) -> Table:
    """Return the table of machines that ended last, including this computer and hosts."""
    return Table(
        id="gone",
        caption="Given back last",
        columns=(
            Column("machine", "Machine"),
            Column("provider", "Provider"),
            Column("cell", "Cell"),
            Column("gone_at", "Gone"),
            Column("held_s", "Held", is_number=True),
            Column("cost_usd", "Cost", is_number=True),
        ),
        rows=[_gone_row(one, now) for one in gone],
        empty="No machine was ever given back here.",
    )


def _gone_row(one: Rented, now: datetime) -> Row:
    lease = one.lease
    seconds = machine_seconds(lease, now)
    return Row(
        (
            Text(lease.machine_id, is_code=True, note=_what(one) if seconds else "never held"),
            Text(lease.provider, note=_unreal(one)),
            Text(one.cell, urls.cell_url(one.run, one.cell), note=f"run {one.run}"),
            Moment(lease.gone_at),
            Span(seconds or None),
            Usd.of(cost_of(lease, machine_cost(lease, now))),
        )
    )


_GONE_SHOWN = 20
_REFUSALS: dict[type[Exception], int] = {
    MachineMissingError: 404,
    MachineInUseError: 409,
    MachineStaysError: 409,
    ProviderUnreadError: 502,
}

router = APIRouter()


@router.get(urls.MACHINES)
def show_machines(request: PageRequestDep) -> Response:
    """Show machines from the ledger and the janitor's last inventory. No cloud is queried."""
    return _answer(request)


@router.post(urls.MACHINES + "/terminate-all")
def terminate_all(
    request: PageRequestDep, _viewer: Annotated[Viewer, needs(Scope.ADMIN)]
) -> Response:
    """Cancel every run and terminate every machine of the project: the emergency stop."""
    report = stop_everything(request.context)
    failures = [f"{one.provider} {one.id}: {one.failure}" for one in report.items if one.failure]
    failures += [f"{name} could not be asked: {why}" for name, why in report.unread.items()]
    if not report.asked:
        failures.append("no cloud could be asked: this controller has credentials of none")
    if report.not_cancelled:
        failures.append(f"runs go on, and may launch machines again: {report.not_cancelled}")
    if failures:
        said = "Something may still be billed. " + "; ".join(failures)
        return _answer(request, refused=said, status=502)
    return request.go(urls.MACHINES)


@router.post(urls.MACHINES + "/{provider}/{machine:path}/terminate")
def terminate(
    request: PageRequestDep,
    provider: Annotated[str, Path()],
    machine: Annotated[str, Path()],
    _viewer: Annotated[Viewer, needs(Scope.ADMIN)],
) -> Response:
    """Terminate an orphan; the provider is asked before and after."""
    try:
        end_machine(request.context, provider, machine)
    except tuple(_REFUSALS) as error:
        return _answer(request, refused=str(error), status=_REFUSALS[type(error)])
    request.context.janitor.take_inventory([provider])
    return request.go(urls.MACHINES)


def _answer(request: PageRequest, *, refused: str = "", status: int = 200) -> Response:
    rented = request.context.stores.machines
    now = rented.now()
    looks = request.context.janitor.looks.all()
    orphans = orphans_of(rented.sightings(), looks)
    tables = (
        orphans_table(request, orphans),
        rented_table(request, now),
        looks_table(request, looks),
        gone_table(rented.gone(limit=_GONE_SHOWN), request.now),
    )
    facts = {
        "parts": {table.id: table for table in tables},
        "orphans": orphans,
        "is_looked_at": bool(looks),
        "said": _sentence(request, now, has_orphans=bool(orphans)),
        "refused": refused,
        "project": request.context.project,
    }
    page = Page(
        template="machines.html.j2",
        title="Machines",
        tables=tables,
        facts=facts,
        section=urls.MACHINES,
    )
    return request.answer(page, status=status)


def _sentence(request: PageRequest, now: Sequence[Rented], *, has_orphans: bool) -> str:
    real = [one for one in now if is_real(one)]
    unreal = f"{plural(len(now) - len(real), 'simulated machine')}, no money"
    if not real:
        if has_orphans:
            return "No machine is rented for a run, and yet something is there."
        nothing = "No machine is running; nothing costs money."
        return nothing if not now else f"Nothing costs money: {unreal}."
    so_far = sum((machine_cost(one.lease, request.now) for one in real), Decimal(0))
    by_hour = sum((one.lease.price_usd_per_hour or Decimal(0) for one in real), Decimal(0))
    said = f"{plural(len(real), 'machine')}: {usd(so_far)} so far, {usd(by_hour)} an hour"
    return said if len(real) == len(now) else f"{said}; {unreal}"
