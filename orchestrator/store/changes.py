"""The state of the database, by which a cached answer is found to be out of date."""

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
    """Text that differs after each transaction with a change; empty before the first.

    It is made of all marks, and no mark is ever used again.
    """
    progress: str
    """Like `mark`, but for reports of running jobs, of one run or of all runs."""
    version: int
    """Number of the audit log's entry for the resource's latest change; 0 without one."""


class ChangeStore:
    """Reads marks and versions of changes."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def state(self, resource: str = "", *, run: str = "") -> ChangeState:
        """Return the present state.

        Args:
            resource: The resource of `version`, as ``schedules/nightly``; empty for none.
            run: The run of `progress`; empty for all runs.
        """
        rows = progress_marks(run)
        asked = {"resource": resource, "first": rows.start, "last": rows.stop - 1}
        with self._sessions.read() as session:
            found = session.execute(_state(), asked).one()
        return ChangeState(found[0] or "", found[1] or "", found[2] or 0)


@cache
def _state() -> Select[str, str, int]:
    """Return the query for the marks, built once, because building takes longer than running it."""
    progress = ChangeMarkRow.id.between(bindparam("first"), bindparam("last"))
    latest = latest_change(bindparam("resource", type_=String)).scalar_subquery()
    return select(_marks(ChangeMarkRow.id < MARKS), _marks(progress), latest)


def _marks(which: ColumnElement[bool]) -> ScalarSelect[str]:
    marks = select(ChangeMarkRow.mark).where(which).order_by(ChangeMarkRow.id).subquery()
    return select(func.aggregate_strings(marks.c.mark, " ")).scalar_subquery()
