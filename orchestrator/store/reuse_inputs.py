"""Which jobs are proven by what, so that the unchanged is not run again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from sqlalchemy import Select, select
from sqlalchemy.orm import aliased

from orchestrator.application.ports.reuse_inputs import Prepared, Proof
from orchestrator.domain.cell import CellState
from orchestrator.domain.reuse_inputs import Reuse
from orchestrator.store.column_types import short
from orchestrator.store.errors import UnknownIdError
from orchestrator.store.sessions import Sessions
from orchestrator.store.sql import attempt_row, cell_row, insert_into
from orchestrator.store.tables import (
    AttemptRow,
    CellReuseRow,
    CellRow,
    PreparedRow,
    ProofRow,
)


class DbProofs:
    """The ProofStore of a database."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def prepare(self, attempt_id: str, prepared: Prepared) -> None:
        """Store or replace it."""
        with self._sessions.write() as session:
            insert = insert_into(session, PreparedRow)
            row = {"attempt": attempt_row(session, attempt_id).pk, "document": prepared}
            statement = insert.values(row).on_conflict_do_update(
                index_elements=["attempt"], set_={"document": insert.excluded.document}
            )
            session.execute(statement)

    def preparations(self, cell_id: str) -> list[Prepared]:
        """In the order of the attempts."""
        query = (
            select(PreparedRow.document)
            .join(AttemptRow, AttemptRow.pk == PreparedRow.attempt)
            .join(CellRow, CellRow.pk == AttemptRow.cell)
            .where(CellRow.id == cell_id)
            .order_by(AttemptRow.number)
        )
        with self._sessions.read() as session:
            return list(session.scalars(query))

    def prove(self, cell_id: str, jobs: Mapping[str, datetime]) -> None:
        """Keep them; the first word stands, and without a preparation there is none."""
        last = (
            select(PreparedRow)
            .join(AttemptRow, AttemptRow.pk == PreparedRow.attempt)
            .join(CellRow, CellRow.pk == AttemptRow.cell)
            .where(CellRow.id == cell_id)
            .order_by(AttemptRow.number.desc())
            .limit(1)
        )
        with self._sessions.write() as session:
            found = session.scalar(last)
            if found is None or not jobs:
                return
            made = found.document.ingredients
            row = {
                "cell": cell_row(session, cell_id).pk,
                "attempt": found.attempt,
                "asked": made.asked,
                "product": short(made.product),
                "platform": short(made.platform.get("id", "")),
                "environment": short(made.environment),
            }
            rows = [row | {"job": short(job), "produced_at": at} for job, at in jobs.items()]
            session.execute(insert_into(session, ProofRow).on_conflict_do_nothing(), rows)

    def find(self, asked: str, job: str, *, limit: int) -> list[Proof]:
        """The newest first."""
        mine = (ProofRow.asked == asked, ProofRow.job == short(job))
        return self._read(_proofs().where(*mine).limit(limit))

    def newest(self, product: str, platform: str, environment: str, job: str) -> Proof | None:
        """One, or None."""
        mine = (
            ProofRow.product == short(product),
            ProofRow.platform == short(platform),
            ProofRow.environment == short(environment),
            ProofRow.job == short(job),
        )
        return next(iter(self._read(_proofs().where(*mine).limit(1))), None)

    def decide(self, cell_id: str, reuses: Sequence[Reuse], *, at: datetime) -> None:
        """Nothing where something was decided."""
        with self._sessions.write() as session:
            cell = cell_row(session, cell_id, lock=True).pk
            known = select(CellReuseRow.job).where(CellReuseRow.cell == cell).limit(1)
            if not reuses or session.scalar(known) is not None:
                return
            names = {one.cell for one in reuses if one.cell}
            numbers: dict[str, int] = dict(
                session.execute(select(CellRow.id, CellRow.pk).where(CellRow.id.in_(names))).all()
            )
            for one in reuses:
                if one.cell and one.cell not in numbers:
                    raise UnknownIdError("cell", one.cell)
                session.add(
                    CellReuseRow(
                        cell=cell,
                        job=short(one.job),
                        source=numbers.get(one.cell),
                        produced_at=one.at,
                        why=one.why,
                        decided_at=at,
                    )
                )

    def decided(self, cell_id: str) -> Mapping[str, Reuse]:
        """By job."""
        return self.decisions([cell_id]).get(cell_id, {})

    def decisions(self, cell_ids: Sequence[str]) -> Mapping[str, Mapping[str, Reuse]]:
        """By cell id and job."""
        asking = aliased(CellRow)
        query = (
            select(asking.id, CellReuseRow, CellRow.id, CellRow.run_id)
            .join(CellReuseRow, CellReuseRow.cell == asking.pk)
            .join(CellRow, CellRow.pk == CellReuseRow.source, isouter=True)
            .where(asking.id.in_(cell_ids))
            .order_by(asking.pk, CellReuseRow.job)
        )
        found: dict[str, dict[str, Reuse]] = {}
        with self._sessions.read() as session:
            for asks, row, cell, run in session.execute(query):
                found.setdefault(asks, {})[row.job] = Reuse(
                    job=row.job, why=row.why, run=run or "", cell=cell or "", at=row.produced_at
                )
        return found

    def _read(self, query: Select[ProofRow, str, str, Prepared]) -> list[Proof]:
        with self._sessions.read() as session:
            return [
                Proof(run, cell, row.job, row.produced_at, prepared)
                for row, cell, run, prepared in session.execute(query)
            ]


def _proofs() -> Select[ProofRow, str, str, Prepared]:
    return (
        select(ProofRow, CellRow.id, CellRow.run_id, PreparedRow.document)
        .join(CellRow, CellRow.pk == ProofRow.cell)
        .join(PreparedRow, PreparedRow.attempt == ProofRow.attempt)
        .where(CellRow.state == CellState.DONE)
        .order_by(ProofRow.produced_at.desc(), ProofRow.cell.desc())
    )
