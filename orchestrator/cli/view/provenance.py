"""Provenance of a run's results: machines with costs, or uploads."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from orchestrator.cli.safe_text import one_line
from orchestrator.cli.view.glyphs import word
from orchestrator.domain.attestation import Attestation, Device
from orchestrator.domain.cell import PlacementDecision
from orchestrator.domain.ingested import Ingested, Source
from orchestrator.domain.run_record import CellRecord, LeaseRecord, RunResponse
from orchestrator.domain.units import cents_of_cents, duration, plural, price

_REMARKS = 1
_INCONSISTENT = "bold red"


def ingested_block(ingested: Ingested) -> Iterator[RenderableType]:
    """Return two lines on the upload, and a row per file with its first remarks."""
    when = f"of {ingested.dated_at:%Y-%m-%d}" if ingested.is_dated else "not dated"
    head = f"  ingested, {one_line(ingested.provenance)}, {when}; nothing is attested"
    yield Text(head, style="dim")
    if ingested.repeated:
        said = f"  {plural(ingested.repeated, 'test')} in more than one file"
        if ingested.disagreements:
            said += f", {len(ingested.disagreements)} told differently: the worst counts"
        yield Text(said, style="yellow" if ingested.disagreements else "dim")
    table = Table.grid(padding=(0, 2, 0, 0))
    for _ in range(3):
        table.add_column(overflow="fold")
    for source in ingested.sources:
        table.add_row(f"  {one_line(source.name)}", _state(source), _styled(source))
    yield table


def _state(source: Source) -> Text:
    if source.state == "inconsistent":
        return Text("INCONSISTENT", style=_INCONSISTENT)
    return Text(one_line(source.state), style="dim")


def _styled(source: Source) -> Text:
    parts = [one_line(source.dialect)] if source.dialect else []
    if source.named is not None:
        parts.append(plural(source.named, "test"))
    parts += [one_line(remark) for remark in source.remarks[:_REMARKS]]
    more = len(source.remarks) - _REMARKS
    parts += [f"and {plural(more, 'more remark')}"] if more > 0 else []
    return Text("; ".join(parts))


SIMULATED = "SIMULATED: no gate accepts this"
_STYLES = {"chosen": "green", "refused": "yellow", "skipped": "dim", "last": "dim", "again": "cyan"}
_LOUD = "bold red"


def provenance(run: RunResponse) -> Group | None:
    """Return a block per cell with a rented machine; None without any."""
    blocks = [_block(cell) for cell in run.cells if is_worth_telling(cell)]
    return Group(*(part for block in blocks for part in block)) if blocks else None


def is_worth_telling(cell: CellRecord) -> bool:
    """Return whether the machine was rented, emulated or refused, or the cell was ingested."""
    if cell.ingested is not None:
        return True
    rented = any(lease.price_usd_per_hour or lease.market for lease in cell.leases)
    asked = any(decision.result != "chosen" for decision in cell.decisions)
    refused = any(lease.refusal for lease in cell.leases)
    return rented or asked or refused or cell.simulated


def _block(cell: CellRecord) -> Iterator[RenderableType]:
    head = Text().append("\n").append(one_line(cell.id), style="bold")
    if cell.simulated:
        head.append(f"  {SIMULATED}", style=_LOUD)
    yield head
    if cell.ingested is not None:
        yield from ingested_block(cell.ingested)
        return
    facts = Table.grid(padding=(0, 2, 0, 0))
    facts.add_column(no_wrap=True, style="dim")
    facts.add_column(overflow="fold")
    for name, text in (*_produced(cell), *_bills(cell)):
        facts.add_row(f"  {name}", text)
    if facts.row_count:
        yield facts
    if cell.decisions:
        yield Text("  where it ran, and why", style="dim")
        yield _decisions(cell.decisions)


def _produced(cell: CellRecord) -> Iterator[tuple[str, Text]]:
    """Yield the lines about the attested machine of the cell's results."""
    held = [lease for lease in cell.leases if lease.machine_id]
    if held:
        yield "instance", _text(_instance(held[-1]))
    if held and (held[-1].image_id or held[-1].image_name):
        yield "image", _text(f"{held[-1].image_id} {held[-1].image_name}".strip())
    told = cell.attestation
    if told is None:
        if held:
            yield "devices", _text("the machine did not tell")
        return
    yield from _attested(told)


def _attested(attestation: Attestation) -> Iterator[tuple[str, Text]]:
    for device in attestation.devices:
        yield "device", _text(_device(device))
    if not attestation.devices:
        yield "device", _text("none that its tools show")
    yield "torch", _text(attestation.torch or "unknown")
    if attestation.mismatch:
        yield "mismatch", Text(one_line(attestation.mismatch), style=_LOUD)


def _instance(lease: LeaseRecord) -> str:
    kind = ", ".join(part for part in (lease.instance_type, lease.market) if part)
    where = f" in {lease.zone or lease.place}" if lease.zone or lease.place else ""
    return f"{lease.machine_id} ({kind}){where}" if kind else f"{lease.machine_id}{where}"


def _device(device: Device) -> str:
    parts = (
        device.name or device.vendor,
        device.uuid,
        f"compute {device.compute_capability}" if device.compute_capability else "",
        f"driver {device.driver}" if device.driver else "",
    )
    return ", ".join(part for part in parts if part)


def _bills(cell: CellRecord) -> Iterator[tuple[str, Text]]:
    held = [lease for lease in cell.leases if lease.machine_id and lease.price_usd_per_hour]
    for lease in held:
        yield "bill", _text(_bill(lease))
    if len(held) > 1:
        total = sum((lease.bill.total_usd for lease in held), Decimal(0))
        yield "together", _text(cents_of_cents(total))


def _bill(lease: LeaseRecord) -> str:
    bill = lease.bill
    parts = [f"{cents_of_cents(bill.machine_usd)} machine"]
    parts += [f"{cents_of_cents(bill.disk_usd)} disk"] if bill.disk_usd else []
    parts += [f"{cents_of_cents(bill.address_usd)} address"] if bill.address_usd else []
    rate = f"{duration(lease.billed_s or lease.seconds)} at {price(lease.price_usd_per_hour)}/h"
    source = f"; {lease.priced}" if lease.priced else ""
    total = f" = {cents_of_cents(bill.total_usd)}" if len(parts) > 1 else ""
    going = "" if lease.state == "gone" else ", so far"
    return f"{' + '.join(parts)}{total}{going} ({rate}{source})"


def _decisions(decisions: tuple[PlacementDecision, ...]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True, style="dim")
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold", ratio=1)
    many = len({decision.attempt for decision in decisions}) > 1
    for decision in decisions:
        when = f"  {decision.at:%H:%M:%S}" + (f" #{decision.attempt}" if many else "")
        result = Text(word(decision.term), style=_STYLES.get(decision.result, ""))
        table.add_row(when, result, _why(decision))
    return table


def _why(decision: PlacementDecision) -> Text:
    line = Text(one_line(decision.place))
    said = ": ".join(one_line(part) for part in (decision.reason, decision.detail) if part)
    return line.append(f"  {said}", style="dim") if said else line


def _text(value: str) -> Text:
    return Text(one_line(value))
