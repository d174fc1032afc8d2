"""Two runs beside each other."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from sqlalchemy import Select, func, literal_column, select
from sqlalchemy.orm import Session, aliased

from orchestrator.adapters.db.difference_rows import Sources, beside, kind_of, sources_of
from orchestrator.adapters.db.sessions import Sessions
from orchestrator.adapters.db.tables import (
    AttemptRow,
    AttestationRow,
    EnvironmentRow,
    LeaseRow,
    TestCaseRow,
    TestResultRow,
)
from orchestrator.application.ports.differences import Changed, Counted, Pair, Surroundings
from orchestrator.domain.difference import Difference
from orchestrator.domain.outcome import TestOutcome

T = TypeVar("T")

_RANK = {kind: rank for rank, kind in enumerate(Difference)}


class DbDifferences:
    """The DifferenceStore of a database."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def counts(self, pairs: Sequence[Pair], *, product: str) -> Sequence[Counted]:
        """By one statement, whatever the number of tests."""
        if not pairs:
            return []
        with self._sessions.read() as session:
            rows = beside(session, pairs, product)
            kind = kind_of(rows).label("kind")
            query = select(rows.c.pair, kind, rows.c.after, func.count()).group_by(
                rows.c.pair, literal_column("kind"), rows.c.after
            )
            return [
                Counted(pair, Difference(word), _outcome(after), many)
                for pair, word, after, many in session.execute(query)
            ]

    def first(self, pairs: Sequence[Pair], *, product: str, each: int) -> Sequence[Changed]:
        """Of each kind so many."""
        if not pairs:
            return []
        with self._sessions.read() as session:
            rows = beside(session, pairs, product)
            kind = kind_of(rows).label("kind")
            differing = (
                select(rows, kind, TestCaseRow.job, TestCaseRow.nodeid)
                .join(TestCaseRow, TestCaseRow.id == rows.c.test)
                .where(kind != Difference.SAME.value)
                .subquery()
            )
            place = func.row_number().over(
                partition_by=differing.c.kind,
                order_by=(differing.c.job, differing.c.nodeid, differing.c.pair),
            )
            ranked = select(differing, place.label("place")).subquery()
            found = list(_told(session, select(ranked).where(ranked.c.place <= each)))
        return sorted(found, key=lambda one: _RANK[one.difference])

    def page(
        self,
        pairs: Sequence[Pair],
        *,
        product: str,
        kinds: Collection[Difference],
        limit: int,
        skip: int = 0,
    ) -> Sequence[Changed]:
        """Test by test."""
        if not pairs:
            return []
        with self._sessions.read() as session:
            rows = beside(session, pairs, product)
            kind = kind_of(rows).label("kind")
            chosen = (
                select(rows, kind, TestCaseRow.job, TestCaseRow.nodeid)
                .join(TestCaseRow, TestCaseRow.id == rows.c.test)
                .where(kind.in_(sorted(kinds)))
                .order_by(TestCaseRow.job, TestCaseRow.nodeid, rows.c.pair)
                .limit(limit)
                .offset(skip)
            )
            return list(_told(session, chosen))

    def surroundings(self, cells: Sequence[str]) -> Mapping[str, Surroundings]:
        """Three statements, whatever the number of cells."""
        with self._sessions.read() as session:
            sources = sources_of(session, cells)
            asked = {*sources.numbers.values(), *(s for o in sources.lent.values() for s in o)}
            probed = _probed(session, asked)
            facts = _facts(session, asked)
        return {
            cell: Surroundings(
                _of(number, probed, sources) or {}, _of(number, facts, sources) or {}
            )
            for cell, number in sources.numbers.items()
        }


def _of(cell: int, known: Mapping[int, T], sources: Sources) -> T | None:
    """The cell's own, or else that of the newest one that its results are from."""
    mine = (cell, *reversed(list(sources.lent.get(cell, {}))))
    return next((known[one] for one in mine if one in known), None)


def _probed(session: Session, cells: Collection[int]) -> Mapping[int, Mapping[str, object]]:
    query = (
        select(AttemptRow.cell, EnvironmentRow.document)
        .join(AttemptRow, AttemptRow.pk == EnvironmentRow.attempt)
        .where(AttemptRow.cell.in_(cells))
        .order_by(AttemptRow.number)
    )
    return dict(session.execute(query).all())


def _facts(session: Session, cells: Collection[int]) -> Mapping[int, Mapping[str, str]]:
    query = (
        select(AttemptRow.cell, AttestationRow.document)
        .join(LeaseRow, LeaseRow.attempt == AttemptRow.pk)
        .join(AttestationRow, AttestationRow.lease == LeaseRow.pk)
        .where(AttemptRow.cell.in_(cells))
        .order_by(AttemptRow.number)
    )
    return {cell: document.facts for cell, document in session.execute(query)}


def _told(session: Session, chosen: Select[Any]) -> Iterator[Changed]:
    """With their messages, by name."""
    mine, was = chosen.subquery("mine"), aliased(TestCaseRow)
    where = func.coalesce(mine.c.after_cell, mine.c.before_cell)
    query = (
        select(
            *(mine.c.pair, mine.c.test, mine.c.before, mine.c.after, mine.c.kind),
            *(mine.c.job, mine.c.nodeid, was.nodeid, TestResultRow.message, TestResultRow.reason),
        )
        .join(was, was.id == mine.c.was, isouter=True)
        .join(
            TestResultRow,
            (TestResultRow.cell == where) & (TestResultRow.test_id == mine.c.test),
            isouter=True,
        )
        .order_by(mine.c.job, mine.c.nodeid, mine.c.pair)
    )
    for pair, number, before, after, kind, *words in session.execute(query):
        job, nodeid, old, message, reason = words
        yield Changed(
            pair=pair,
            test=number,
            job=job,
            nodeid=nodeid,
            was=old or "",
            before=_outcome(before),
            after=_outcome(after),
            message=message or reason or "",
            difference=Difference(kind),
        )


def _outcome(number: int | None) -> TestOutcome | None:
    return None if number is None else TestOutcome(number)
