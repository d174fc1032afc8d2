"""Connections and transactions of SQLite and Postgres."""

from __future__ import annotations

import itertools
import secrets
import sqlite3
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple, cast
from urllib.parse import quote, unquote

from sqlalchemy import (
    URL,
    Connection,
    Dialect,
    Engine,
    Row,
    Select,
    create_engine,
    event,
    func,
    make_url,
    select,
)
from sqlalchemy.exc import ArgumentError, InterfaceError, OperationalError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.orm import InstrumentedAttribute, Session, sessionmaker
from sqlalchemy.pool import NullPool
from sqlalchemy.sql.selectable import TypedReturnsRows

from orchestrator.store.audit_recorder import recorded
from orchestrator.store.column_types import storable_json
from orchestrator.store.errors import RESTORE_ADVICE, StoreError, StoreUnusableError
from orchestrator.store.sql import ListPage, PageAsked, page_of

if TYPE_CHECKING:
    import psycopg

V = TypeVar("V")
Values = TypeVarTuple("Values")
_BUSY_TIMEOUT_S = 10
_TURN_TIMEOUT_S = 30
_PROBE_TIMEOUT_S = 1
_TROUBLE_S = 60
"""Seconds for which a failed write counts as a present problem."""
_ADVICE = (
    (
        ("is locked", "is busy", "lock timeout"),
        "another process holds the database's lock; if it stays so, see who has the file open",
    ),
    (("disk is full", "No space left", "DiskFull"), "the database's disk is full: make room there"),
    (("readonly", "read-only"), "the database cannot be written to: see the rights of its files"),
    (("disk I/O error",), "the database's disk fails: see the system's log"),
)
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_NOW = "the database cannot be reached now"
_NOTHING = "UPDATE alembic_version SET version_num = version_num"
_WRITES = "seatrial_writes"
_IS_CHANGED = "seatrial_is_changed"
UNMARKED = {"seatrial_unmarked": True}
"""Execution option of statements that change nothing which answers have for longer than seconds."""
_PROGRESS_OF = "seatrial_progress_of"
MARKS = 64
"""Number of rows of marks: more than connections, so that commits do not wait for each other.

As many rows follow for the progress of jobs, of which each run uses `_MARKS_OF_RUN`.
"""
_MARKS_OF_RUN = 8
_CHANGES = ("INSERT", "UPDATE", "DELETE", "REPLACE")
_POOL_SIZE = 10
_PAGES_AT_ONCE = 1_000
"""Free pages of a SQLite file that one transaction returns to the disk."""
_CUT_TIMEOUT_MS = 500
"""Milliseconds that the truncation of SQLite's log waits for readers, and writers for it."""
_POOL_OVERFLOW = 20
_KEY_BITS = 62
"""Random bits in the key of an advisory lock; enough to make it unique."""


class Access(Enum):
    """Purpose of a connection."""

    READ = "ro"
    WRITE = "rw"
    MIGRATE = "rwc"


def connect(url: str, access: Access) -> Engine:
    """Create the engine for `url` without connecting. Raises StoreError for an unknown URL."""
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise StoreError(f"not the URL of a database: {error}") from error
    backend = parsed.get_backend_name()
    if backend == "sqlite":
        return _sqlite(parsed, access)
    if backend in ("postgresql", "postgres"):
        return _postgres(parsed, access)
    raise StoreError(f"databases of the kind {backend!r} are not known: sqlite or postgresql")


def _sqlite(url: URL, access: Access) -> Engine:
    if not url.database or url.database == ":memory:":
        raise StoreError("a SQLite database must be a file: sqlite:////folder/app.db")
    path = Path(url.database).absolute()
    if access is not Access.MIGRATE and not path.is_file():
        raise StoreError(f"there is no database at {path}: `seatrial db upgrade` makes one")
    uri = URL.create(
        "sqlite+pysqlite",
        database=f"file:{quote(str(path))}",
        query={"mode": access.value, "uri": "true"},
    )
    arguments: dict[str, Any] = {"connect_args": {"timeout": _BUSY_TIMEOUT_S}}
    engine = _engine(uri, access, arguments)

    @event.listens_for(engine, "connect")
    def _(connection: sqlite3.Connection, _record: object) -> None:
        connection.isolation_level = None  # the driver must not begin transactions by itself
        for pragma in _pragmas(access):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def _(connection: Connection) -> None:
        writes = connection.get_execution_options().get(_WRITES, False)
        begin = "BEGIN IMMEDIATE" if writes else "BEGIN"
        try:
            _driver(connection).execute(begin)  # a twentieth of what a short transaction takes
        except sqlite3.OperationalError as error:
            raise OperationalError(begin, None, error) from error

    return engine


def _pragmas(access: Access) -> Iterator[str]:
    if access is Access.READ:
        yield "query_only=ON"  # and nothing that writes to the file, as journal_mode does
        return
    if access is Access.MIGRATE:
        yield "auto_vacuum=INCREMENTAL"  # of a new file, so that pruning can give its pages back
    yield "journal_mode=WAL"
    yield "synchronous=FULL"  # NORMAL may lose the last commits, with a machine's id, on power loss
    yield "secure_delete=ON"  # the keys of a machine that is gone are overwritten
    if access is Access.WRITE:
        yield "foreign_keys=ON"  # migrations rebuild tables, and check the keys at their end


def _postgres(url: URL, access: Access) -> Engine:
    arguments: dict[str, Any] = {"connect_args": {"application_name": "seatrial"}}
    if access is Access.READ:
        arguments["connect_args"]["options"] = "-c default_transaction_read_only=on"
    engine = _engine(url.set(drivername="postgresql+psycopg"), access, arguments)

    @event.listens_for(engine, "do_connect")
    def _(dialect: Dialect, _record: object, given: list[str], named: dict[str, str]) -> object:
        connection = cast("psycopg.Connection[Any]", dialect.connect(*given, **named))
        _require_utf8(connection, url)
        return connection

    @event.listens_for(engine, "connect")
    def _(connection: psycopg.Connection[Any], _record: object) -> None:
        # JIT compilation costs our statements more time than it saves.
        connection.execute("SET jit = off")
        # A plan for any values searches lists of a thousand cells one by one, row for row.
        connection.execute("SET plan_cache_mode = force_custom_plan")
        connection.commit()

    return engine


def _require_utf8(connection: psycopg.Connection[Any], url: URL) -> None:
    """Raise StoreError unless the database's encoding is UTF-8."""
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        connection.close()
        where = url.render_as_string(hide_password=True)
        raise StoreError(
            f"the database {where} has the encoding {encoding}, and UTF8 is needed: make another "
            "one (createdb --template template0 --encoding UTF8)"
        )


def _engine(url: URL, access: Access, arguments: dict[str, Any]) -> Engine:
    if access is Access.MIGRATE:
        arguments["poolclass"] = NullPool
    else:
        arguments |= {"pool_size": _POOL_SIZE, "max_overflow": _POOL_OVERFLOW}
        arguments["pool_pre_ping"] = url.get_backend_name() == "postgresql"
    return create_engine(url, json_serializer=storable_json, hide_parameters=True, **arguments)


def database_place(engine: Engine) -> str:
    """Return the database's file, or its URL without the password, for messages."""
    name = engine.url.database or ""
    if engine.dialect.name != "sqlite":
        return engine.url.render_as_string(hide_password=True)
    return unquote(name.removeprefix("file:").partition("?")[0]) if "file:" in name else name


@contextmanager
def as_store_errors(engine: Engine) -> Iterator[None]:
    """Convert driver errors to StoreError."""
    try:
        yield
    except SQLAlchemyError as error:
        if isinstance(error, _PASSING):
            raise _unusable(engine, error) from error
        cause = getattr(error, "orig", None) or error
        first_line = str(cause).strip().split("\n", 1)[0]
        where = database_place(engine)
        is_damaged = getattr(cause, "sqlite_errorcode", None) in _DAMAGED
        said = (
            f"is damaged: {first_line}; {RESTORE_ADVICE}" if is_damaged else f"failed: {first_line}"
        )
        raise StoreError(f"the database {where} {said}") from error


_PASSING = (OperationalError, InterfaceError, PoolTimeout)


def _unusable(engine: Engine, error: Exception) -> StoreUnusableError:
    cause = str(getattr(error, "orig", None) or error).strip().split("\n", 1)[0]
    where = database_place(engine)
    advice = next((said for words, said in _ADVICE if any(w in cause for w in words)), _NOW)
    message = f"the database {where} failed: {cause}"
    return StoreUnusableError(message, f"{advice}; nothing of this was stored")


def _is_of_disk(error: StoreUnusableError) -> bool:
    return "disk" in error.advice


def _driver(connection: Connection) -> sqlite3.Connection:
    """Return the driver's connection; SQLite's begins no transaction by itself."""
    return cast(sqlite3.Connection, connection.connection.driver_connection)


def _mark_changes(engine: Engine) -> None:
    """Make each transaction that changes rows change a mark as its last statement.

    A snapshot has the change if and only if it has the mark, in whatever order transactions commit.
    Transactions use the rows in turn, since a commit locks its row until it is on the disk.
    """
    turns = itertools.count(secrets.randbelow(MARKS))

    @event.listens_for(engine, "begin")
    def _(connection: Connection) -> None:
        for name in (_IS_CHANGED, _PROGRESS_OF):
            connection.info.pop(name, None)

    @event.listens_for(engine, "after_cursor_execute")
    def _(
        connection: Connection,
        cursor: Any,  # noqa: ANN401 (of either driver)
        statement: str,
        _parameters: object,
        context: Any,  # noqa: ANN401 (of either dialect)
        _many: bool,
    ) -> None:
        is_change = context.isinsert or context.isupdate or context.isdelete
        if not (is_change or statement.lstrip().upper().startswith(_CHANGES)):
            return
        # The number of returned rows is unknown yet.
        is_idle = cursor.rowcount == 0 and "RETURNING" not in statement
        if not (is_idle or context.execution_options.keys() & UNMARKED.keys()):
            connection.info[_IS_CHANGED] = True

    @event.listens_for(engine, "commit")
    def _(connection: Connection) -> None:
        run = connection.info.pop(_PROGRESS_OF, None)
        if connection.info.pop(_IS_CHANGED, False):
            rows = range(MARKS) if run is None else progress_marks(run)
            _change_mark(connection, rows[next(turns) % len(rows)])


def progress_marks(run: str = "") -> range:
    """Return the rows of marks for the progress of a run's jobs, or of all runs."""
    if not run:
        return range(MARKS, 2 * MARKS)
    first = MARKS + zlib.crc32(run.encode()) % (MARKS // _MARKS_OF_RUN) * _MARKS_OF_RUN
    return range(first, first + _MARKS_OF_RUN)


def _change_mark(connection: Connection, row: int) -> None:
    mark = (
        f"INSERT INTO change_mark (id, mark) VALUES ({row}, "  # noqa: S608
        f"'{secrets.token_hex(16)}') ON CONFLICT (id) DO UPDATE SET mark = excluded.mark"
    )
    try:
        _driver(connection).execute(mark)  # directly, as BEGIN: in a twentieth of SQLAlchemy's time
    except connection.dialect.loaded_dbapi.Error as error:
        raise OperationalError(mark, None, error) from error


def _is_one_file(one: str, other: str) -> bool:
    """Return whether two paths lead to one file, also through links."""
    try:
        return Path(one).samefile(other)
    except OSError:  # one of them does not exist yet
        return Path(one).resolve() == Path(other).resolve()


class Sessions:
    """Opens transactions of a database; each is one `with` block."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.is_postgres = engine.dialect.name == "postgresql"
        # All statements of a transaction read one snapshot, as on SQLite.
        level = {"isolation_level": "REPEATABLE READ"} if self.is_postgres else {}
        self._read = sessionmaker(engine.execution_options(**level), expire_on_commit=False)
        writing = engine.execution_options(**{_WRITES: True})
        _mark_changes(writing)
        self._write = sessionmaker(writing, expire_on_commit=False)
        # SQLite waits for its one writer by polling: within a process a queue is faster.
        self._turn = None if self.is_postgres else threading.Lock()
        self._failed: tuple[float, StoreUnusableError] | None = None

    def shares_database(self, other: Sessions) -> bool:
        """Whether both are of one database, whatever their URLs: a lock of one holds the other."""
        if self.is_postgres != other.is_postgres:
            return False
        if not self.is_postgres:
            return _is_one_file(database_place(self.engine), database_place(other.engine))
        key = secrets.randbits(_KEY_BITS)
        with (
            as_store_errors(self.engine),
            self.engine.connect() as holding,
            other.engine.connect() as asking,
        ):
            holding.execute(select(func.pg_advisory_xact_lock(key)))
            return not asking.scalar(select(func.pg_try_advisory_xact_lock(key)))

    @contextmanager
    def read(self) -> Iterator[Session]:
        """Begin a read-only transaction with a snapshot as of its first statement."""
        with as_store_errors(self.engine), self._read.begin() as session:
            yield session

    def rows(self, query: TypedReturnsRows[*Values]) -> Sequence[Row[*Values]]:
        """Return a query's rows, in a transaction of its own."""
        with self.read() as session:
            return session.execute(query).all()

    def scalars(self, query: TypedReturnsRows[V, *tuple[Any, ...]]) -> Sequence[V]:
        """Return the first column of a query's rows, in a transaction of its own."""
        with self.read() as session:
            return session.scalars(query).all()

    def page(
        self,
        query: Select[*Values],
        key: InstrumentedAttribute[V],
        asked: PageAsked[V] | None,
        *,
        newest_first: bool = False,
    ) -> ListPage[tuple[Any, ...], V]:
        """Return a page of a query's rows, in a transaction of its own, as `page_of`."""
        with self.read() as session:
            return page_of(session, query, key, asked, newest_first=newest_first)

    def scalar(self, query: TypedReturnsRows[V, *tuple[Any, ...]]) -> V | None:
        """Return the first column of a query's first row; None without a row."""
        with self.read() as session:
            found: V | None = session.scalar(query)
            return found

    @contextmanager
    def write(self, *, progress_of: str | None = None) -> Iterator[Session]:
        """Begin a read-write transaction.

        Args:
            progress_of: The run, if the transaction stores only reports of its running jobs;
                cached answers may lack them for seconds.
        """
        try:
            with (
                as_store_errors(self.engine),
                self._in_turn(),
                self._write.begin() as session,
                recorded(session),
            ):
                if progress_of is not None:
                    session.connection().info[_PROGRESS_OF] = progress_of
                yield session
        except StoreUnusableError as error:
            self._failed = (time.monotonic(), error)
            raise
        if self._failed is not None and not _is_of_disk(self._failed[1]):
            self._failed = None

    def shrink(self, is_late: Callable[[], bool]) -> None:
        """Return free pages of the SQLite file to the disk in short transactions.

        At the end the write-ahead log is truncated, unless another connection is using it.

        Args:
            is_late: Called after each transaction; True ends the work early.
        """
        left = -1
        while left and not is_late():
            with as_store_errors(self.engine), self._in_turn():
                before, left = self._shrink_some()
            if left == before:
                break
        if not is_late():
            with as_store_errors(self.engine), self._in_turn():
                self._cut_log()

    def _shrink_some(self) -> tuple[int, int]:
        """Return some free pages; return how many were free before, and how many still are."""
        pooled = self.engine.raw_connection()
        try:
            driver = cast(sqlite3.Connection, pooled.driver_connection)
            [before] = driver.execute("PRAGMA freelist_count").fetchone()
            # A script is stepped to its end; `execute` would stop after one page.
            driver.executescript(f"PRAGMA incremental_vacuum({_PAGES_AT_ONCE})")
            # A checkpoint copies the log into the file, which then shrinks; it waits for no reader.
            driver.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            [left] = driver.execute("PRAGMA freelist_count").fetchone()
        except sqlite3.OperationalError as error:
            raise OperationalError("PRAGMA incremental_vacuum", None, error) from error
        finally:
            pooled.close()
        return before, left

    def _cut_log(self) -> None:
        pooled = self.engine.raw_connection()
        driver = cast(sqlite3.Connection, pooled.driver_connection)
        try:
            driver.execute(f"PRAGMA busy_timeout={_CUT_TIMEOUT_MS}")
            driver.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        except sqlite3.OperationalError as error:
            raise OperationalError("PRAGMA wal_checkpoint", None, error) from error
        finally:
            driver.execute(f"PRAGMA busy_timeout={int(_BUSY_TIMEOUT_S * 1000)}")
            pooled.close()

    def probe(self) -> None:
        """Write a row within about a second, to check that the database can be written.

        Raises StoreUnusableError, also if a recent write failed and none has succeeded since: on a
        full disk a small write may succeed where a larger one fails.
        """
        if self._turn is None or self._turn.acquire(timeout=_PROBE_TIMEOUT_S):
            try:
                with as_store_errors(self.engine), self.engine.connect() as connection:
                    self._write_nothing(connection)
            finally:
                if self._turn is not None:
                    self._turn.release()
        if self._failed is not None and time.monotonic() - self._failed[0] < _TROUBLE_S:
            raise self._failed[1]

    def _write_nothing(self, connection: Connection) -> None:
        if self.is_postgres:
            connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{_PROBE_TIMEOUT_S}s'")
            connection.exec_driver_sql(_NOTHING)
            connection.commit()
            return
        driver = _driver(connection)
        try:
            driver.execute(f"PRAGMA busy_timeout={_PROBE_TIMEOUT_S * 1000}")
            driver.execute("BEGIN IMMEDIATE")
            driver.execute(_NOTHING)
            driver.execute("COMMIT")
        except sqlite3.OperationalError as error:
            if driver.in_transaction:
                driver.execute("ROLLBACK")
            raise OperationalError(_NOTHING, None, error) from error
        finally:
            driver.execute(f"PRAGMA busy_timeout={int(_BUSY_TIMEOUT_S * 1000)}")

    @contextmanager
    def _in_turn(self) -> Iterator[None]:
        if self._turn is None:
            yield
            return
        if not self._turn.acquire(timeout=_TURN_TIMEOUT_S):
            error = sqlite3.OperationalError("database is locked by a write of this process")
            raise OperationalError("BEGIN IMMEDIATE", None, error)
        try:
            yield
        finally:
            self._turn.release()
