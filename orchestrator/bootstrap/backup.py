"""Backup and restore of a controller: its database, its blobs and its id."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import orchestrator
from orchestrator.adapters.clock import SystemClock
from orchestrator.adapters.files.backup_archive import (
    BackupArchive,
    BackupArchiveError,
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
from orchestrator.application.ports.stored_bytes import Blobs
from orchestrator.bootstrap.controller_wiring import (
    CONTROLLER_ID,
    app_url,
    controller_id,
    is_embedded,
    shown_url,
)
from orchestrator.cli.errors import RefusedError
from orchestrator.cli.wiring import BackupReport
from orchestrator.config import Settings
from orchestrator.domain.blobs import BlobCorruptError, BlobMismatchError
from orchestrator.domain.caller_identity import SOCKET, Person
from orchestrator.store.audit_recorder import Call
from orchestrator.store.backup import table_names
from orchestrator.store.database import Database, open_database
from orchestrator.store.errors import StoreError

_ROWS, _BLOBS = "rows/", "blobs/"


def backup(settings: Settings, path: Path) -> BackupReport:
    """Copy everything into a new file, also while controllers run. Raises RefusedError."""
    try:
        database = open_database(app_url(settings), read_only=True)
        try:
            facts = {
                "at": SystemClock().now().isoformat(),
                "version": orchestrator.__version__,
                "revision": str(database.check().current),
                "project": settings.project,
                "controller": controller_id(settings.home),
            }
            size = write_archive(path, facts, _members(database, _blobs(settings, database)))
        finally:
            database.close()
    except (StoreError, BackupArchiveError, BlobCorruptError) as error:
        raise RefusedError(str(error)) from error
    archive = verify_archive(path)
    return _report(archive, size, shown_url(app_url(settings)))


def _members(database: Database, blobs: Blobs) -> Iterator[tuple[str, Iterable[bytes]]]:
    """Yield rows before blobs: whatever a row refers to was stored before it."""
    for name, lines in database.stores.backup.copy():
        yield f"{_ROWS}{name}", (line.encode() for line in lines)
    for blob in blobs.stored(idle_s=0):
        if blobs.has(blob.digest):
            yield f"{_BLOBS}{blob.digest}", blobs.open(blob.digest)


def restore(settings: Settings, path: Path) -> BackupReport:
    """Verify a backup, and fill an empty home and database with it. Raises RefusedError."""
    clock = SystemClock()
    try:
        archive = verify_archive(path)
        with HomeLock(settings.home, clock=clock, sleep=clock.sleep).acquire("restore"):
            database = open_database(app_url(settings), migrate=True)
            try:
                _require_fitting(settings, archive, database)
                _fill(settings, archive, database)
            finally:
                database.close()
    except BlobMismatchError as error:
        raise RefusedError(f"{path} is no whole backup: {error}") from error
    except (StoreError, BackupArchiveError, HomeHeldError, HomeUnusableError) as error:
        raise RefusedError(str(error)) from error
    return _report(archive, path.stat().st_size, shown_url(app_url(settings)))


def _require_fitting(settings: Settings, archive: BackupArchive, database: Database) -> None:
    where, facts = shown_url(app_url(settings)), archive.facts
    revision = database.check().current
    if facts.get("revision") != revision:
        raise RefusedError(
            f"{archive.path} was made by version {facts.get('version')}, at the revision"
            f" {facts.get('revision')}; this version has {revision}: restore it with that version,"
            " then upgrade"
        )
    if facts.get("project") != settings.project:
        raise RefusedError(
            f"{archive.path} is of the project {facts.get('project')!r}, and SEATRIAL_PROJECT is"
            f" {settings.project!r}: the machines of its runs would not be found"
        )
    if not database.stores.backup.is_empty():
        raise RefusedError(f"{where} is not empty: restore into a new home, or an empty database")
    if {*archive.members} < {f"{_ROWS}{name}" for name in table_names()}:
        raise RefusedError(f"{archive.path} is no whole backup: a table is missing")


def _fill(settings: Settings, archive: BackupArchive, database: Database) -> None:
    """Store the blobs, then all rows at once: a restore that is cut off can be repeated."""
    blobs = _blobs(settings, database)
    for digest, chunks in archive.read(_BLOBS):
        blobs.put(chunks, digest=digest)
    call = Call(
        operation=lambda: "restore",
        at=SystemClock().now(),
        project=settings.project,
        agent=f"seatrial/{orchestrator.__version__}",
        caller=Person(system_user(), SOCKET),
    )
    copies = ((name, _lines(chunks)) for name, chunks in archive.read(_ROWS))
    database.stores.backup.restore(copies, call)
    (settings.home / CONTROLLER_ID).write_text(archive.facts["controller"], encoding="ascii")


def _lines(chunks: Iterator[bytes]) -> Iterator[str]:
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        yield from (line.decode() for line in lines)


def _blobs(settings: Settings, database: Database) -> Blobs:
    return FileBlobs(settings.home / "blobs") if is_embedded(settings) else database.blobs


def _report(archive: BackupArchive, size: int, where: str) -> BackupReport:
    blobs = sum(name.startswith(_BLOBS) for name in archive.members)
    return BackupReport(str(archive.path), where, archive.facts["at"], blobs, size)
