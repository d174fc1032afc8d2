"""What tells whether anything changed since an answer: the mark, and the change of one resource."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from sqlalchemy import ColumnElement, ScalarSelect, Select, String, bindparam, func, select

from orchestrator.store.audit_recorder import latest_change
from orchestrator.store.sessions import MARKS, Sessions, progress_marks
from orchestrator.store.tables import ChangeMarkRow


@dataclass(frozen=True, slots=True)
class ChangeState:
    """The state of the database at one moment."""

    mark: str
    """Another one after each transaction that changed something; empty before the first.

    It is made of all marks, and no mark is ever used again.
    """
    progress: str
    """The same of what jobs reported while they ran, which is not in `mark`: of one run, or all."""
    version: int
    """Number of the audit log's entry of the resource's latest change; 0 without one."""


class ChangeStore:
    """The latest changes."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def state(self, resource: str = "", *, run: str = "") -> ChangeState:
        """Return the present state.

        Args:
            resource: Whose version is returned (``schedules/nightly``); empty for none.
            run: Whose progress is returned; empty for that of all runs.
        """
        rows = progress_marks(run)
        asked = {"resource": resource, "first": rows.start, "last": rows.stop - 1}
        with self._sessions.read() as session:
            found = session.execute(_state(), asked).one()
        return ChangeState(found[0] or "", found[1] or "", found[2] or 0)


@cache
def _state() -> Select[str, str, int]:
    """Return the query for the marks; each request asks it, and making it takes longer."""
    progress = ChangeMarkRow.id.between(bindparam("first"), bindparam("last"))
    latest = latest_change(bindparam("resource", type_=String)).scalar_subquery()
    return select(_marks(ChangeMarkRow.id < MARKS), _marks(progress), latest)


def _marks(which: ColumnElement[bool]) -> ScalarSelect[str]:
    marks = select(ChangeMarkRow.mark).where(which).order_by(ChangeMarkRow.id).subquery()
    return select(func.aggregate_strings(marks.c.mark, " ")).scalar_subquery()
