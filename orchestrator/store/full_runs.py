"""Which runs were asked for every job of their matrix; and a look into stored JSON for that."""

from __future__ import annotations

from sqlalchemy import JSON, Text, cast, exists, func, or_, type_coerce
from sqlalchemy.orm import InstrumentedAttribute, Session
from sqlalchemy.sql.elements import ColumnElement

from orchestrator.store.sql import is_postgres
from orchestrator.store.tables import RunRow, RunSpecRow


def json_text(
    session: Session, document: InstrumentedAttribute[object], *path: str
) -> ColumnElement[str | None]:
    """What stands at a path of a document that is kept as text; NULL for null."""
    text = type_coerce(document, Text)
    if is_postgres(session):
        inside: ColumnElement[str | None] = cast(text, JSON)[path].as_string()
        return inside
    found: ColumnElement[str | None] = func.json_extract(text, "$." + ".".join(path))
    return found


def whole_runs(session: Session) -> ColumnElement[bool]:
    """True of runs that are no rerun, no second machine and no bisection of some jobs alone."""
    partial = exists().where(
        RunSpecRow.run_id == RunRow.id, json_text(session, RunSpecRow.spec, "only").is_not(None)
    )
    return or_(RunRow.rerun_of.is_(None), ~partial)
