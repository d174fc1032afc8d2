"""The cells of a run, their phases, and the machines that they had."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from orchestrator.dashboard import urls
from orchestrator.dashboard.pages.run.timeline import PHASES, Phase, drawn, phases, spent, told
from orchestrator.dashboard.table import (
    Badge,
    Cell,
    Column,
    Drawn,
    Moment,
    Number,
    Row,
    Span,
    Table,
    Tally,
    Text,
    Usd,
)
from orchestrator.domain.cell import Attempt, CellState, PlaceAnswer
from orchestrator.domain.outcome import Counts, Outcome
from orchestrator.domain.run_record import CellRecord, LeaseRecord, RunRecord

_TONES = {Outcome.FAILED: "bad", Outcome.TIMED_OUT: "bad", Outcome.ERRORED: "bad"}
_CELLS = (
    Column("cell", "Cell"),
    Column("outcome", "Outcome"),
    Column("tests", "Tests"),
    Column("phases_s", "Phases"),
    Column("duration_s", "Took", is_number=True),
    Column("cost_usd", "Cost", is_number=True),
    Column("attempts", "Attempts", is_number=True),
    Column("log", "Log"),
)
_MACHINES = (
    Column("cell", "Cell"),
    Column("attempt", "Attempt", is_number=True),
    Column("machine", "Machine"),
    Column("place", "Place"),
    Column("state", "State"),
    Column("usd_per_hour", "Per hour", is_number=True),
    Column("held_s", "Held", is_number=True),
    Column("cost_usd", "Cost", is_number=True),
    Column("provider_said", "The provider said"),
)
_DECISIONS = (
    Column("at", "At"),
    Column("cell", "Cell"),
    Column("attempt", "Attempt", is_number=True),
    Column("place", "Place"),
    Column("decision", "Decision"),
    Column("why", "Why"),
)
_ATTEMPTS = (
    Column("cell", "Cell"),
    Column("attempt", "Attempt", is_number=True),
    Column("outcome", "Outcome"),
    Column("why", "Why"),
    Column("opened_at", "Began"),
    Column("duration_s", "Took", is_number=True),
)


def cell_table(record: RunRecord, now: datetime) -> Table:
    """One row a cell, with its life as a picture; all of them in one scale of time."""
    end = max([record.run.finished_at or now, record.run.created_at])
    rows = [_cell_row(record, cell, end, now) for cell in record.cells]
    return Table(
        id="cells",
        caption="Cells",
        columns=_CELLS,
        rows=rows,
        empty="The run has no cell: nothing of its matrix is left to do.",
        is_caption_hidden=True,
    )


def _cell_row(record: RunRecord, cell: CellRecord, end: datetime, now: datetime) -> Row:
    stays = phases(cell, record.run, now)
    is_done = cell.state is CellState.DONE
    picture = drawn(stays, record.run.created_at, end)
    seconds = [stay.seconds for stay in stays]
    href = urls.cell_url(record.run.id, cell.id)
    return Row(
        (
            Text(cell.id, href, note=_about(cell)),
            Badge(cell.outcome or cell.state, note=_why(cell)),
            Tally(shown_counts(cell), href),
            Drawn(picture, seconds, told(stays)),
            Span(_took(stays, is_done=is_done)),
            Usd(cell.cost_usd),
            Number(len(cell.attempts)),
            Text("log", urls.log_url(record.run.id, cell.id)),
        ),
        id=f"cell-{cell.id}",
        tone=_TONES.get(cell.outcome, "") if cell.outcome else "",
    )


def shown_counts(cell: CellRecord) -> Counts:
    """While a cell is at work, a test without a report is awaited, and not missing."""
    return cell.counts if cell.state is CellState.DONE else replace(cell.counts, missing=0)


def _took(stays: tuple[Phase, ...], *, is_done: bool) -> float | None:
    """Without the time that the cell only waited for its turn."""
    at_work = [stay for stay in stays if stay.state is not CellState.QUEUED]
    if not at_work and not is_done:
        return None
    return sum(stay.seconds for stay in at_work)


def _about(cell: CellRecord) -> str:
    parts = [
        cell.platform.provider,
        "optional" if cell.platform.optional else "",
        "SIMULATED: no gate accepts this" if cell.simulated else "",
        "ingested" if cell.ingested is not None else "",
    ]
    return ", ".join(part for part in parts if part)


def _why(cell: CellRecord) -> str:
    word = cell.reason.replace("_", " ")
    return ": ".join(part for part in (word, cell.detail) if part)


def phase_table(record: RunRecord, now: datetime) -> Table:
    """The picture's figures."""
    rows = []
    for cell in record.cells:
        seconds = spent(phases(cell, record.run, now))
        figures: list[Cell] = [Span(seconds.get(state)) for state in PHASES]
        rows.append(Row((Text(cell.id), *figures)))
    columns = [Column(f"{state}_s", state.capitalize(), is_number=True) for state in PHASES]
    return Table(
        id="phases",
        caption="How long each phase took, all attempts together",
        columns=(Column("cell", "Cell"), *columns),
        rows=rows,
    )


def attempt_table(record: RunRecord, now: datetime) -> Table:
    """Every try of the cells that were tried more than once, or went wrong outside their jobs."""
    some = [
        (cell, attempt)
        for cell in record.cells
        if len(cell.attempts) > 1 or any(one.cause for one in cell.attempts)
        for attempt in cell.attempts
    ]
    return Table(
        id="attempts",
        caption="Attempts",
        columns=_ATTEMPTS,
        rows=[_attempt_row(cell, attempt, now) for cell, attempt in some],
        empty="Every cell took one attempt.",
        is_caption_hidden=True,
    )


def _attempt_row(cell: CellRecord, attempt: Attempt, now: datetime) -> Row:
    cause = attempt.cause
    word = cause.reason.replace("_", " ") if cause else ""
    why = ": ".join(part for part in (word, cause.detail if cause else "") if part)
    return Row(
        (
            Text(cell.id),
            Number(attempt.number),
            Badge(attempt.outcome or cell.state),
            Text(why),
            Moment(attempt.opened_at),
            Span(((attempt.closed_at or now) - attempt.opened_at).total_seconds()),
        ),
        tone=_TONES.get(attempt.outcome, "") if attempt.outcome else "",
    )


def machine_table(record: RunRecord) -> Table:
    """Every machine that a cell had, or was refused."""
    leases = [(cell, lease) for cell in record.cells for lease in cell.leases]
    return Table(
        id="machines",
        caption="Machines",
        columns=_MACHINES,
        rows=[_machine_row(cell, lease) for cell, lease in leases],
        empty="No machine was asked for.",
        is_caption_hidden=True,
    )


def _machine_row(cell: CellRecord, lease: LeaseRecord) -> Row:
    kind = ", ".join(part for part in (lease.instance_type, lease.market) if part)
    where = lease.zone or lease.region
    return Row(
        (
            Text(cell.id),
            Number(lease.attempt),
            Text(lease.machine_id or "none", note=kind, is_code=bool(lease.machine_id)),
            Text(lease.place, note=where if where != lease.place else ""),
            Badge(lease.state),
            Usd(lease.price_usd_per_hour),
            Span(lease.seconds),
            Usd(lease.cost_usd),
            Text(lease.refusal),
        ),
        tone="warn" if lease.refusal else "",
    )


def decision_table(record: RunRecord) -> Table:
    """Why each machine is where it is."""
    lines = [(cell, line) for cell in record.cells for line in cell.decisions]
    rows = [
        Row(
            (
                Moment(line.at),
                Text(cell.id),
                Number(line.attempt),
                Text(line.place),
                Text(line.verdict),
                Text(": ".join(part for part in (line.reason, line.detail) if part)),
            ),
            tone="warn" if line.verdict is PlaceAnswer.REFUSED else "",
        )
        for cell, line in lines
    ]
    return Table(
        id="decisions",
        caption="Placement decisions",
        columns=_DECISIONS,
        rows=rows,
        empty="No place had to be chosen.",
    )
