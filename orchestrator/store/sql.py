"""SQL helpers of all stores, and the lock order.

Locks are taken in one order, so that two transactions never wait for each other:
cell, attempt, texts by their digests, tests by their names, run. The run's row comes last because
every run event locks it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from decimal import Decimal
from typing import Any, Generic, TypeVar, TypeVarTuple

from sqlalchemy import (
    JSON,
    BigInteger,
    CursorResult,
    Float,
    Row,
    Select,
    Table,
    Text,
    bindparam,
    cast,
    exists,
    func,
    literal,
    or_,
    select,
    type_coerce,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Bundle, InstrumentedAttribute, Session
from sqlalchemy.sql import Executable
from sqlalchemy.sql.elements import ColumnElement

from orchestrator.store.errors import UnknownIdError
from orchestrator.store.tables import AttemptRow, CellRow, RunRow, RunSpecRow, TableBase

R = TypeVar("R", bound=TableBase)
V = TypeVar("V")
AnyTable = type[TableBase] | Table

IN_ONE_LIST = 1_000
"""Maximum values in one IN (...)."""


def slices(values: Sequence[V]) -> Iterator[Sequence[V]]:
    """Yield slices that fit one statement."""
    return (values[i : i + IN_ONE_LIST] for i in range(0, len(values), IN_ONE_LIST))


def is_postgres(session: Session) -> bool:
    """Return whether the database is Postgres."""
    return session.get_bind().dialect.name == "postgresql"


def lock(session: Session, rows: Select[Any]) -> None:
    """Lock rows without reading them; SQLite has only one writer and needs no lock."""
    if is_postgres(session):
        session.execute(rows.with_for_update(key_share=True))


def insert_into(session: Session, table: AnyTable) -> postgresql.Insert | sqlite.Insert:
    """Return an INSERT that supports ON CONFLICT."""
    return postgresql.insert(table) if is_postgres(session) else sqlite.insert(table)


def values_of(table: AnyTable, record: object, **more: object) -> dict[str, object]:
    """Return the table's columns that the record has fields for, overridden by `more`."""
    names = table.c.keys() if isinstance(table, Table) else table.__mapper__.column_attrs.keys()
    return {x: getattr(record, x) for x in names if x not in more and hasattr(record, x)} | more


class Records(Bundle[V]):
    """The records of a table, as an expression of a query."""

    def __init__(self, record: type[V], table: Table) -> None:
        super().__init__(table.name, *(table.c[one.name] for one in fields(record)))  # type: ignore[arg-type]
        self._record = record

    def create_row_processor(
        self, query: Select[Any], procs: Sequence[Callable[[Row[Any]], Any]], labels: Sequence[str]
    ) -> Callable[[Row[Any]], V]:
        """Return the function that makes a record of a row."""
        return lambda row: self._record(*(column(row) for column in procs))


def changed(session: Session, statement: Executable) -> int:
    """Execute an INSERT, UPDATE or DELETE; return the number of changed rows."""
    options = {"synchronize_session": False, "preserve_rowcount": True}
    result = session.execute(statement, execution_options=options)
    return result.rowcount if isinstance(result, CursorResult) else 0


def database_time_s(session: Session) -> ColumnElement[float]:
    """Return seconds since the epoch, by the database's clock."""
    if is_postgres(session):
        return cast(func.extract("epoch", func.clock_timestamp()), Float(53))
    return (func.julianday("now") - 2440587.5) * 86400.0


_MICRO = 1_000_000


def micro_usd(amount: object) -> ColumnElement[int]:
    """Convert money to integer millionths, for exact sums in SQLite."""
    return cast(func.round(cast(amount, Float(53)) * _MICRO), BigInteger)


def usd_of_micro(micro: float | None) -> Decimal:
    """Convert a sum of `micro_usd` to US dollars."""
    return Decimal(round(micro or 0)) / _MICRO


def _by_id(table: type[R], row_id: InstrumentedAttribute[str]) -> dict[bool, Select[R]]:
    """Return the statement for a row by its id, by whether it is locked; each is built once."""
    query = select(table).where(row_id == bindparam("of_id"))
    # Unlike FOR UPDATE, this lock lets others insert rows that refer to this one.
    locking = query.with_for_update(key_share=True).execution_options(populate_existing=True)
    return {False: query, True: locking}


_CELLS = _by_id(CellRow, CellRow.id)
_ATTEMPTS = _by_id(AttemptRow, AttemptRow.id)
_RUNS = _by_id(RunRow, RunRow.id)


def cell_row(session: Session, cell_id: str, *, lock: bool = False) -> CellRow:
    """Return the cell's row. Raises UnknownIdError."""
    return _one(session, _CELLS[lock], "cell", cell_id)


def attempt_row(session: Session, attempt_id: str, *, lock: bool = False) -> AttemptRow:
    """Return the attempt's row. Raises UnknownIdError."""
    return _one(session, _ATTEMPTS[lock], "attempt", attempt_id)


def run_row(session: Session, run_id: str, *, lock: bool = False) -> RunRow:
    """Return the run's row. Raises UnknownIdError."""
    return _one(session, _RUNS[lock], "run", run_id)


def _one(session: Session, query: Select[R], kind: str, row_id: str) -> R:
    found = session.scalars(query, {"of_id": row_id}).one_or_none()
    if found is None:
        raise UnknownIdError(kind, row_id)
    return found


def json_text(
    session: Session, document: InstrumentedAttribute[object], *path: str
) -> ColumnElement[str | None]:
    """Select the value at a path of a JSON text column; NULL for null."""
    text = type_coerce(document, Text)
    if is_postgres(session):
        inside: ColumnElement[str | None] = cast(text, JSON)[path].as_string()
        return inside
    found: ColumnElement[str | None] = func.json_extract(text, "$." + ".".join(path))
    return found


def whole_runs(session: Session) -> ColumnElement[bool]:
    """Select runs that are no rerun, confirmation run or bisection of some jobs."""
    partial = exists().where(
        RunSpecRow.run_id == RunRow.id, json_text(session, RunSpecRow.spec, "only").is_not(None)
    )
    return or_(RunRow.rerun_of.is_(None), ~partial)


Item = TypeVar("Item")
Other = TypeVar("Other")
Values = TypeVarTuple("Values")
Cursor = TypeVar("Cursor")


@dataclass(frozen=True, slots=True)
class PageAsked(Generic[Cursor]):
    """Request for a page of a list."""

    limit: int
    """Maximum number of items."""
    last: Cursor | None = None
    """Cursor: the key of the last item of the page before; None for the first page."""


class ListPage(list[Item], Generic[Item, Cursor]):
    """A page of a list: items in the order of the list, with the next cursor."""

    next: Cursor | None
    """Cursor of the next page; None on the last one."""

    def __init__(self, items: Iterable[Item] = (), following: Cursor | None = None) -> None:
        super().__init__(items)
        self.next = following

    def each(self, read: Callable[..., Other]) -> ListPage[Other, Cursor]:
        """Return the page with what `read` returns for the columns of each row."""
        return ListPage([read(*row) for row in self], self.next)  # type: ignore[misc]  # of rows


def cursor_value(cursor: Any) -> ColumnElement[Any]:  # noqa: ANN401 - of the key's type
    """Return a cursor for a comparison with its key.

    A caller's number may exceed the key's column, which Postgres would refuse.
    """
    return literal(cursor, BigInteger() if isinstance(cursor, int) else None)


def page_of(
    session: Session,
    query: Select[*Values],
    key: InstrumentedAttribute[Cursor],
    asked: PageAsked[Cursor] | None,
    *,
    newest_first: bool = False,
) -> ListPage[tuple[Any, ...], Cursor]:
    """Return a query's rows in the order of a column whose values are unique.

    Args:
        session: The transaction.
        query: The rows, in no order.
        key: The column.
        asked: The page; None for every row.
        newest_first: Whether the greatest key is the first one.
    """
    query = query.order_by(key.desc() if newest_first else key)
    if asked is None:
        return ListPage(session.execute(query).all())
    if asked.last is not None:
        last = cursor_value(asked.last)
        query = query.where(key < last if newest_first else key > last)
    rows = session.execute(query.add_columns(key).limit(asked.limit + 1)).all()
    shown = rows[: asked.limit]
    return ListPage([row[:-1] for row in shown], shown[-1][-1] if len(rows) > len(shown) else None)
