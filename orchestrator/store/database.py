"""Opening a database: the one way in."""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.store.blobs import DbBlobs
from orchestrator.store.schema_revisions import Revisions, migrate, require_current, revisions
from orchestrator.store.sessions import Access, Sessions, connect
from orchestrator.store.stores import Stores, stores_of

_SIGNED_AT_ONCE = 1_000


@dataclass(frozen=True, slots=True)
class Database:
    """An open database of this version's tables."""

    sessions: Sessions
    stores: Stores
    blobs: DbBlobs

    def check(self) -> Revisions:
        """Which revision its tables are of."""
        return revisions(self.sessions.engine)

    def ready(self) -> str:
        """The revision, once something could be written. Raises StoreUnusableError."""
        self.sessions.probe()
        return self.check().current or "none"

    def close(self) -> None:
        """Let every connection go."""
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
    """Compare any database with this version's migrations, writing nothing."""
    engine = connect(url, Access.READ)
    try:
        return revisions(engine)
    finally:
        engine.dispose()


_migrate = migrate
