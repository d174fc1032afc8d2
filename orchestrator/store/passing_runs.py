"""In which runs a platform passed: what a gate compares a new run with.

Runs of some jobs alone, such as a rerun of what failed, a second machine or a bisection, say
nothing of the others: they are no run of the platform here.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from sqlalchemy import exists, select
from sqlalchemy.orm import Session

from orchestrator.domain.cell import CellState
from orchestrator.domain.outcome import Counts, Outcome
from orchestrator.store.tables import (
    AttemptRow,
    CellPlanRow,
    CellRollupRow,
    CellRow,
    IngestRow,
    LeaseRow,
    RunRow,
    RunSpecRow,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LastGreen:
    """The newest run in which a platform passed."""

    run_id: str
    cell_id: str
    """Of its first environment."""
    cell: str
    """Its name."""
    collected: int
    """Tests of all its environments."""
    streak: int
    """So many runs in a row, this one the newest, in which it passed; counted up to 100."""


STREAK_LIMIT = 100
_AT_ONCE = 50
_LAST = chr(0x10FFFF)


@dataclass(frozen=True, slots=True)
class Asked:
    """What is wanted."""

    product: str
    platform: str
    before_run: str
    """Only runs that are older; empty: all."""
    ingested: bool
    """Whether what others produced counts."""


@dataclass(frozen=True, slots=True)
class _Cell:
    run: str
    id: str
    name: str
    outcome: Outcome | None
    collected: int


def last_green(session: Session, asked: Asked) -> LastGreen | None:
    """The newest run in which the platform passed."""
    for run, cells in _runs(session, asked):
        if all(cell.outcome is Outcome.PASSED for cell in cells):
            earlier = Asked(asked.product, asked.platform, run, asked.ingested)
            return LastGreen(
                run_id=run,
                cell_id=cells[0].id,
                cell=cells[0].name,
                collected=sum(cell.collected for cell in cells),
                streak=min(1 + streak(session, earlier), STREAK_LIMIT),
            )
    return None


def streak(session: Session, asked: Asked) -> int:
    """Runs in a row, from the newest on, in which the platform passed."""
    number = 0
    for _, cells in _runs(session, asked):
        if number == STREAK_LIMIT or any(c.outcome is not Outcome.PASSED for c in cells):
            break
        number += 1
    return number


def is_whole(session: Session, run_id: str) -> bool:
    """Whether the run was asked for every job that its matrix has."""
    row = session.get(RunSpecRow, run_id)
    return row is None or row.spec.only is None


def _runs(session: Session, asked: Asked) -> Iterator[tuple[str, list[_Cell]]]:
    """The platform's runs, newest first, each with its cells."""
    for run, cells in groupby(_cells(session, asked), key=lambda cell: cell.run):
        yield run, list(cells)


def _cells(session: Session, asked: Asked) -> Iterator[_Cell]:
    """Done cells of the platform on real machines, a page at a time."""
    simulated = exists().where(
        AttemptRow.cell == CellRow.pk, LeaseRow.attempt == AttemptRow.pk, LeaseRow.simulated
    )
    query = (
        select(CellRow, CellPlanRow.plan, CellRollupRow, RunRow.rerun_of)
        .join(RunRow, RunRow.id == CellRow.run_id)
        .join(CellPlanRow, CellPlanRow.cell == CellRow.pk)
        .join(CellRollupRow, CellRollupRow.cell == CellRow.pk)
        .where(RunRow.product == asked.product, CellRow.state == CellState.DONE, ~simulated)
        .where(CellRow.name.startswith(asked.platform, autoescape=True))
        .order_by(CellRow.run_id.desc(), CellRow.position)
        .limit(_AT_ONCE)
    )
    if not asked.ingested:
        query = query.where(~exists().where(IngestRow.cell == CellRow.pk))
    run, position = asked.before_run or _LAST, -1
    while True:
        older = CellRow.run_id < run
        later = (CellRow.run_id == run) & (CellRow.position > position)
        rows = session.execute(query.where(older | later if position >= 0 else older)).all()
        for row, plan, rollup, origin in rows:
            run, position = row.run_id, row.position
            platform = plan.platform
            if platform.id != asked.platform or platform.provider == "fake":
                continue
            if origin is None or is_whole(session, run):
                counts = Counts(**{name: getattr(rollup, name) for name in Counts().as_dict()})
                yield _Cell(run, row.id, row.name, row.outcome, counts.collected)
        if len(rows) < _AT_ONCE:
            return
