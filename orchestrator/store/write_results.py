"""Writes results and facts of tests in bulk, merged with what is stored.

Facts of the same attempt are added with `TestFact.plus`; a newer attempt's fact replaces an older
attempt's unless the older fact is final.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any

import psycopg
from sqlalchemy import ColumnElement, Connection, SQLColumnExpression, case, func, select
from sqlalchemy.orm import Session

from orchestrator.domain.event_facts import (
    CHECK_RANKS,
    CheckFact,
    Facts,
    JobFact,
    MetricFact,
    TestFact,
)
from orchestrator.domain.failure_signature import BAD, Signature, signature_of, subject_imports
from orchestrator.domain.node_ids import split_nodeid
from orchestrator.store.column_types import short, storable
from orchestrator.store.failure_groups import write_retries, write_signatures
from orchestrator.store.sessions import Sessions
from orchestrator.store.sql import insert_into, is_postgres, slices, values_of
from orchestrator.store.tables import (
    NOTICES,
    CheckResultRow,
    EnvironmentReportRow,
    JobResultRow,
    MetricRow,
    TestCaseRow,
    TextRow,
)

_JOB_COLUMNS = tuple(f.name for f in fields(JobFact) if f.name != "job")
_CHECK_COLUMNS = ("outcome", "value", "unit", "tolerance", "reason")
_INT_LIMIT = 2**31 - 1


def write_facts(session: Session, cell_pk: int, attempt_pk: int, facts: Facts) -> None:
    """Merge the facts into the stored ones."""
    if facts.jobs:
        _write_jobs(session, cell_pk, attempt_pk, facts.jobs)
    if facts.checks:
        write_checks(session, attempt_pk, facts.checks.values())
    if facts.metrics:
        write_metrics(session, attempt_pk, facts.metrics)
    if facts.notices:
        notices = [
            values_of(NOTICES, one, attempt=attempt_pk, ts=float(one.ts), job=short(one.job))
            for one in facts.notices
        ]
        session.execute(insert_into(session, NOTICES).on_conflict_do_nothing(), notices)
    if facts.environment is not None:
        _write_environment(session, attempt_pk, facts.environment)


def _write_jobs(
    session: Session, cell_pk: int, attempt_pk: int, jobs: Mapping[str, JobFact]
) -> None:
    """Merge job facts of the same attempt; a newer attempt's replace older ones."""
    insert = insert_into(session, JobResultRow)
    new = insert.excluded
    same = JobResultRow.attempt == new.attempt
    merged = {
        name: case((same, func.coalesce(new[name], getattr(JobResultRow, name))), else_=new[name])
        for name in _JOB_COLUMNS
    }
    statement = insert.on_conflict_do_update(
        index_elements=["cell", "job"],
        set_=merged | {"attempt": new.attempt},
        where=JobResultRow.attempt <= new.attempt,
    )
    rows: dict[str, dict[str, object]] = {}
    for fact in jobs.values():
        name = short(fact.job)
        rows[name] = {"cell": cell_pk, "job": name, "attempt": attempt_pk, **_job(fact)}
    session.connection().execute(statement, list(rows.values()))


def _job(fact: JobFact) -> dict[str, object]:
    return {name: _fitting(getattr(fact, name)) for name in _JOB_COLUMNS}


def _fitting(value: object) -> object:
    """Return integers that a column can store."""
    if isinstance(value, int):
        return max(min(int(value), _INT_LIMIT), -_INT_LIMIT)
    return value


def write_checks(session: Session, attempt_pk: int, checks: Iterable[CheckFact]) -> None:
    """Insert checks by job and name, or replace better ones, within the caller's transaction."""
    insert = insert_into(session, CheckResultRow)
    statement = insert.on_conflict_do_update(
        index_elements=["attempt", "job", "name"],
        set_={name: insert.excluded[name] for name in _CHECK_COLUMNS},
        where=_rank(insert.excluded.outcome) >= _rank(CheckResultRow.outcome),
    )
    rows: dict[tuple[str, str], dict[str, object]] = {}
    for fact in checks:
        job, name = short(fact.job), short(fact.name)
        said = {column: getattr(fact, column) for column in _CHECK_COLUMNS}
        rows[job, name] = {"attempt": attempt_pk, "job": job, "name": name, **said}
    session.execute(statement, list(rows.values()))


def write_metrics(session: Session, attempt_pk: int, metrics: Iterable[MetricFact]) -> None:
    """Insert metrics whose sequence numbers are new, within the caller's transaction."""
    rows = [_metric(attempt_pk, fact) for fact in metrics]
    session.execute(insert_into(session, MetricRow).on_conflict_do_nothing(), rows)


def _rank(outcome: SQLColumnExpression[str]) -> ColumnElement[int]:
    return case(dict(CHECK_RANKS), value=outcome, else_=len(CHECK_RANKS))


def _metric(attempt_pk: int, fact: MetricFact) -> dict[str, object]:
    return {
        "attempt": attempt_pk,
        "seq": fact.seq,
        "job": short(fact.job),
        "name": fact.name,
        "samples": list(fact.samples),
        "unit": fact.unit,
        "direction": fact.direction,
        "params": dict(fact.params),
        "arm": fact.arm or None,
        "turn": fact.turn,
        "readings": dict(fact.readings) if fact.arm else None,
    }


def _write_environment(session: Session, attempt_pk: int, document: Mapping[str, object]) -> None:
    insert = insert_into(session, EnvironmentReportRow)
    row = {"attempt": attempt_pk, "document": dict(document)}
    statement = insert.values(row).on_conflict_do_update(
        index_elements=["attempt"], set_={"document": insert.excluded.document}
    )
    session.execute(statement)


Key = tuple[str, str]
"""Job and node id."""

_REMEMBERED = 100_000
"""Maximum cached tests of one product; tests of larger suites are read again."""


class TestCases:
    """Numbers of tests in one database."""

    __test__ = False

    def __init__(self, sessions: Sessions, *, remembered: int = _REMEMBERED) -> None:
        self._sessions = sessions
        self._remembered = remembered
        self._known: dict[str, dict[Key, int]] = {}

    def number(
        self, product: str, tests: Mapping[Key, TestFact], *, run: str
    ) -> dict[int, TestFact]:
        """Return facts of a run with their tests' numbers, in order; new tests are stored first."""
        known = self._known.setdefault(product, {})
        unknown = [key for key in tests if key not in known]
        if unknown:
            if len(known) + len(unknown) > self._remembered:
                # A new dictionary, because other threads may be reading the old one.
                self._known[product] = known = {}
                unknown = list(tests)
            known.update(self._look_up(product, unknown, run))
        numbered: dict[int, TestFact] = {}
        for key, fact in tests.items():
            number = known[key]
            # Two names may become equal when characters that cannot be stored are replaced.
            same = numbered.get(number)
            numbered[number] = same.plus(fact) if same else fact
        return numbered

    def _look_up(self, product: str, keys: Sequence[Key], run: str) -> dict[Key, int]:
        digests = {key: _digest(product, key) for key in keys}
        found = self._find(list(digests.values()))
        missing = {digest: key for key, digest in digests.items() if digest not in found}
        if missing:
            found |= self._add(product, missing, run)
            # tests that another process has added meanwhile
            found |= self._find([digest for digest in missing if digest not in found])
        return {key: found[digest] for key, digest in digests.items()}

    def _find(self, digests: Sequence[bytes]) -> dict[bytes, int]:
        found: dict[bytes, int] = {}
        with self._sessions.read() as session:
            for some in slices(digests):
                query = select(TestCaseRow.digest, TestCaseRow.id)
                rows = session.execute(query.where(TestCaseRow.digest.in_(some)))
                found.update((digest, number) for digest, number in rows)
        return found

    def _add(self, product: str, missing: Mapping[bytes, Key], run: str) -> dict[bytes, int]:
        # In one order, so that concurrent writers of the same tests do not deadlock. By name, as
        # people are shown the first tests by number.
        rows = [_row(product, digest, key) for digest, key in missing.items()]
        rows.sort(key=lambda row: (row["job"], storable(row["nodeid"])))
        with self._sessions.write(progress_of=run) as session:
            statement = insert_into(session, TestCaseRow).on_conflict_do_nothing()
            added = statement.returning(TestCaseRow.digest, TestCaseRow.id)
            return dict(session.connection().execute(added, rows).all())


def _digest(product: str, key: Key) -> bytes:
    job, nodeid = key
    whole = "\x00".join((storable(product), short(job), storable(nodeid)))
    return hashlib.sha256(whole.encode()).digest()


def _row(product: str, digest: bytes, key: Key) -> dict[str, Any]:
    job, nodeid = key
    path, classes, function, param = split_nodeid(nodeid)
    return {
        "digest": digest,
        "product": product,
        "job": short(job),
        "nodeid": nodeid,
        "path": path,
        "class": classes,
        "function": function,
        "param": param,
    }


Row = tuple[int, int, int, int, bool, int, str, str, bytes | None, int, str | None]

_COLUMNS = (
    "cell, test_id, attempt, outcome, final, duration_us, reason, message, text_digest, position,"
    " signature"
)
_LEVEL = 6
_LONGEST_US = 10 * 365 * 86_400 * 1_000_000
ATTEMPT_SPAN = 1 << 32
"""Offset between positions of tests of successive attempts."""

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
    """Merge facts by test number, in the order of collection.

    The environment of the attempt must be stored before, because it distinguishes the product's
    code from libraries. The first test gets the position `first`, which is at least `ATTEMPT_SPAN`
    times the attempt's number.
    """
    if not tests:
        return
    imports = _imports(session, attempt_pk, tests.values())
    texts: dict[bytes, str] = {}
    signatures: dict[str, Signature] = {}
    rows = list(
        _rows(cell_pk, attempt_pk, tests, first, imports, texts=texts, signatures=signatures)
    )
    _write_texts(session, texts)
    write_signatures(session, signatures.values())
    write_retries(session, cell_pk, attempt_pk, tests)
    connection = session.connection()
    if is_postgres(session):
        _copy(connection, rows)
    else:
        connection.exec_driver_sql(_UPSERT_SQLITE, rows)


def _rows(
    cell_pk: int,
    attempt_pk: int,
    tests: Mapping[int, TestFact],
    first: int,
    imports: Collection[str],
    *,
    texts: dict[bytes, str],
    signatures: dict[str, Signature],
) -> Iterator[Row]:
    """Yield the row of each result; add the texts and signatures that the rows refer to."""
    for position, (test_id, fact) in enumerate(tests.items(), start=first):
        yield (
            cell_pk,
            test_id,
            attempt_pk,
            int(fact.outcome),
            fact.final,
            min(max(round(fact.duration_s * 1_000_000), 0), _LONGEST_US),
            storable(fact.reason),
            storable(fact.message),
            _keep(fact.text, texts) if fact.text else None,
            position,
            _sign(fact, imports, signatures) if fact.outcome in BAD else None,
        )


def _imports(session: Session, attempt_pk: int, facts: Iterable[TestFact]) -> tuple[str, ...]:
    """Select the subject's import names, where a test failed."""
    if not any(fact.outcome in BAD for fact in facts):
        return ()
    found = session.get(EnvironmentReportRow, attempt_pk)
    return subject_imports(found.document) if found is not None else ()


def _sign(fact: TestFact, imports: Collection[str], signatures: dict[str, Signature]) -> str | None:
    signature = signature_of(fact, imports)
    if signature is None:
        return None
    return signatures.setdefault(signature.id, signature).id


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
