"""Opens a database, and checks or migrates its schema."""

from __future__ import annotations

import filecmp
import logging
import re
import shutil
import sqlite3
import struct
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from sqlalchemy import Connection, Engine, Text, column, func, inspect, select, table

from orchestrator.assets import asset_dir
from orchestrator.domain.units import plural
from orchestrator.store.blobs import DbBlobs
from orchestrator.store.errors import (
    RESTORE_ADVICE,
    DamagedError,
    DatabaseNewerError,
    DatabaseOutdatedError,
    StoreError,
)
from orchestrator.store.sessions import Access, Sessions, as_store_errors, connect, database_place
from orchestrator.store.stores import Stores, stores_of

if TYPE_CHECKING:
    from alembic.config import Config

_MIGRATION_LOCK = 7_328_417_253
"""Number of the advisory lock of migrations in Postgres."""
_REVISION = re.compile(r"^(revision|down_revision)(?:: [^=]+)? = ['\"]?(\w+)['\"]?$", re.MULTILINE)
_VERSIONS = table("alembic_version", column("version_num", Text))
"""The table in which Alembic notes the revision."""


@dataclass(frozen=True, slots=True)
class SchemaRevisions:
    """Revision of the database's schema, and the program's."""

    current: str | None
    """Revision of the tables; None without tables."""
    head: str

    @property
    def is_current(self) -> bool:
        """Whether both revisions are equal."""
        return self.current == self.head


# Of the processes that open a database, few migrate it, and Alembic takes 7 MB.
# ruff: noqa: PLC0415


def configuration(connection: Connection | None = None) -> Config:
    """Return Alembic's configuration, which has no file."""
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(asset_dir("migrations")).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def revisions(engine: Engine) -> SchemaRevisions:
    """Compare the database's schema with the migrations."""
    with as_store_errors(engine), engine.connect() as connection:
        current = _current(connection)
    return SchemaRevisions(current, _known()[0])


def newest_revision() -> str:
    """Return the revision that this version needs."""
    return _known()[0]


def _current(connection: Connection) -> str | None:
    """Return the revision of the tables; None without any."""
    if not inspect(connection).has_table(_VERSIONS.name):
        return None
    return connection.scalar(select(_VERSIONS.c.version_num))


def require_current(engine: Engine) -> None:
    """Raise DatabaseOutdatedError or DatabaseNewerError unless the schema is of this version."""
    found = revisions(engine)
    if found.is_current:
        return
    where = database_place(engine)
    if found.current in (None, *_known()):
        state = f"is at revision {found.current}" if found.current else _without_tables(where)
        message = f"the database {where} {state}, {found.head} is needed: run `seatrial db upgrade`"
        raise DatabaseOutdatedError(message, current=found.current, head=found.head)
    message = (
        f"the database {where} is at revision {found.current}, which this version of Seatrial "
        f"does not know (its newest is {found.head}): install the newer version"
    )
    raise DatabaseNewerError(message, current=found.current, head=found.head)


def _without_tables(place: str) -> str:
    file = Path(place)
    if file.is_file() and not file.stat().st_size:
        return "is an empty file of 0 bytes (restore a backup, if it had rows)"
    return "has no tables yet"


def migrate(url: str) -> None:
    """Upgrade the schema to the newest revision; an unknown revision is left unchanged.

    On Postgres two callers take turns; on SQLite the caller holds the home.
    """
    engine = connect(url, Access.MIGRATE)
    try:
        with as_store_errors(engine), engine.begin() as connection:
            if engine.dialect.name == "postgresql":
                connection.execute(select(func.pg_advisory_xact_lock(_MIGRATION_LOCK)))
            current = _current(connection)
            if current in (None, *_known()[1:]):
                _upgrade(connection)
            if engine.dialect.name == "sqlite":
                _check_references(connection)
    finally:
        engine.dispose()


def _check_references(connection: Connection) -> None:
    broken = connection.exec_driver_sql("PRAGMA foreign_key_check").first()
    if broken is not None:
        raise StoreError(f"the migration would break a reference of table {broken[0]!r}")


def _upgrade(connection: Connection) -> None:
    from alembic import command

    command.upgrade(configuration(connection), _known()[0])


@cache
def _known() -> tuple[str, ...]:
    """Return revisions, newest first, read from their files; Alembic would compile each file."""
    files = sorted((asset_dir("migrations") / "versions").glob("*.py"))
    texts = [file.read_text(encoding="utf-8") for file in files]
    said = [dict(_REVISION.findall(text)) for text in texts]
    newer = {one["down_revision"]: one["revision"] for one in said if "revision" in one}
    found, at = [], newer.get("None")
    while at is not None:
        found.append(at)
        at = newer.get(at)
    if not found:
        raise StoreError(f"there are no migrations in {asset_dir('migrations')}")
    return tuple(reversed(found))


_SIGNED_AT_ONCE = 1_000


@dataclass(frozen=True, slots=True)
class Database:
    """An open database with the schema of this version."""

    sessions: Sessions
    stores: Stores
    blobs: DbBlobs

    def check(self) -> SchemaRevisions:
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
        url: URL of the database.
        migrate: Create or upgrade its tables first. On SQLite the caller must hold the home.
        read_only: Write nothing, not even the changes that opening alone would make.

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


def revisions_of(url: str) -> SchemaRevisions:
    """Compare any database's schema with this version's migrations, without writing."""
    engine = connect(url, Access.READ)
    try:
        return revisions(engine)
    finally:
        engine.dispose()


_migrate = migrate


logger = logging.getLogger(__name__)

_HEADER = struct.Struct(">8I")
_FRAME = struct.Struct(">6I")
_MAGIC = (0x377F0682, 0x377F0683)


def check_file(path: Path) -> None:
    """Check a database file, and the log of one that its last process did not close.

    Raises DamagedError with the loss and the correction. A copy of the log is kept, and the next
    start continues with the remaining data. The check takes about 1 ms per megabyte.
    """
    log = Path(f"{path}-wal")
    if not path.is_file():
        return
    lost = lost_commits(log) if log.is_file() else 0
    if lost:
        kept = Path(f"{log}.damaged")
        said = (
            f"the write-ahead log {log} is damaged: the last {plural(lost, 'transaction')} that"
            f" had been committed cannot be read any more (a copy is kept as {kept.name})"
        )
        if not (kept.is_file() and filecmp.cmp(log, kept, shallow=False)):
            shutil.copyfile(log, kept)
            raise DamagedError(
                f"{said}; {RESTORE_ADVICE}, or start again to go on with what is left"
            )
        logger.error("%s; it goes on with what is left", said)
    fault = _quick_check(path)
    if fault:
        raise DamagedError(f"the database {path} is damaged: {fault}; {RESTORE_ADVICE}")


def lost_commits(log: Path) -> int:
    """Count transactions after the first corrupt WAL frame; at least one is lost.

    A frame that is torn at the very end is of a transaction that was not committed.
    """
    with log.open("rb") as file:
        header = file.read(_HEADER.size)
        if len(header) < _HEADER.size:
            return 0
        magic, _, page, _, *salts, first, second = _HEADER.unpack(header)
        order = ">" if magic == _MAGIC[1] else "<"
        if magic not in _MAGIC or _sum(header[:24], order) != (first, second):
            return sum(bool(_FRAME.unpack(head)[1]) for head, _ in _frames(file, page or 4096))
        return _behind_the_break(file, page, tuple(salts), (first, second), order)


def _behind_the_break(
    file: BinaryIO, page: int, salts: tuple[int, ...], known: tuple[int, int], order: str
) -> int:
    lost, is_broken = 0, False
    for head, body in _frames(file, page):
        _, commit, *rest = _FRAME.unpack(head)
        if tuple(rest[:2]) != salts:
            if is_broken:
                continue
            break  # a frame of an earlier use: the log was restarted
        known = _sum(head[:8] + body, order, known)
        is_broken = is_broken or known != tuple(rest[2:])
        lost += bool(is_broken and commit)
    return lost


def _frames(file: BinaryIO, page: int) -> Iterator[tuple[bytes, bytes]]:
    while True:
        head, body = file.read(_FRAME.size), file.read(page)
        if len(head) < _FRAME.size or len(body) < page:
            return
        yield head, body


def _sum(data: bytes, order: str, known: tuple[int, int] = (0, 0)) -> tuple[int, int]:
    one, two = known
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for at in range(0, len(words), 2):
        one = (one + words[at] + two) & 0xFFFFFFFF
        two = (two + words[at + 1] + one) & 0xFFFFFFFF
    return one, two


def _quick_check(path: Path) -> str:
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
            (said,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.OperationalError:
        return ""  # opening it reports the reason
    except sqlite3.DatabaseError as error:
        return str(error)
    return "" if said == "ok" else " ".join(str(said).split())
