"""A copy of all rows, read in one transaction, in a form that either database takes.

Values are those of the columns, not of the domain: a row that this version could not read is
copied as it is. Rows with secrets are left out, and so is what only a living controller needs.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from decimal import Decimal
from typing import Any

from sqlalchemy import Column, Text, column, func, insert, select, text, update
from sqlalchemy import Table as SqlTable
from sqlalchemy import table as table_clause
from sqlalchemy.orm import Session
from sqlalchemy.sql.expression import TableClause
from sqlalchemy.types import LargeBinary, TypeEngine

from orchestrator.domain.audit import AuditOutcome
from orchestrator.domain.cell import RunState
from orchestrator.store.audit_recorder import AuditedChange, Call, append, without_secrets
from orchestrator.store.column_types import DocumentColumn, ExactDecimal, Name, OneOf, Utc, Words
from orchestrator.store.errors import DamagedError
from orchestrator.store.sessions import Sessions
from orchestrator.store.tables import ChannelRow, RunRow, TableBase

_LEFT_OUT = frozenset({"browser_session", "controller", "lease_credentials", "blob", "blob_chunk"})
"""Secrets, controllers that are alive, and blobs, which are copied by their digests."""
_AT_ONCE = 500
RESTORED = "it was restored from a backup, which has no secrets: remove it, and create it again"
"""Why a restored channel is disabled."""


class BackupStore:
    """Copies of all rows."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def copy(self) -> Iterator[tuple[str, Iterator[str]]]:
        """Yield each table's name and its rows as lines of JSON, all of one moment.

        A table's lines must be read before the next table.
        """
        with self._sessions.read() as session:
            for table in _tables():
                yield table.name, _lines(session, table)

    def is_empty(self) -> bool:
        """Whether no table has a row."""
        with self._sessions.read() as session:
            tables = TableBase.metadata.sorted_tables
            return not any(
                session.execute(select(1).select_from(t).limit(1)).first() for t in tables
            )

    def restore(self, copies: Iterable[tuple[str, Iterator[str]]], call: Call) -> int:
        """Insert the rows of all tables in one transaction; return their number.

        Runs that were going on are cancelled: their machines are ended, and what was finished is
        kept. Raises DamagedError for lines that are no rows of this schema.
        """
        tables = {table.name: table for table in _tables()}
        number = 0
        with self._sessions.write() as session:
            for name, lines in copies:
                number += _insert(session, tables[name], lines)
            if self._sessions.is_postgres:
                _count_on(session)
            running = (RunRow.state != RunState.FINISHED, RunRow.cancel_requested_at.is_(None))
            session.execute(update(RunRow).where(*running).values(cancel_requested_at=call.at))
            disabled = {"disabled_at": call.at, "disabled_reason": RESTORED}
            session.execute(update(ChannelRow).values(disabled))
            append(
                session,
                call,
                [AuditedChange("database", after={"rows": number})],
                AuditOutcome.DONE,
            )
        return number


def table_names() -> list[str]:
    """Return the names of the copied tables, in an order in which they can be inserted."""
    return [table.name for table in _tables()]


def _tables() -> list[SqlTable]:
    return [one for one in TableBase.metadata.sorted_tables if one.name not in _LEFT_OUT]


def _plain(given: Column[Any]) -> TypeEngine[Any]:
    """Return the type of the stored value."""
    is_text = isinstance(given.type, DocumentColumn | OneOf | Words | Name)
    return Text() if is_text else given.type


def _bare(table: SqlTable) -> TableClause:
    return table_clause(table.name, *(column(one.name, _plain(one)) for one in table.columns))


def _lines(session: Session, table: SqlTable) -> Iterator[str]:
    bare = _bare(table)
    rows = session.execute(select(*bare.columns), execution_options={"yield_per": _AT_ONCE})
    channel = ChannelRow.__table__
    for row in rows:
        values = dict(row._mapping)  # noqa: SLF001 - SQLAlchemy's public name
        if table is channel:
            values = _without_secrets(values)
        yield json.dumps([_written(one) for one in values.values()], ensure_ascii=False) + "\n"


def _without_secrets(values: dict[str, object]) -> dict[str, object]:
    kind = ChannelRow.__table__.columns["channel"].type
    channel = kind.process_result_value(values["channel"], None)  # type: ignore[attr-defined]
    shown = without_secrets({"channel": replace(channel, secrets=())})
    return values | {"channel": kind.process_bind_param(shown["channel"], None)}  # type: ignore[attr-defined]


def _written(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    return base64.b64encode(value).decode("ascii") if isinstance(value, bytes) else value


def _readers(table: SqlTable) -> list[tuple[str, Callable[[object], object]]]:
    return [(one.name, _reader(one.type)) for one in table.columns]


def _reader(kind: TypeEngine[object]) -> Callable[[object], object]:
    if isinstance(kind, Utc):
        return lambda value: datetime.fromisoformat(str(value))
    if isinstance(kind, ExactDecimal):
        return lambda value: Decimal(str(value))
    if isinstance(kind, LargeBinary):
        return lambda value: base64.b64decode(str(value), validate=True)
    return lambda value: value


def _insert(session: Session, table: SqlTable, lines: Iterator[str]) -> int:
    readers, bare = _readers(table), _bare(table)
    number = 0
    waiting: list[dict[str, object]] = []
    for line in lines:
        waiting.append(_row(table.name, readers, line))
        if len(waiting) == _AT_ONCE:
            session.execute(insert(bare), waiting)
            number += len(waiting)
            waiting = []
    if waiting:
        session.execute(insert(bare), waiting)
    return number + len(waiting)


def _row(
    table: str, readers: Sequence[tuple[str, Callable[[object], object]]], line: str
) -> dict[str, object]:
    try:
        values = json.loads(line)
        pairs = zip(readers, values, strict=True)
        return {name: None if one is None else read(one) for (name, read), one in pairs}
    except (ValueError, TypeError, ArithmeticError) as error:
        raise DamagedError(f"a row of the table {table} cannot be read: {error}") from error


def _count_on(session: Session) -> None:
    """Let Postgres give out numbers after the restored ones."""
    for table in _tables():
        for key in table.primary_key:
            named = {"table": table.name, "column": key.name}
            sequence = session.scalar(text("SELECT pg_get_serial_sequence(:table, :column)"), named)
            if sequence is not None:
                highest = select(func.max(key)).scalar_subquery()
                session.execute(select(func.setval(sequence, func.coalesce(highest, 1))))
