"""Connections and transactions: the only place that knows how each database wants them."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from enum import Enum
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psycopg
from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError
from sqlalchemy.orm import Session, sessionmaker
from sqlalchemy.pool import NullPool

from orchestrator.adapters.db.types import storable_json
from orchestrator.application.ports.stores import StoreError

_BUSY_TIMEOUT_S = 30
_WRITES = "seatrial_writes"
_POOL_SIZE = 10
_POOL_OVERFLOW = 20


class Access(Enum):
    """What a connection is for."""

    READ = "ro"
    WRITE = "rw"
    MIGRATE = "rwc"


def connect(url: str, access: Access) -> Engine:
    """Make the engine for `url`; nothing is opened yet. Raises StoreError for an unknown URL."""
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
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _pragmas(access: Access) -> Iterator[str]:
    if access is Access.READ:
        yield "query_only=ON"  # and nothing that writes to the file, as journal_mode does
        return
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

    @event.listens_for(engine, "connect")
    def _(connection: psycopg.Connection[Any], _record: object) -> None:
        # Compiling a statement takes longer than any of ours gains by it.
        connection.execute("SET jit = off")
        # A plan for any values searches lists of a thousand cells one by one, row for row.
        connection.execute("SET plan_cache_mode = force_custom_plan")
        connection.commit()

    return engine


def _engine(url: URL, access: Access, arguments: dict[str, Any]) -> Engine:
    if access is Access.MIGRATE:
        arguments["poolclass"] = NullPool
    else:
        arguments |= {"pool_size": _POOL_SIZE, "max_overflow": _POOL_OVERFLOW}
        arguments["pool_pre_ping"] = url.get_backend_name() == "postgresql"
    return create_engine(url, json_serializer=storable_json, hide_parameters=True, **arguments)


@contextmanager
def as_store_errors(engine: Engine) -> Iterator[None]:
    """Turn what the driver raises into a StoreError."""
    try:
        yield
    except SQLAlchemyError as error:
        cause = getattr(error, "orig", None) or error
        first_line = str(cause).strip().split("\n", 1)[0]
        where = engine.url.render_as_string(hide_password=True)
        raise StoreError(f"the database {where} failed: {first_line}") from error


class Sessions:
    """The transactions of one database; each is one `with` block."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.is_postgres = engine.dialect.name == "postgresql"
        # One moment for all statements of a transaction, as SQLite has it.
        level = {"isolation_level": "REPEATABLE READ"} if self.is_postgres else {}
        self._read = sessionmaker(engine.execution_options(**level), expire_on_commit=False)
        writing = engine.execution_options(**{_WRITES: True})
        self._write = sessionmaker(writing, expire_on_commit=False)
        # SQLite's own waiting for the one writer is by polling: in a process we queue instead.
        self._turn: AbstractContextManager[Any] = (
            nullcontext() if self.is_postgres else threading.Lock()
        )

    @contextmanager
    def read(self) -> Iterator[Session]:
        """A transaction that only reads, and sees the database as it is at its first statement."""
        with as_store_errors(self.engine), self._read.begin() as session:
            yield session

    @contextmanager
    def write(self) -> Iterator[Session]:
        """A transaction that may write; all of it or nothing."""
        with as_store_errors(self.engine), self._turn, self._write.begin() as session:
            yield session
