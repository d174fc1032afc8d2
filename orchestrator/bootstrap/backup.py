"""Backup and restore of a controller: its database, its blobs and its id.

docs/how-to/backup.md says what a backup contains, and what a restore changes.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import IO

import orchestrator
from orchestrator.adapters.clock import SystemClock
from orchestrator.adapters.files.backup_archive import (
    BackupArchive,
    BackupArchiveError,
    BackupFacts,
    MemberGoneError,
    chunks_of,
    damaged,
    verify_archive,
    write_archive,
)
from orchestrator.adapters.files.blobs import FileBlobs
from orchestrator.adapters.files.home_folder import (
    HomeHeldError,
    HomeLock,
    HomeUnusableError,
    system_user,
)
from orchestrator.application.ports.blobs import Blobs
from orchestrator.bootstrap.controller_wiring import (
    CONTROLLER_ID,
    app_url,
    is_embedded,
    keep_controller_id,
    known_controller_id,
    shown_url,
)
from orchestrator.cli.errors import RefusedError
from orchestrator.cli.wiring import BackupReport, RestoreReport
from orchestrator.config import Settings
from orchestrator.domain.blobs import BlobCorruptError, BlobMismatchError, BlobMissingError
from orchestrator.domain.caller_identity import SOCKET, Person
from orchestrator.store.audit_recorder import Call
from orchestrator.store.backup import table_names
from orchestrator.store.database import Database, newest_revision, open_database
from orchestrator.store.errors import DamagedError, StoreError

_ROWS, _BLOBS = "rows/", "blobs/"
_ROW_LIMIT = 64 << 20
"""Maximum bytes of a row: twice the largest chunk or document, in base64 or escaped."""
_NO_ROW = "; no row was restored"


def backup(settings: Settings, path: Path) -> BackupReport:
    """Copy rows and blobs into a new file, also while controllers run.

    Args:
        settings: The home and the database of the controller, which are only read.
        path: The file; its folder temporarily needs space for the largest table or blob twice.

    Returns:
        The contents of the file, which was read back and compared with its digests.

    Raises:
        RefusedError: The database cannot be read or is damaged, the home has no controller id, a
            blob is damaged, or the file exists or cannot be written. No file is left.
    """
    try:
        database = open_database(app_url(settings), read_only=True)
        try:
            facts = BackupFacts(
                at=SystemClock().now(),
                version=orchestrator.__version__,
                revision=str(database.check().current),
                project=settings.project,
                controller=_required_id(settings.home),
            )
            named = database.stores.backup.named_blobs()
            archive = write_archive(path, facts, _members(database, _blobs(settings, database)))
        finally:
            database.close()
    except (StoreError, BackupArchiveError) as error:
        raise RefusedError(str(error)) from error
    return _report(settings, archive, named)


def _required_id(home: Path) -> str:
    found = _known_id(home)
    if found is None:
        raise RefusedError(
            f"{home} has no {CONTROLLER_ID}, by which a controller's machines are known: set"
            " SEATRIAL_HOME to the home of a controller of this database, or start one there first"
        )
    return found


def _known_id(home: Path) -> str | None:
    try:
        return known_controller_id(home)
    except (OSError, UnicodeError) as error:
        why = (isinstance(error, OSError) and error.strerror) or "it is no text"
        raise RefusedError(f"{home / CONTROLLER_ID} cannot be read: {why}") from error


def _members(database: Database, blobs: Blobs) -> Iterator[tuple[str, Iterable[bytes]]]:
    """Yield the rows before the blobs, because a blob is stored before a row that refers to it."""
    for name, lines in database.stores.backup.copy():
        yield f"{_ROWS}{name}", _written(name, lines)
    try:
        for blob in blobs.stored(idle_s=None):
            yield f"{_BLOBS}{blob.digest}", _read(blobs, blob.digest)
    except OSError as error:
        raise BackupArchiveError(f"blobs cannot be listed: {error.strerror or error}") from error


def _read(blobs: Blobs, digest: str) -> Iterator[bytes]:
    """Yield a blob's bytes. Raises MemberGoneError if it was pruned, also in the middle."""
    try:
        yield from blobs.open(digest)
    except (BlobMissingError, BlobCorruptError, OSError) as error:
        if not blobs.has(digest):
            raise MemberGoneError(digest) from error
        why = (isinstance(error, OSError) and error.strerror) or str(error)
        raise BackupArchiveError(f"the blob {digest} cannot be read: {why}") from error


def _written(table: str, lines: Iterator[str]) -> Iterator[bytes]:
    for line in lines:
        row = line.encode()
        if len(row) > _ROW_LIMIT:
            raise BackupArchiveError(f"a row of the table {table} has more than {_ROW_LIMIT} bytes")
        yield row


def restore(
    settings: Settings,
    path: Path,
    *,
    revoke_tokens: bool = False,
    accept_broken_chain: bool = False,
) -> RestoreReport:
    """Verify a backup, and fill an empty home and database with it.

    Args:
        settings: The home, which may be missing, and the database.
        path: The backup.
        revoke_tokens: Revoke every API token of the backup.
        accept_broken_chain: Restore an audit log whose chain of digests is broken, too.

    Returns:
        What was restored: numbers of blobs, tokens and schedules that are valid, the audit log.

    Raises:
        RefusedError: The backup is damaged, or of another project or schema; the home is in use, or
            another controller's; the database has rows, or cannot be used. No row is stored; blobs
            and the controller id may be, and the restore can be repeated.
    """
    clock = SystemClock()
    try:
        archive = verify_archive(path)
        home = HomeLock(settings.home, clock=clock, sleep=clock.sleep)
        with _for_owner_alone(), home.acquire("restore"):
            _require_fitting(settings, archive)
            database = open_database(app_url(settings), migrate=True)
            try:
                _require_empty(settings, database)
                _store_files(settings, archive, database)
                copies = ((name, _lines(archive, name, file)) for name, file in archive.read(_ROWS))
                restored = database.stores.backup.restore(
                    copies,
                    _call(settings),
                    revoke_tokens=revoke_tokens,
                    accept_broken_chain=accept_broken_chain,
                )
                report = _report(settings, archive, restored.named_blobs)
            finally:
                database.close()
    except (BlobMismatchError, DamagedError) as error:
        raise RefusedError(f"{damaged(path, str(error))}{_NO_ROW}") from error
    except BackupArchiveError as error:
        raise RefusedError(f"{error}{_NO_ROW}") from error
    except (StoreError, HomeHeldError, HomeUnusableError) as error:
        raise RefusedError(str(error)) from error
    return RestoreReport(
        **asdict(report),
        audit_log=restored.chain,
        tokens=restored.tokens,
        tokens_revoked=restored.tokens_revoked,
        schedules=restored.schedules,
    )


@contextmanager
def _for_owner_alone() -> Iterator[None]:
    """Create files and folders in the block that only their owner can access."""
    umask = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(umask)


def _require_whole(archive: BackupArchive) -> None:
    """Raise BackupArchiveError for a missing table or an unknown member.

    Members are the tables of this version, and blobs named by the digest of their content.
    """
    expected = {f"{_ROWS}{name}" for name in table_names()}
    faults = [f"{one!r} is missing" for one in sorted(expected - archive.members.keys())]
    faults += [
        f"{one!r} is neither a table of this version nor a blob"
        for one, digest in archive.members.items()
        if one not in expected and one != f"{_BLOBS}{digest}"
    ]
    if faults:
        raise damaged(archive.path, faults[0])


def _require_fitting(settings: Settings, archive: BackupArchive) -> None:
    facts, revision = archive.facts, newest_revision()
    if facts.revision != revision:
        raise RefusedError(
            f"{archive.path} was made by version {facts.version}, at the revision"
            f" {facts.revision!r}; this version has {revision}: restore it with that version,"
            " then upgrade"
        )
    _require_whole(archive)
    if facts.project != settings.project:
        raise RefusedError(
            f"{archive.path} is of the project {facts.project!r}, and SEATRIAL_PROJECT is"
            f" {settings.project!r}: the machines of its runs would not be found"
        )
    known = _known_id(settings.home)
    if known not in (None, facts.controller):
        raise RefusedError(
            f"{settings.home} is the home of the controller {known}, and {archive.path} is of"
            f" {facts.controller}: restore into a new home, by which its machines are known"
        )


def _require_empty(settings: Settings, database: Database) -> None:
    where = shown_url(app_url(settings))
    if not database.stores.backup.is_empty():
        raise RefusedError(f"{where} is not empty: restore into a new home, or an empty database")


def _store_files(settings: Settings, archive: BackupArchive, database: Database) -> None:
    """Store blobs and id, before the rows, so that an interrupted restore can be repeated."""
    blobs = _blobs(settings, database)
    for digest, file in archive.read(_BLOBS):
        blobs.put(chunks_of(file), digest=digest)
    keep_controller_id(settings.home, archive.facts.controller)


def _call(settings: Settings) -> Call:
    return Call(
        operation=lambda: "restore",
        at=SystemClock().now(),
        project=settings.project,
        agent=f"seatrial/{orchestrator.__version__}",
        caller=Person(system_user(), SOCKET),
    )


def _lines(archive: BackupArchive, table: str, file: IO[bytes]) -> Iterator[str]:
    while row := file.readline(_ROW_LIMIT + 1):
        if not row.endswith(b"\n"):
            why = f"a row of the table {table} has no end, or more than {_ROW_LIMIT} bytes"
            raise damaged(archive.path, why)
        try:
            yield row.decode()
        except UnicodeError as error:
            raise damaged(archive.path, f"a row of the table {table} is no text") from error


def _blobs(settings: Settings, database: Database) -> Blobs:
    return FileBlobs(settings.home / "blobs") if is_embedded(settings) else database.blobs


def _report(settings: Settings, archive: BackupArchive, named: Collection[str]) -> BackupReport:
    return BackupReport(
        file=str(archive.path),
        database=shown_url(app_url(settings)),
        at=archive.facts.at.isoformat(),
        blobs=sum(name.startswith(_BLOBS) for name in archive.members),
        blobs_missing=sum(f"{_BLOBS}{one}" not in archive.members for one in named),
        size_bytes=archive.path.stat().st_size,
    )
