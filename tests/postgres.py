"""A Postgres of the tests' own: started once a session, a fresh migrated database for each test."""

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

from orchestrator.adapters.db.revisions import migrate

_START_TIMEOUT_S = 30
_TEMPLATE = "seatrial_template"
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
        migrate(server.create(_TEMPLATE))
        yield server
    finally:
        server.stop()


@pytest.fixture
def postgres_url_factory(postgres_server: PostgresServer) -> Iterator[Callable[..., str]]:
    """Makes databases: `factory()` a migrated one, `factory(migrated=False)` an empty one.

    They go with the test: each takes 11 MB, and there are thousands.
    """
    made: list[str] = []

    def make(*, migrated: bool = True) -> str:
        made.append(f"test_{next(_numbers)}")
        return postgres_server.create(made[-1], _TEMPLATE if migrated else None)

    yield make
    for name in made:
        postgres_server.sql(f'DROP DATABASE "{name}" WITH (FORCE)')


@pytest.fixture
def postgres_url(postgres_url_factory: Callable[..., str]) -> str:
    """A fresh migrated database."""
    return postgres_url_factory()
