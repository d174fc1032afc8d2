"""Failing results with their signatures."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import Row, ScalarSelect, Select, bindparam, or_, select, update
from sqlalchemy.orm import Session

from orchestrator.domain.event_facts import TestFact
from orchestrator.domain.failure_signature import (
    SIGNATURE_VERSION,
    Failure,
    Signature,
    signature_of,
    subject_imports,
)
from orchestrator.domain.node_ids import resolve
from orchestrator.domain.outcome import TestOutcome
from orchestrator.store.aliases import confirmed_of
from orchestrator.store.cells import cells_of
from orchestrator.store.failure_groups import IS_BAD, SIGNATURE, write_signatures
from orchestrator.store.sessions import Sessions
from orchestrator.store.sql import insert_into, slices
from orchestrator.store.tables import (
    SIGNATURES,
    CellRow,
    EnvironmentReportRow,
    RunRow,
    SignatureSuccessorRow,
    TestCaseRow,
    TestResultRow,
    TextRow,
)


@dataclass(frozen=True, slots=True)
class FailuresFound:
    """Failing results of many runs."""

    failures: Sequence[Failure]
    runs: int
    """Number of runs."""
    is_cut: bool = False
    """Whether there were more than the limit; those of the newest runs are returned."""


FAILURES_LIMIT = 200_000
"""Maximum failing results per query over many runs."""


class FailureStore:
    """Failing results with signatures. Node ids are the tests' newest names."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def of_run(self, run_id: str) -> list[Failure]:
        """Return final results of every cell of a run."""
        with self._sessions.read() as session:
            found = session.execute(_failing().where(CellRow.run_id == run_id))
            return _failures(session, found.all())

    def of_product(self, product: str | None, *, runs: int) -> FailuresFound:
        """Return results of a product's newest runs; None means any product."""
        newest = select(RunRow.id).order_by(RunRow.id.desc()).limit(runs)
        if product is not None:
            newest = newest.where(RunRow.product == product)
        with self._sessions.read() as session:
            ids = session.scalars(newest).all()
            query = _failing().where(CellRow.run_id.in_(ids)).limit(FAILURES_LIMIT + 1)
            rows = session.execute(query).all()
            found = _failures(session, rows[:FAILURES_LIMIT])
        return FailuresFound(found, len(ids), len(rows) > FAILURES_LIMIT)

    def spans(self, signatures: Collection[str]) -> Mapping[str, tuple[datetime, datetime]]:
        """Return by signature id the launch times of its first and last run."""
        asked, cell = SIGNATURES.c.id, TestResultRow.cell
        mine = select(cell).where(TestResultRow.signature == asked, IS_BAD, TestResultRow.final)
        mine = mine.correlate(SIGNATURES)
        begin, end = (
            _launched(mine.order_by(one).limit(1).scalar_subquery()) for one in (cell, cell.desc())
        )
        query = select(asked, begin, end)
        with self._sessions.read() as session:
            return {
                name: (first, last)
                for some in slices(sorted(set(signatures)))
                for name, first, last in session.execute(query.where(asked.in_(some)))
                if first is not None
            }

    def get(self, signature: str) -> Signature | None:
        """Return the signature of an id, older versions included."""
        return self._sessions.scalar(select(SIGNATURE).where(SIGNATURES.c.id == signature))

    def successors_of(self, signatures: Collection[str]) -> Mapping[str, frozenset[str]]:
        """Return the present signatures by old signature id."""
        with self._sessions.read() as session:
            known = _successors(session, set(signatures))
        return {name: found for name in signatures if (found := _followed(name, known))}

    def regroup(self, *, limit: int) -> int:
        """Recompute signatures of another version, up to a limit; return their number.

        0 means that all signatures are of the present version. Concurrent calls are allowed.
        """
        with self._sessions.read() as session:
            outdated = [_Outdated(*row) for row in session.execute(_unsigned(limit))]
        signed = [(row, row.signature()) for row in outdated]
        with self._sessions.write() as session:
            write_signatures(session, {new.id: new for _, new in signed}.values())
            _write_successors(session, {(row.old, new.id) for row, new in signed if row.old})
            _sign(session, signed)
        return len(signed)


_Failing = Row[Signature, int, str, str, int, str, str, datetime, str]
"""Signature, test, job, node id, cell, run, version of the subject, its launch time, message."""


def _failing() -> Select[Signature, int, str, str, int, str, str, datetime, str]:
    """Select the columns of `_Failing`."""
    return (
        select(
            *(SIGNATURE, TestResultRow.test_id, TestCaseRow.job, TestCaseRow.nodeid),
            *(CellRow.pk, RunRow.id, RunRow.subject_version, RunRow.created_at),
            TestResultRow.message,
        )
        .join(SIGNATURES, SIGNATURES.c.id == TestResultRow.signature)
        .join(TestCaseRow, TestCaseRow.id == TestResultRow.test_id)
        .join(CellRow, CellRow.pk == TestResultRow.cell)
        .join(RunRow, RunRow.id == CellRow.run_id)
        .where(IS_BAD, TestResultRow.final)
        .order_by(RunRow.id.desc(), CellRow.position, TestResultRow.position)
    )


def _failures(session: Session, rows: Sequence[_Failing]) -> list[Failure]:
    cells = cells_of(session, {row[4] for row in rows})
    names = _newest_names(session, {test: nodeid for _, test, _, nodeid, *_ in rows})
    return [
        Failure(
            signature=signature,
            nodeid=names[test],
            job=job,
            run_id=run,
            cell=cells[cell].name,
            platform=cells[cell].platform,
            version=version,
            at=cells[cell].dated_at or launched,
            message=message,
        )
        for signature, test, job, _, cell, run, version, launched, message in rows
    ]


def _newest_names(session: Session, names: Mapping[int, str]) -> Mapping[int, str]:
    """Select the newest confirmed node ids of tests."""
    aliases = confirmed_of(session) if names else {}
    newest = {test: resolve(test, aliases) for test in names if test in aliases}
    if not newest:
        return names
    query = select(TestCaseRow.id, TestCaseRow.nodeid)
    known: dict[int, str] = {}
    for some in slices(sorted(set(newest.values()))):
        rows = session.execute(query.where(TestCaseRow.id.in_(some)))
        known.update((test, nodeid) for test, nodeid in rows)
    return {test: known[newest[test]] if test in newest else own for test, own in names.items()}


def _launched(cell: ScalarSelect[int]) -> ScalarSelect[datetime]:
    """Select the launch time of the cell's run."""
    query = select(RunRow.created_at).join(CellRow, CellRow.run_id == RunRow.id)
    return query.where(CellRow.pk == cell).scalar_subquery()


def _successors(session: Session, ask: Collection[str]) -> Mapping[str, set[str]]:
    """Return successors by old signature, transitively."""
    found: dict[str, set[str]] = {}
    while ask:
        news: set[str] = set()
        for some in slices(sorted(ask)):
            query = select(SignatureSuccessorRow.old, SignatureSuccessorRow.new)
            for old, new in session.execute(query.where(SignatureSuccessorRow.old.in_(some))):
                found.setdefault(old, set()).add(new)
                news.add(new)
        ask = news - found.keys()
    return found


def _followed(old: str, known: Mapping[str, Collection[str]]) -> frozenset[str]:
    found: set[str] = set()
    ask = [old]
    while ask:
        ask = [new for name in ask for new in known.get(name, ()) if new not in found]
        found.update(ask)
    return frozenset(found)


@dataclass(frozen=True, slots=True)
class _Outdated:
    """A failing result without a signature of the present version."""

    cell: int
    test_id: int
    old: str | None
    nodeid: str
    outcome: int
    reason: str
    message: str
    text: bytes | None
    environment: Mapping[str, object] | None

    def signature(self) -> Signature:
        """Return the signature of the present version. Raises ValueError if the test passed."""
        text = zlib.decompress(self.text).decode() if self.text is not None else ""
        outcome = TestOutcome(self.outcome)
        fact = TestFact(
            "", self.nodeid, outcome, reason=self.reason, message=self.message, text=text
        )
        signature = signature_of(fact, subject_imports(self.environment or {}))
        if signature is None:
            raise ValueError(f"a result that is {outcome.word} has a signature")
        return signature


def _unsigned(
    limit: int,
) -> Select[int, int, str | None, str, int, str, str, bytes, dict[str, object]]:
    mine = f"s{SIGNATURE_VERSION}-"
    signature = TestResultRow.signature
    return (
        select(
            *(TestResultRow.cell, TestResultRow.test_id, signature, TestCaseRow.nodeid),
            *(TestResultRow.outcome, TestResultRow.reason, TestResultRow.message, TextRow.body),
            EnvironmentReportRow.document,
        )
        .join(TestCaseRow, TestCaseRow.id == TestResultRow.test_id)
        .join(TextRow, TextRow.digest == TestResultRow.text_digest, isouter=True)
        .join(
            EnvironmentReportRow,
            EnvironmentReportRow.attempt == TestResultRow.attempt,
            isouter=True,
        )
        .where(IS_BAD, or_(signature.is_(None), signature < mine, signature > mine + "~"))
        .order_by(TestResultRow.cell, TestResultRow.test_id)
        .limit(limit)
    )


def _write_successors(session: Session, pairs: Collection[tuple[str, str]]) -> None:
    rows = [{"old": old, "new": new} for old, new in sorted(pairs)]
    if rows:
        session.execute(insert_into(session, SignatureSuccessorRow).on_conflict_do_nothing(), rows)


def _sign(session: Session, signed: Iterable[tuple[_Outdated, Signature]]) -> None:
    statement = (
        update(TestResultRow)
        .where(
            TestResultRow.cell == bindparam("of_cell"),
            TestResultRow.test_id == bindparam("of_test"),
            TestResultRow.message == bindparam("said"),
            TestResultRow.signature.is_not_distinct_from(bindparam("old")),
        )
        .values(signature=bindparam("new"))
    )
    rows = [
        {
            "of_cell": row.cell,
            "of_test": row.test_id,
            "said": row.message,
            "old": row.old,
            "new": new.id,
        }
        for row, new in signed
    ]
    if rows:
        session.connection().execute(statement, rows)
