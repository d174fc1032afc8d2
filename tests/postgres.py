"""A Postgres of the tests' own, started once a session.

The tests of a session have one migrated database, each after the other: it is emptied between
them, and made anew where one has changed its tables. A test that needs a database without tables,
or several, makes them with `postgres_url_factory`.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest

from orchestrator.store.database import migrate

_START_TIMEOUT_S = 30
TEMPLATE = "seatrial_template"
_SHARED = "seatrial_shared"
_VACUUM_EACH = 50
"""Deleted rows stay in the files until then."""
_ALONE = """\
SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid()"""
_TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = 'public'"
_COUNTED = "SELECT sequencename FROM pg_sequences WHERE last_value IS NOT NULL"
_SCHEMA = """\
SELECT (SELECT version_num FROM alembic_version), (SELECT count(*) FROM pg_trigger),
  md5(string_agg(concat_ws(' ', attrelid, attname, atttypid), ',' ORDER BY attrelid, attnum))
FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid
WHERE relnamespace NOT IN ('pg_catalog'::regnamespace, 'pg_toast'::regnamespace)"""
_INITDB = ("-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync")
_ALWAYS = ("listen_addresses=", "max_connections=200")
_FAST = ("fsync=off", "synchronous_commit=off", "full_page_writes=off", "autovacuum=off")
_PREFIX = "seatrial-pg-"
_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True)
_numbers = count(1)


class PostgresMissingError(Exception):
    """This computer has no Postgres to start; the message says what is missing."""


@dataclass
class PostgresServer:
    """A running server, reached by a socket in its own folder."""

    folder: Path
    process: subprocess.Popen[bytes]
    serve: Callable[[], subprocess.Popen[bytes]]
    """Starts its process again."""

    def url(self, database: str) -> str:
        """The URL of one of its databases."""
        return f"postgresql://postgres@/{database}?host={self.folder}"

    def create(self, database: str, template: str | None = None) -> str:
        """Make a database, from a template if one is named; returns its URL."""
        # Not by copying files: that would wait for two checkpoints.
        source = f' TEMPLATE "{template}" STRATEGY wal_log' if template else ""
        self.sql(f'CREATE DATABASE "{database}"{source}')
        return self.url(database)

    def sql(self, statement: str) -> None:
        """Run one statement in the maintenance database."""
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(statement)  # type: ignore[call-overload]

    def restart(self, *, away_s: float) -> None:
        """End every connection and answer nobody for a while, then be there again."""
        self.process.send_signal(signal.SIGINT)
        self.process.wait(timeout=_START_TIMEOUT_S)
        time.sleep(away_s)
        self.process = self.serve()
        _wait(self, self.folder / "log")

    def stop(self) -> None:
        """Stop it, by its own process id."""
        self.process.send_signal(signal.SIGQUIT)  # at once: nothing in it is kept
        try:
            self.process.wait(timeout=_START_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def start_postgres(*, fast: bool = True) -> PostgresServer:
    """Start a server with no databases.

    Args:
        fast: Sync nothing, as tests want it.

    Raises:
        PostgresMissingError: This computer has none.
    """
    programs = _programs()
    identity = _identity()
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX))
    if identity:
        os.chown(folder, identity["user"], identity["group"])
    log = folder / "log"
    with log.open("wb") as output:
        subprocess.run(
            [programs / "initdb", "-D", folder / "data", "-U", "postgres", *_INITDB],
            check=True, stdout=output, stderr=output, cwd=folder, **identity,
        )  # fmt: skip
    settings = [f"-c{setting}" for setting in (*_ALWAYS, *(_FAST if fast else ()))]

    def serve() -> subprocess.Popen[bytes]:
        with log.open("ab") as output:
            return subprocess.Popen(
                [programs / "postgres", "-D", folder / "data", "-k", folder, *settings],
                stdout=output, stderr=output, cwd=folder, preexec_fn=_die_with_parent, **identity,
            )  # fmt: skip

    server = PostgresServer(folder, serve(), serve)
    try:
        _wait(server, log)
    except BaseException:
        server.stop()
        raise
    return server


def _die_with_parent() -> None:
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGQUIT)


def _programs() -> Path:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), reverse=True)
    on_path = shutil.which("initdb")
    if not found and not on_path:
        raise PostgresMissingError("no initdb on PATH or in /usr/lib/postgresql/*/bin")
    return (found[0] if found else Path(on_path or "")).parent


def _identity() -> dict[str, Any]:
    """Postgres refuses to run as root: then it is the user `postgres`."""
    if os.geteuid() != 0:
        return {}
    try:
        entry = pwd.getpwnam("postgres")
    except KeyError:
        raise PostgresMissingError("no user `postgres` to run the server as") from None
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


def _wait(server: PostgresServer, log: Path) -> None:
    deadline = time.monotonic() + _START_TIMEOUT_S
    while time.monotonic() < deadline and server.process.poll() is None:
        with suppress(psycopg.OperationalError):
            server.sql("SELECT 1")
            return
        time.sleep(0.05)
    raise RuntimeError(f"Postgres did not start:\n{log.read_text(errors='replace')}")


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """A server with a migrated template."""
    server = start_postgres()
    try:
        migrate(server.create(TEMPLATE))
        yield server
    finally:
        server.stop()


@pytest.fixture
def postgres_url_factory(postgres_server: PostgresServer) -> Iterator[Callable[..., str]]:
    """Makes databases: `factory()` a migrated one, `factory(migrated=False)` an empty one.

    They go with the test: each takes 11 MB.
    """
    made: list[str] = []

    def make(*, migrated: bool = True) -> str:
        made.append(f"test_{next(_numbers)}")
        return postgres_server.create(made[-1], TEMPLATE if migrated else None)

    yield make
    for name in made:
        postgres_server.sql(f'DROP DATABASE "{name}" WITH (FORCE)')


class SharedDatabase:
    """A migrated database that one test after the other has for itself."""

    def __init__(self, server: PostgresServer) -> None:
        self._server = server
        self._emptied = 0
        self._touched: set[str] = set()
        self._make()

    def empty(self) -> None:
        """End every other connection, delete all rows, and count from 1 again."""
        self._ask(_ALONE)
        if self._ask(_SCHEMA) != self._schema:
            self.close()
            self._server.sql(f'DROP DATABASE "{_SHARED}" WITH (FORCE)')
            self._make()
            return
        full = [f'"{table}"' for (table,) in self._ask(self._find_full)]
        with self._connection.transaction():
            for table in full:
                self._ask(f"DELETE FROM {table}")
            for (sequence,) in self._ask(_COUNTED):
                self._ask(f'ALTER SEQUENCE "{sequence}" RESTART')
        self._emptied += 1
        self._touched |= {*full}
        if self._emptied % _VACUUM_EACH == 0:
            self._ask(f"VACUUM {', '.join(self._touched)}")
            self._touched.clear()

    def close(self) -> None:
        """Let its connection go."""
        self._connection.close()

    def _make(self) -> None:
        self.url = self._server.create(_SHARED, TEMPLATE)
        self._connection = psycopg.connect(self.url, autocommit=True)
        # Without triggers there is no order in which rows must go.
        self._ask("SET session_replication_role = replica")
        self._schema = self._ask(_SCHEMA)
        tables = {name for (name,) in self._ask(_TABLES)} - {"alembic_version"}
        looks = (f"(SELECT '{name}' FROM \"{name}\" LIMIT 1)" for name in sorted(tables))
        self._find_full = " UNION ALL ".join(looks)

    def _ask(self, statement: str) -> list[tuple[Any, ...]]:
        done = self._connection.execute(statement)  # type: ignore[call-overload]
        return done.fetchall() if done.description else []


@pytest.fixture(scope="session")
def shared_postgres(postgres_server: PostgresServer) -> Iterator[SharedDatabase]:
    """Only for `postgres_url`."""
    shared = SharedDatabase(postgres_server)
    yield shared
    shared.close()


@pytest.fixture
def postgres_url(shared_postgres: SharedDatabase) -> Iterator[str]:
    """A migrated database without rows."""
    yield shared_postgres.url
    shared_postgres.empty()
