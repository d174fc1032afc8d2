"""Cells as histories name them: where they were, and when it happened."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from orchestrator.store.sql import slices
from orchestrator.store.tables import CellPlanRow, CellRow, IngestRow


@dataclass(frozen=True, slots=True)
class DatedCell:
    """A cell among those of many runs."""

    name: str
    platform: str
    """The platform's id."""
    dated_at: datetime | None
    """When it is said to have happened; None where that is when its run was launched."""


Cells = Mapping[int, DatedCell]


def cells_of(session: Session, cells: Iterable[int]) -> Cells:
    """By the cell's number."""
    query = (
        select(CellRow.pk, CellRow.name, CellPlanRow.plan, IngestRow.document)
        .join(CellPlanRow, CellPlanRow.cell == CellRow.pk)
        .join(IngestRow, IngestRow.cell == CellRow.pk, isouter=True)
    )
    found: dict[int, DatedCell] = {}
    for some in slices(sorted(cells)):
        for pk, name, plan, ingested in session.execute(query.where(CellRow.pk.in_(some))):
            dated = ingested.dated_at if ingested is not None else None
            found[pk] = DatedCell(name, plan.platform.id, dated)
    return found
