"""Opens a database, and checks or migrates its schema."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, func, select

from orchestrator.assets import asset_dir
from orchestrator.store.blobs import DbBlobs
from orchestrator.store.errors import DatabaseNewerError, DatabaseOutdatedError, StoreError
from orchestrator.store.sessions import Access, Sessions, as_store_errors, connect
from orchestrator.store.stores import Stores, stores_of

_MIGRATION_LOCK = 7_328_417_253
"""Number of the advisory lock of migrations in Postgres."""


@dataclass(frozen=True, slots=True)
class Revisions:
    """Revision of the database's schema, and the program's."""

    current: str | None
    """None without tables."""
    head: str

    @property
    def is_current(self) -> bool:
        """Whether both are equal."""
        return self.current == self.head


def configuration(connection: Connection | None = None) -> Config:
    """Return Alembic's configuration, which has no file."""
    config = Config()
    config.set_main_option("script_location", str(asset_dir("migrations")).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def revisions(engine: Engine) -> Revisions:
    """Compare the database's schema with the migrations."""
    with as_store_errors(engine), engine.connect() as connection:
        current = MigrationContext.configure(connection).get_current_revision()
    return Revisions(current, _head())


def require_current(engine: Engine) -> None:
    """Raise DatabaseOutdatedError or DatabaseNewerError unless the schema is of this version."""
    found = revisions(engine)
    if found.is_current:
        return
    where = engine.url.render_as_string(hide_password=True)
    if found.current in (None, *_known()):
        state = f"is at revision {found.current}" if found.current else "has no tables yet"
        message = f"the database {where} {state}, {found.head} is needed: run `seatrial db upgrade`"
        raise DatabaseOutdatedError(message, current=found.current, head=found.head)
    message = (
        f"the database {where} is at revision {found.current}, which this version of Seatrial "
        f"does not know (its newest is {found.head}): install the newer version"
    )
    raise DatabaseNewerError(message, current=found.current, head=found.head)


def migrate(url: str) -> None:
    """Upgrade the schema to the newest revision; an unknown revision is left unchanged.

    On Postgres two callers take turns; on SQLite the caller holds the home.
    """
    _change(url, lambda config: command.upgrade(config, "head"))


def unmigrate(url: str, target: str) -> None:
    """Downgrade the schema to an older revision, or to none (``base``). Data is lost."""
    _change(url, lambda config: command.downgrade(config, target))


def _change(url: str, run: Callable[[Config], None]) -> None:
    engine = connect(url, Access.MIGRATE)
    try:
        with as_store_errors(engine), engine.begin() as connection:
            if engine.dialect.name == "postgresql":
                connection.execute(select(func.pg_advisory_xact_lock(_MIGRATION_LOCK)))
            current = MigrationContext.configure(connection).get_current_revision()
            if current in (None, *_known()):
                run(configuration(connection))
            if engine.dialect.name == "sqlite":
                _check_references(connection)
    finally:
        engine.dispose()


def _check_references(connection: Connection) -> None:
    broken = connection.exec_driver_sql("PRAGMA foreign_key_check").first()
    if broken is not None:
        raise StoreError(f"the migration would break a reference of table {broken[0]!r}")


@cache
def _known() -> tuple[str, ...]:
    """Return revisions, newest first."""
    return tuple(script.revision for script in _scripts().walk_revisions())


@cache
def _head() -> str:
    """Return the newest revision; cached, since finding it compiles every migration."""
    head = _scripts().get_current_head()
    if head is None:
        raise StoreError(f"there are no migrations in {asset_dir('migrations')}")
    return head


def _scripts() -> ScriptDirectory:
    return ScriptDirectory.from_config(configuration())


_SIGNED_AT_ONCE = 1_000


@dataclass(frozen=True, slots=True)
class Database:
    """An open database with the schema of this version."""

    sessions: Sessions
    stores: Stores
    blobs: DbBlobs

    def check(self) -> Revisions:
        """Return the revision of its schema."""
        return revisions(self.sessions.engine)

    def ready(self) -> str:
        """Return the revision after a successful write. Raises StoreUnusableError."""
        self.sessions.probe()
        return self.check().current or "none"

    def close(self) -> None:
        """Close every connection."""
        self.sessions.engine.dispose()


def open_database(url: str, *, migrate: bool = False, read_only: bool = False) -> Database:
    """Open the database at `url` (``sqlite:////file`` or ``postgresql://...``).

    Args:
        url: Where it is.
        migrate: Bring its tables to the newest revision first, making the file if need be. On
            SQLite only for the one who holds the home.
        read_only: Never write, not even what opening alone would.

    Raises:
        DatabaseOutdatedError: The tables are older than this version, or missing.
        DatabaseNewerError: The tables are newer than this version.
        StoreError: The database cannot be reached.
    """
    if migrate and read_only:
        raise ValueError("a database that is opened to read cannot be migrated")
    if migrate:
        _migrate(url)
    engine = connect(url, Access.READ if read_only else Access.WRITE)
    try:
        require_current(engine)
    except BaseException:
        engine.dispose()
        raise
    sessions = Sessions(engine)
    database = Database(sessions, stores_of(sessions), DbBlobs(sessions))
    if migrate:
        while database.stores.failures.regroup(limit=_SIGNED_AT_ONCE):
            pass  # what another version of the algorithm has signed
        while database.stores.benchmarks.roll_up(limit=_SIGNED_AT_ONCE):
            pass  # what was measured before there were points
    return database


def revisions_of(url: str) -> Revisions:
    """Compare any database's schema with this version's migrations, without writing."""
    engine = connect(url, Access.READ)
    try:
        return revisions(engine)
    finally:
        engine.dispose()


_migrate = migrate
