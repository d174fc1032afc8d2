"""Results of tests, thousands at a time, merged with what is stored.

Facts of the same attempt add up, as `TestFact.plus` does it; a newer attempt's fact replaces an
older one's unless that is final.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import psycopg
from sqlalchemy import Connection
from sqlalchemy.orm import Session

from orchestrator.domain.facts import TestFact
from orchestrator.domain.signature import BAD, Signature, signature_of
from orchestrator.store.column_types import storable
from orchestrator.store.failure_signatures import write_retries, write_signatures
from orchestrator.store.sql import insert_into, is_postgres
from orchestrator.store.tables import TextRow

Row = tuple[int, int, int, int, bool, int, str, str, bytes | None, int, str | None]

_COLUMNS = (
    "cell, test_id, attempt, outcome, final, duration_us, reason, message, text_digest, position,"
    " signature"
)
_LEVEL = 6
_LONGEST_US = 10 * 365 * 86_400 * 1_000_000
ATTEMPT_SPAN = 1 << 32
"""Positions of an attempt's tests come after all those of the attempts before it."""

_SAME = "r.attempt = excluded.attempt"
_OLD_WORDS = f"{_SAME} AND excluded.outcome <= r.outcome"
_MERGE = f"""
ON CONFLICT (cell, test_id) DO UPDATE SET
    attempt = excluded.attempt,
    outcome = CASE WHEN {_OLD_WORDS} THEN r.outcome ELSE excluded.outcome END,
    final = CASE WHEN {_SAME} THEN r.final OR excluded.final ELSE excluded.final END,
    duration_us = excluded.duration_us + CASE WHEN {_SAME} THEN r.duration_us ELSE 0 END,
    reason = CASE WHEN {_OLD_WORDS} THEN r.reason ELSE excluded.reason END,
    message = CASE WHEN {_OLD_WORDS} THEN r.message ELSE excluded.message END,
    text_digest = CASE WHEN {_OLD_WORDS} THEN r.text_digest ELSE excluded.text_digest END,
    signature = CASE WHEN {_OLD_WORDS} THEN r.signature ELSE excluded.signature END
WHERE {_SAME} OR (r.attempt < excluded.attempt AND NOT r.final)
"""
_UPSERT_SQLITE = f"""
INSERT INTO test_result AS r ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) {_MERGE}
"""  # noqa: S608 (no value of anyone's is in it)
_STAGE = """
CREATE TEMP TABLE IF NOT EXISTS incoming_test (LIKE test_result) ON COMMIT DELETE ROWS
"""
_COPY = f"COPY incoming_test ({_COLUMNS}) FROM STDIN"
_UPSERT_POSTGRES = f"""
INSERT INTO test_result AS r ({_COLUMNS}) SELECT {_COLUMNS} FROM incoming_test {_MERGE}
"""  # noqa: S608 (no value of anyone's is in it)


def write_tests(
    session: Session,
    cell_pk: int,
    attempt_pk: int,
    tests: Mapping[int, TestFact],
    *,
    first: int,
) -> None:
    """Merge the facts, by their tests' numbers, in the order of collection.

    The first one takes the position `first`, which begins at `ATTEMPT_SPAN` times the attempt's
    number.
    """
    if not tests:
        return
    beside = _Beside()
    rows = list(_rows(cell_pk, attempt_pk, tests, beside, first))
    _write_texts(session, beside.texts)
    write_signatures(session, beside.signatures.values())
    write_retries(session, cell_pk, attempt_pk, tests)
    connection = session.connection()
    if is_postgres(session):
        _copy(connection, rows)
    else:
        connection.exec_driver_sql(_UPSERT_SQLITE, rows)


@dataclass(frozen=True, slots=True)
class _Beside:
    """What rows point at."""

    texts: dict[bytes, str] = field(default_factory=dict)
    signatures: dict[str, Signature] = field(default_factory=dict)


def _rows(
    cell_pk: int, attempt_pk: int, tests: Mapping[int, TestFact], beside: _Beside, first: int
) -> Iterator[Row]:
    for position, (test_id, fact) in enumerate(tests.items(), start=first):
        yield (
            cell_pk,
            test_id,
            attempt_pk,
            int(fact.outcome),
            fact.final,
            _microseconds(fact.duration_s),
            storable(fact.reason),
            storable(fact.message),
            _keep(fact.text, beside.texts) if fact.text else None,
            position,
            _sign(fact, beside.signatures) if fact.outcome in BAD else None,
        )


def _sign(fact: TestFact, signatures: dict[str, Signature]) -> str | None:
    signature = signature_of(fact)
    if signature is None:
        return None
    return signatures.setdefault(signature.id, signature).id


def _microseconds(duration_s: float) -> int:
    return min(max(round(duration_s * 1_000_000), 0), _LONGEST_US)


def _keep(text: str, texts: dict[bytes, str]) -> bytes:
    text = storable(text)
    digest = hashlib.sha256(text.encode()).digest()
    texts[digest] = text
    return digest


def _write_texts(session: Session, texts: Mapping[bytes, str]) -> None:
    if not texts:
        return
    rows = [
        {"digest": digest, "body": zlib.compress(text.encode(), _LEVEL)}
        for digest, text in sorted(texts.items())
    ]
    statement = insert_into(session, TextRow).on_conflict_do_nothing()
    session.connection().execute(statement, rows)


def _copy(connection: Connection, rows: Sequence[Row]) -> None:
    driver = connection.connection.driver_connection
    if not isinstance(driver, psycopg.Connection):
        raise TypeError(f"not a connection of psycopg: {driver!r}")
    connection.exec_driver_sql(_STAGE)
    with driver.cursor() as cursor, cursor.copy(_COPY) as copy:
        for row in rows:
            copy.write_row(row)
    connection.exec_driver_sql(_UPSERT_POSTGRES)
