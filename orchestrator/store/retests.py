"""Retest sessions of failed tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from orchestrator.domain.cell import CellState
from orchestrator.domain.grouping import grouped
from orchestrator.domain.retests import (
    Retest,
    RetestPlan,
    RetestSession,
    RetestSessionState,
    retests_of,
)
from orchestrator.store.column_types import short
from orchestrator.store.errors import UnknownIdError
from orchestrator.store.sessions import Sessions
from orchestrator.store.sql import attempt_row, run_row
from orchestrator.store.tables import (
    AttemptRow,
    CellRow,
    RetestSessionRow,
)


class NoRetestsError(RuntimeError):
    """The cell's machine does not accept retests (any more)."""

    @classmethod
    def because(cls, cell: str, state: CellState) -> NoRetestsError:
        """Return the error for a cell that is not diagnosing."""
        return cls(
            f"cell {cell} is {state}: its machine takes no retests;"
            " `seatrial gate bisect RUN` begins a search on a machine that waits for them"
        )


class RetestStore:
    """Retest sessions of failed tests.

    Each method is one transaction.
    """

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def ask(self, attempt_id: str, ask: RetestPlan, *, at: datetime) -> RetestSession:
        """Store a requested session; idempotent by key within an attempt.

        Raises NoRetestsError unless the cell is diagnosing: otherwise nothing would run it.
        """
        with self._sessions.write() as session:
            attempt = attempt_row(session, attempt_id)
            cell = _locked_cell(session, attempt)
            mine = select(RetestSessionRow).where(RetestSessionRow.attempt == attempt.pk)
            known = session.scalars(
                mine.where(RetestSessionRow.key == short(ask.key))
            ).one_or_none()
            if known is not None:
                return known.document
            if cell.state is not CellState.DIAGNOSING:
                raise NoRetestsError.because(cell.name, cell.state)
            count = select(func.count()).select_from(mine.subquery())
            number = session.scalar(count) or 0
            retest_session = RetestSession(
                id=f"{attempt_id}-t{number + 1}",
                attempt_id=attempt_id,
                number=number + 1,
                ask=ask,
                asked_at=at,
            )
            row = RetestSessionRow(
                id=retest_session.id,
                attempt=attempt.pk,
                run_id=cell.run_id,
                key=short(ask.key),
                document=retest_session,
            )
            session.add(row)
            session.flush()
            return retest_session

    def begin(self, retest_session_id: str, *, at: datetime) -> None:
        """Change from REQUESTED to RUNNING; idempotent."""
        with self._sessions.write() as session:
            row = _row(session, retest_session_id)
            if row.document.state is RetestSessionState.REQUESTED:
                row.document = replace(
                    row.document, state=RetestSessionState.RUNNING, started_at=at
                )

    def end(
        self,
        retest_session_id: str,
        *,
        at: datetime,
        outcomes: Sequence[Mapping[str, str]] = (),
        trouble: str = "",
        evidence: str = "",
    ) -> None:
        """Change to ENDED, with the outcomes; idempotent."""
        with self._sessions.write() as session:
            row = _row(session, retest_session_id)
            if row.document.state is RetestSessionState.ENDED:
                return
            row.document = replace(
                row.document,
                state=RetestSessionState.ENDED,
                ended_at=at,
                outcomes=tuple(outcomes),
                trouble=trouble,
                evidence=evidence,
            )

    def of_attempt(self, attempt_id: str) -> tuple[RetestSession, ...]:
        """Return the attempt's retest sessions, oldest first."""
        query = (
            select(RetestSessionRow)
            .join(AttemptRow, AttemptRow.pk == RetestSessionRow.attempt)
            .where(AttemptRow.id == attempt_id)
            .order_by(RetestSessionRow.pk)
        )
        return tuple(row.document for row in self._sessions.scalars(query))

    def of_run(self, run_id: str) -> Mapping[str, tuple[Retest, ...]]:
        """Return sessions that ran, in order, by cell name; cells without any are left out."""
        query = (
            select(CellRow.name, RetestSessionRow)
            .join(AttemptRow, AttemptRow.pk == RetestSessionRow.attempt)
            .join(CellRow, CellRow.pk == AttemptRow.cell)
            .where(RetestSessionRow.run_id == run_id)
            .order_by(RetestSessionRow.attempt, RetestSessionRow.pk)
        )
        found = grouped((name, row.document) for name, row in self._sessions.rows(query))
        return {name: retests for name, each in found.items() if (retests := _latest(each))}

    def end_retests(self, attempt_id: str, *, at: datetime) -> None:
        """Accept no further retests of the attempt, so that its machine is released."""
        with self._sessions.write() as session:
            attempt = attempt_row(session, attempt_id)
            attempt.retests_ended_at = attempt.retests_ended_at or at

    def are_retests_ended(self, attempt_id: str) -> bool:
        """Return whether the attempt accepts no further retests."""
        with self._sessions.read() as session:
            return attempt_row(session, attempt_id).retests_ended_at is not None

    def add_confirmation(self, run_id: str, confirmation_run_id: str) -> str:
        """Store the run that repeats a run's failures elsewhere, unless one is stored already.

        Returns the id of the one that is stored.
        """
        with self._sessions.write() as session:
            run = run_row(session, run_id, lock=True)
            run.confirmation_run_id = run.confirmation_run_id or confirmation_run_id
            return run.confirmation_run_id

    def confirmation_of(self, run_id: str) -> str | None:
        """Return the id of the run that repeats a run's failures on another machine."""
        with self._sessions.read() as session:
            return run_row(session, run_id).confirmation_run_id


def _locked_cell(session: Session, attempt: AttemptRow) -> CellRow:
    """Lock the cell, so that its state and its requests do not change within the transaction."""
    query = select(CellRow).where(CellRow.pk == attempt.cell).with_for_update(key_share=True)
    return session.scalars(query.execution_options(populate_existing=True)).one()


def _row(session: Session, retest_session_id: str) -> RetestSessionRow:
    """Return the locked session. Raises UnknownIdError."""
    query = (
        select(RetestSessionRow).where(RetestSessionRow.id == retest_session_id).with_for_update()
    )
    found = session.scalars(query).one_or_none()
    if found is None:
        raise UnknownIdError("retest session", retest_session_id)
    return found


def _latest(retest_sessions: list[RetestSession]) -> tuple[Retest, ...]:
    return retests_of(s for s in retest_sessions if s.attempt_id == retest_sessions[-1].attempt_id)
