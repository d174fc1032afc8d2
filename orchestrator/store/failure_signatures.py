"""Side tables of test results: failure signatures and earlier tries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sqlalchemy import and_, case, literal_column
from sqlalchemy.orm import Session
from sqlalchemy.sql.elements import ColumnElement

from orchestrator.domain.event_facts import EARLIER_LIMIT, TestFact
from orchestrator.domain.outcome import TestOutcome
from orchestrator.domain.signature import BAD, SIGNATURE_VERSION, Signature
from orchestrator.store.sql import insert_into
from orchestrator.store.tables import SignatureRow, TestResultRow, TestRetryRow

_COMMA = ","
# Written out, and not as parameters: neither database takes a partial index for a parameter.
IS_BAD = TestResultRow.outcome.in_(
    [literal_column(str(value)) for value in sorted(outcome.value for outcome in BAD)]
)


def write_signatures(session: Session, signatures: Iterable[Signature]) -> None:
    """Store new signatures, in the order of ids to avoid deadlocks."""
    rows = [
        {
            "id": one.id,
            "version": SIGNATURE_VERSION,
            "kind": one.kind,
            "exception": one.exception,
            "frame": one.frame,
            "message": one.message,
        }
        for one in sorted(signatures, key=lambda one: one.id)
    ]
    if rows:
        session.execute(insert_into(session, SignatureRow).on_conflict_do_nothing(), rows)


def read_signature(row: SignatureRow) -> Signature:
    """Return the signature of a row."""
    return Signature(row.id, row.kind, row.exception, row.frame, row.message)


def write_retries(
    session: Session, cell_pk: int, attempt_pk: int, tests: Mapping[int, TestFact]
) -> None:
    """Store earlier tries; a newer attempt's replace older ones."""
    rows = [
        {
            "cell": cell_pk,
            "test_id": test_id,
            "attempt": attempt_pk,
            "earlier": _COMMA.join(outcome.word for outcome in fact.earlier),
        }
        for test_id, fact in tests.items()
        if fact.earlier
    ]
    if not rows:
        return
    insert = insert_into(session, TestRetryRow)
    new = insert.excluded
    both = TestRetryRow.earlier + _COMMA + new.earlier
    statement = insert.on_conflict_do_update(
        index_elements=["cell", "test_id"],
        set_={
            "attempt": new.attempt,
            "earlier": case((TestRetryRow.attempt == new.attempt, both), else_=new.earlier),
        },
        where=TestRetryRow.attempt <= new.attempt,
    )
    session.execute(statement, rows)


def of_result() -> ColumnElement[bool]:
    """Join a retry with its result, of the same attempt only."""
    return and_(
        TestRetryRow.cell == TestResultRow.cell,
        TestRetryRow.test_id == TestResultRow.test_id,
        TestRetryRow.attempt == TestResultRow.attempt,
    )


def read_earlier(words: str | None) -> tuple[TestOutcome, ...]:
    """Parse the outcomes of earlier tries."""
    found = words.split(_COMMA)[:EARLIER_LIMIT] if words else []
    return tuple(TestOutcome[word.upper()] for word in found)
