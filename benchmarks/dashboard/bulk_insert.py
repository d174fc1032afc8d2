"""Inserts rows in bulk: COPY into Postgres, executemany into SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import psycopg
from sqlalchemy import Column, Connection, Table, func, select, text

from orchestrator.store.database import Database
from orchestrator.store.sql import AnyTable
from orchestrator.store.tables import (
    NOTICES,
    RUN_EVENTS,
    ArtifactRow,
    AttemptRow,
    AttestationRow,
    CellPlanRow,
    CellRollupRow,
    CellRow,
    CheckResultRow,
    EnvironmentReportRow,
    EvidenceChunkRow,
    JobResultRow,
    JobRollupRow,
    LeaseRow,
    MetricRow,
    PayloadRow,
    PlacementDecisionRow,
    RunRow,
    RunSpecRow,
    TableBase,
    TestResultRow,
    TestRetryRow,
    TextRow,
    TransitionRow,
)
from orchestrator.store.write_results import Row

_ORDER: tuple[AnyTable, ...] = (
    PayloadRow,
    RunRow,
    RunSpecRow,
    RUN_EVENTS,
    CellRow,
    CellPlanRow,
    AttemptRow,
    TransitionRow,
    LeaseRow,
    AttestationRow,
    PlacementDecisionRow,
    EnvironmentReportRow,
    EvidenceChunkRow,
    TextRow,
    TestRetryRow,
    JobResultRow,
    CheckResultRow,
    NOTICES,
    ArtifactRow,
    CellRollupRow,
    JobRollupRow,
)
"""Tables in the order of insertion: referenced tables come first."""
_NUMBERED = ("cell", "attempt", "transition", "lease", "check_result")
"""Tables whose primary keys are assigned here."""
_RESULTS = tuple(column.name for column in TestResultRow.__table__.columns)
_METRICS = tuple(column.name for column in MetricRow.__table__.columns)
_LATER = "ix_test_result_test"
"""Index that is dropped and built at the end, which takes a tenth of the time."""
_AT_ONCE = 200_000
"""Number of waiting rows at which they are written."""

Values = Mapping[str, object]


class Sink:
    """Takes rows in any order and writes them in the order of the tables."""

    def __init__(self, database: Database) -> None:
        self._sessions = database.sessions
        self.is_postgres = database.sessions.is_postgres
        dialect = database.sessions.engine.dialect
        self._makers = {table: _Maker(table, dialect) for table in _ORDER}
        self._waiting: dict[AnyTable, list[Values]] = {table: [] for table in _ORDER}
        self._results: list[str | Row] = []
        self._metrics: list[tuple[object, ...]] = []
        self.results = self.metrics = 0
        """So many were taken."""

    def add(self, table: AnyTable, **values: object) -> None:
        """Add one row; columns without a value get their default, or NULL."""
        self._waiting[table].append(values)

    def add_results(self, rows: Sequence[str | Row]) -> None:
        """Add test results: lines of COPY for Postgres, else rows."""
        self._results += rows
        self.results += len(rows)

    def add_metrics(self, rows: Sequence[tuple[object, ...]]) -> None:
        """Add metrics as tuples in the order of the table's columns."""
        self._metrics += rows
        self.metrics += len(rows)

    def flush_when_full(self) -> None:
        """Write the waiting rows if there are many; call it between runs, when references exist."""
        if len(self._metrics) + len(self._results) >= _AT_ONCE:
            self.flush()

    def flush(self) -> None:
        """Write the waiting rows in one transaction."""
        with self._sessions.write() as session:
            connection = session.connection()
            for table, rows in self._waiting.items():
                if rows:
                    maker = self._makers[table]
                    self._write(connection, maker.name, maker.columns, map(maker.row, rows))
            self._write(connection, "metric", _METRICS, self._metrics)
            if self._results:
                self._write_results(connection)
        for rows in self._waiting.values():
            rows.clear()
        self._metrics, self._results = [], []

    def first(self, table: type[TableBase], column: str = "pk") -> int:
        """Return the number of a table's next row."""
        with self._sessions.read() as session:
            return (session.scalar(select(func.max(table.__table__.columns[column]))) or 0) + 1

    def begin(self) -> None:
        """Drop the index that is faster to build at the end."""
        with self._sessions.write() as session:
            session.execute(text(f"DROP INDEX IF EXISTS {_LATER}"))

    def end(self) -> None:
        """Build the index, set the sequences, and update the database's statistics."""
        index = next(i for i in TestResultRow.__table__.indexes if i.name == _LATER)
        with self._sessions.write() as session:
            index.create(session.connection())
            if self.is_postgres:
                for table in _NUMBERED:
                    session.execute(text(_SEQUENCE.format(table=table)))
        with self._sessions.engine.connect() as connection:
            outside = connection.execution_options(isolation_level="AUTOCOMMIT")
            outside.exec_driver_sql("VACUUM ANALYZE" if self.is_postgres else "ANALYZE")

    def _write(
        self, connection: Connection, name: str, columns: Sequence[str], rows: Iterable[Any]
    ) -> None:
        listed = ", ".join(f'"{column}"' for column in columns)
        if self.is_postgres:
            with (
                _postgres(connection).cursor() as cursor,
                cursor.copy(f"COPY {name} ({listed}) FROM STDIN") as copy,  # type: ignore[arg-type]
            ):
                for row in rows:
                    copy.write_row(row)
            return
        marks = ", ".join("?" * len(columns))
        _sqlite(connection).executemany(f"INSERT INTO {name} ({listed}) VALUES ({marks})", rows)

    def _write_results(self, connection: Connection) -> None:
        if not self.is_postgres:
            self._write(connection, "test_result", _RESULTS, self._results)
            return
        with (
            _postgres(connection).cursor() as cursor,
            cursor.copy(f"COPY test_result ({', '.join(_RESULTS)}) FROM STDIN") as copy,  # type: ignore[arg-type]
        ):
            copy.write("".join(self._results))  # type: ignore[arg-type]


_SEQUENCE = """
SELECT setval(pg_get_serial_sequence('{table}', 'pk'), (SELECT max(pk) FROM {table}))
WHERE EXISTS (SELECT 1 FROM {table})
"""


class _Maker:
    """Converts values of the domain to values of the database driver."""

    def __init__(self, table: AnyTable, dialect: Any) -> None:
        made = table if isinstance(table, Table) else TableBase.metadata.tables[table.__tablename__]
        columns, self.name = made.columns, made.name
        self.columns = tuple(column.name for column in columns)
        self._parts = tuple(
            (column.name, _default(column), _binder(column, dialect)) for column in columns
        )

    def row(self, values: Values) -> tuple[object, ...]:
        """Return one row in the order of the columns."""
        made = []
        for name, default, bind in self._parts:
            value = values.get(name, default)
            made.append(value if bind is None else bind(value))
        return tuple(made)


def _default(column: Column[Any]) -> object:
    return column.default.arg if column.default is not None else None


def _binder(column: Column[Any], dialect: Any) -> Callable[[Any], Any] | None:
    return column.type.dialect_impl(dialect).bind_processor(dialect)


def _postgres(connection: Connection) -> psycopg.Connection[Any]:
    driver = connection.connection.driver_connection
    assert isinstance(driver, psycopg.Connection)
    return driver


def _sqlite(connection: Connection) -> sqlite3.Connection:
    driver = connection.connection.driver_connection
    assert isinstance(driver, sqlite3.Connection)
    return driver


_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


def copied(row: Row) -> str:
    """Return a result as a line of COPY."""
    cell, test, attempt, outcome, final, took, reason, message, digest, position, signature = row
    whole = "\\N" if digest is None else f"\\\\x{digest.hex()}"
    return (
        f"{cell}\t{test}\t{attempt}\t{outcome}\t{'t' if final else 'f'}\t{took}"
        f"\t{reason.translate(_ESCAPES)}\t{message.translate(_ESCAPES)}\t{whole}\t{position}"
        f"\t{signature or chr(92) + 'N'}\n"
    )
