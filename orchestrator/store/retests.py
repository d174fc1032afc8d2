"""More executions of failed tests on the same machine, with one thing changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from orchestrator.domain.cell import CellState
from orchestrator.domain.retests import (
    RetestSession,
    RetestSessionState,
    Trial,
    TrialAsk,
    trials_of,
)
from orchestrator.store.column_types import short
from orchestrator.store.errors import UnknownIdError
from orchestrator.store.sessions import Sessions
from orchestrator.store.sql import attempt_row, insert_into, run_row
from orchestrator.store.tables import AttemptRow, CellRow, DismissalRow, SecondRunRow, SittingRow


class NoTrialsError(RuntimeError):
    """The cell's machine does not wait for trials (any more)."""

    @classmethod
    def because(cls, cell: str, state: CellState) -> NoTrialsError:
        """The cell of this name is not diagnosing."""
        return cls(
            f"cell {cell} is {state}: its machine takes no trials;"
            " `seatrial gate bisect RUN` begins a search on a machine that waits for them"
        )


class TrialStore:
    """More executions of failed tests on the same machine, with one thing changed.

    Each method is one transaction.
    """

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def ask(self, attempt_id: str, ask: TrialAsk, *, at: datetime) -> RetestSession:
        """Store what is to be tried; the same key of an attempt is stored once.

        Raises NoTrialsError where the cell is not diagnosing, as nobody would try it.
        """
        with self._sessions.write() as session:
            attempt = attempt_row(session, attempt_id)
            cell = _locked_cell(session, attempt)
            mine = select(SittingRow).where(SittingRow.attempt == attempt.pk)
            known = session.scalars(mine.where(SittingRow.key == short(ask.key))).one_or_none()
            if known is not None:
                return known.document
            if cell.state is not CellState.DIAGNOSING:
                raise NoTrialsError.because(cell.name, cell.state)
            count = select(func.count()).select_from(mine.subquery())
            number = session.scalar(count) or 0
            sitting = RetestSession(
                id=f"{attempt_id}-t{number + 1}",
                attempt_id=attempt_id,
                number=number + 1,
                ask=ask,
                asked_at=at,
            )
            row = SittingRow(
                id=sitting.id,
                attempt=attempt.pk,
                run_id=cell.run_id,
                key=short(ask.key),
                document=sitting,
            )
            session.add(row)
            session.flush()
            return sitting

    def begin(self, sitting_id: str, *, at: datetime) -> None:
        """From ASKED to RUNNING; nothing when past."""
        with self._sessions.write() as session:
            row = _row(session, sitting_id)
            if row.document.state is RetestSessionState.ASKED:
                row.document = replace(
                    row.document, state=RetestSessionState.RUNNING, started_at=at
                )

    def end(
        self,
        sitting_id: str,
        *,
        at: datetime,
        outcomes: Sequence[Mapping[str, str]] = (),
        trouble: str = "",
        evidence: str = "",
    ) -> None:
        """To ENDED, with what came of it; nothing when there."""
        with self._sessions.write() as session:
            row = _row(session, sitting_id)
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
        """In order."""
        query = (
            select(SittingRow)
            .join(AttemptRow, AttemptRow.pk == SittingRow.attempt)
            .where(AttemptRow.id == attempt_id)
            .order_by(SittingRow.pk)
        )
        with self._sessions.read() as session:
            return tuple(row.document for row in session.scalars(query))

    def of_run(self, run_id: str) -> Mapping[str, tuple[Trial, ...]]:
        """What ran, in order, by the cell's name; cells without any are left out."""
        query = (
            select(CellRow.name, SittingRow)
            .join(AttemptRow, AttemptRow.pk == SittingRow.attempt)
            .join(CellRow, CellRow.pk == AttemptRow.cell)
            .where(SittingRow.run_id == run_id)
            .order_by(SittingRow.attempt, SittingRow.pk)
        )
        found: dict[str, list[RetestSession]] = {}
        with self._sessions.read() as session:
            for name, row in session.execute(query):
                found.setdefault(name, []).append(row.document)
        return {name: trials for name, each in found.items() if (trials := _latest(each))}

    def dismiss(self, attempt_id: str, *, at: datetime) -> None:
        """Nobody asks for more trials of the attempt."""
        with self._sessions.write() as session:
            attempt = attempt_row(session, attempt_id)
            row = insert_into(session, DismissalRow).values(attempt=attempt.pk, at=at)
            session.execute(row.on_conflict_do_nothing())

    def is_dismissed(self, attempt_id: str) -> bool:
        """Whether nobody asks for more."""
        with self._sessions.read() as session:
            return session.get(DismissalRow, attempt_row(session, attempt_id).pk) is not None

    def add_second(self, run_id: str, second: str) -> str:
        """Note the run that repeats this one's failures on another machine; the first stands."""
        with self._sessions.write() as session:
            run_row(session, run_id, lock=True)
            row = insert_into(session, SecondRunRow).values(run_id=run_id, second=second)
            session.execute(row.on_conflict_do_nothing())
            found = session.get(SecondRunRow, run_id)
            return found.second if found else second

    def second_of(self, run_id: str) -> str | None:
        """The run that repeats this one's failures on another machine."""
        with self._sessions.read() as session:
            row = session.get(SecondRunRow, run_id)
            return row.second if row else None


def _locked_cell(session: Session, attempt: AttemptRow) -> CellRow:
    """It stays in its state, and nobody else asks, until the transaction is over."""
    query = select(CellRow).where(CellRow.pk == attempt.cell).with_for_update(key_share=True)
    return session.scalars(query.execution_options(populate_existing=True)).one()


def _row(session: Session, sitting_id: str) -> SittingRow:
    """The sitting, locked. Raises UnknownIdError."""
    query = select(SittingRow).where(SittingRow.id == sitting_id).with_for_update()
    found = session.scalars(query).one_or_none()
    if found is None:
        raise UnknownIdError("sitting", sitting_id)
    return found


def _latest(sittings: list[RetestSession]) -> tuple[Trial, ...]:
    return trials_of(s for s in sittings if s.attempt_id == sittings[-1].attempt_id)
