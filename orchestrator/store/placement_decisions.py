"""Why a cell's machine is where it is, line by line."""

from __future__ import annotations

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from orchestrator.domain.cell import PlaceChoice
from orchestrator.store.column_types import short
from orchestrator.store.sql import attempt_row, insert_into
from orchestrator.store.tables import AttemptRow, CellRow, DecisionRow


def add_decision(session: Session, attempt_id: str, decision: PlaceChoice) -> None:
    """Keep one line; what was said before is not said again."""
    attempt = attempt_row(session, attempt_id, lock=True)
    last = select(func.max(DecisionRow.number)).where(DecisionRow.attempt == attempt.pk)
    row = {
        "attempt": attempt.pk,
        "number": (session.scalar(last) or 0) + 1,
        "at": decision.at,
        "place": short(decision.place),
        "verdict": decision.verdict,
        "reason": short(decision.reason),
        "detail": decision.detail,
    }
    session.execute(insert_into(session, DecisionRow).values(row).on_conflict_do_nothing())


def decisions_of(session: Session, run_id: str) -> dict[str, list[PlaceChoice]]:
    """By cell id; a cell without a line has an empty list."""
    query = (
        select(CellRow.id, DecisionRow, AttemptRow.number)
        .join(AttemptRow, AttemptRow.cell == CellRow.pk, isouter=True)
        .join(DecisionRow, DecisionRow.attempt == AttemptRow.pk, isouter=True)
        .where(CellRow.run_id == run_id)
        .order_by(CellRow.position, AttemptRow.number, DecisionRow.number)
    )
    found: dict[str, list[PlaceChoice]] = {}
    for cell_id, row, number in session.execute(query):
        mine = found.setdefault(cell_id, [])
        if row is not None:
            mine.append(_decision(row, number))
    return found


def _decision(row: DecisionRow, attempt: int) -> PlaceChoice:
    return PlaceChoice(
        at=row.at,
        place=row.place,
        verdict=row.verdict,
        reason=row.reason,
        detail=row.detail,
        attempt=attempt,
    )
