"""What a backup and a restore refuse, and what they say of blobs that are gone."""

from __future__ import annotations

import json
import os
import sqlite3
import tarfile
import time
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import text

from orchestrator.adapters.clock import new_id
from orchestrator.adapters.files import backup_archive
from orchestrator.adapters.files.backup_archive import BackupArchiveError
from orchestrator.adapters.files.blobs import FileBlobs
from orchestrator.bootstrap.backup import backup, restore
from orchestrator.bootstrap.controller_wiring import keep_controller_id
from orchestrator.cli.commands.backup import _backed_up, _restored
from orchestrator.cli.errors import RefusedError
from tests.integration.test_backup import (
    Place,
    empty,
    fill,
    filled,
    made,
    places,
    refused,
    rows_of,
)

__all__ = ["filled", "made", "places"]
ID = "controller.id"


@pytest.mark.parametrize("is_there", [False, True])
def test_a_home_without_an_id_is_not_backed_up_and_gets_none(places, tmp_path, is_there) -> None:
    here, _ = places
    wrong = tmp_path / "wrong"
    if is_there:
        wrong.mkdir()
    url = here.settings.database_url
    if url is None and is_there:  # a database that no controller has used yet
        (here.settings.home / "app.db").rename(wrong / "app.db")
    settings = here.settings.model_copy(update={"home": wrong})
    said = "has no controller.id.*SEATRIAL_HOME" if url or is_there else "no database"
    with pytest.raises(RefusedError, match=said):
        backup(settings, tmp_path / "one.tar.gz")
    assert not list(tmp_path.glob("one*"))
    assert wrong.exists() == is_there
    assert not (wrong / ID).exists()


def test_an_id_that_cannot_be_read_is_said(made, tmp_path) -> None:
    here, _ = made
    (here.settings.home / ID).write_bytes(b"\xff")
    with pytest.raises(RefusedError, match=r"controller\.id cannot be read"):
        backup(here.settings, tmp_path / "two.tar.gz")


def test_a_home_with_another_id_is_not_restored_into(places, tmp_path) -> None:
    here, there = places
    fill(here)
    backup(here.settings, tmp_path / "one.tar.gz")
    other = new_id()
    keep_controller_id(there.settings.home, other)
    with pytest.raises(RefusedError, match=f"is the home of the controller {other}"):
        restore(there.settings, tmp_path / "one.tar.gz")
    assert (there.settings.home / ID).read_text() == other
    assert not (there.settings.home / "app.db").exists()
    assert not (there.settings.home / "blobs").exists()


def test_a_damaged_archive_has_a_message_that_fits_what_was_done(made, tmp_path) -> None:
    _, archive = made
    archive.write_bytes(b"hello")
    with pytest.raises(BackupArchiveError) as found:
        backup_archive.verify_archive(archive)
    assert "restored" not in str(found.value)
    refused(tmp_path, archive, "is no whole backup: .*; no row was restored")


def test_a_backup_that_cannot_be_verified_is_not_there(made, tmp_path, monkeypatch) -> None:
    here, _ = made
    written = backup_archive._write

    def damaging(file, *rest) -> None:
        written(file, *rest)
        file.seek(file.tell() // 2)
        file.write(b"\0" * 64)

    monkeypatch.setattr(backup_archive, "_write", damaging)
    with pytest.raises(RefusedError, match=r"two\.tar\.gz is not written: .*no whole backup"):
        backup(here.settings, tmp_path / "two.tar.gz")
    assert not list(tmp_path.glob("two*"))


def first_blob(home: Path) -> Path:
    return min((home / "blobs").glob("??/*"))


def test_a_blob_that_cannot_be_read_is_named(made, tmp_path) -> None:
    """The archive could be written: the message names what is at fault."""
    here, _ = made
    blob = first_blob(here.settings.home)
    stored, folder = blob.read_bytes(), blob.parent
    blob.write_bytes(stored[:-8])
    with pytest.raises(RefusedError, match=f"the blob {blob.name} cannot be read"):
        backup(here.settings, tmp_path / "two.tar.gz")
    blob.unlink()
    blob.symlink_to("/proc/self/mem")  # reading its first byte is an error of the system
    with pytest.raises(RefusedError, match=f"the blob {blob.name} cannot be read: Input/output"):
        backup(here.settings, tmp_path / "two.tar.gz")
    blob.unlink()
    folder.rmdir()
    folder.symlink_to(folder)
    with pytest.raises(RefusedError, match="blobs cannot be listed"):
        backup(here.settings, tmp_path / "two.tar.gz")
    assert not list(tmp_path.glob("two*"))


def test_a_blob_that_is_claimed_during_a_backup_is_in_it(made, tmp_path) -> None:
    """Its time is after the backup's beginning, as it is where the clock was set back."""
    here, _ = made
    blob = first_blob(here.settings.home)
    os.utime(blob, (time.time() + 3600,) * 2)
    path = tmp_path / "two.tar.gz"
    backup(here.settings, path)
    with tarfile.open(path) as archive:
        assert f"blobs/{blob.name}" in archive.getnames()


def prune_during_backup(monkeypatch, blobs, digest: str, when: str) -> None:
    """Let somebody prune the blob at a moment of a backup."""
    kind = type(blobs)
    read, stored = kind.open, kind.stored

    def prune() -> None:
        blobs.remove(digest, idle_s=-60)

    def listed(self, **how):
        prune()
        return stored(self, **how)

    def opened(self, wanted):
        if wanted == digest and when == "while it is opened":
            prune()
        chunks = read(self, wanted)
        if wanted == digest:
            prune()
        return chunks

    if when == "after rows":
        monkeypatch.setattr(kind, "stored", listed)
    else:
        monkeypatch.setattr(kind, "open", opened)


@pytest.mark.parametrize("when", ["before", "after rows", "while it is opened", "while it is read"])
def test_blobs_that_rows_name_and_that_are_gone_are_counted(
    places, tmp_path, monkeypatch, when
) -> None:
    here, there = places
    fill(here)
    whole = backup(here.settings, tmp_path / "whole.tar.gz")
    with closing(here.opened()) as database:
        named = database.stores.backup.named_blobs()
        is_embedded = here.settings.database_url is None
        blobs = FileBlobs(here.settings.home / "blobs") if is_embedded else database.blobs
        digest = min(one.digest for one in blobs.stored(idle_s=None) if one.digest in named)
        if when == "before":
            assert blobs.remove(digest, idle_s=-60)
        else:
            prune_during_backup(monkeypatch, blobs, digest, when)
        report = backup(here.settings, tmp_path / "one.tar.gz")
        assert not blobs.has(digest)
    assert report.blobs == whole.blobs - 1
    assert report.blobs_missing == whole.blobs_missing + 1
    assert f"{report.blobs_missing} blob" in "\n".join(_backed_up(report))
    monkeypatch.undo()
    restored = restore(there.settings, tmp_path / "one.tar.gz")
    assert restored.blobs_missing == report.blobs_missing
    assert f"{report.blobs_missing} blob" in "\n".join(_restored(restored))


def test_a_file_that_appears_meanwhile_is_not_written_over(made, tmp_path, monkeypatch) -> None:
    here, _ = made
    path = tmp_path / "two.tar.gz"
    written = backup_archive._write

    def meanwhile(*given) -> None:
        written(*given)
        path.write_text("of somebody else")

    monkeypatch.setattr(backup_archive, "_write", meanwhile)
    with pytest.raises(RefusedError, match="exists already"):
        backup(here.settings, path)
    assert path.read_text() == "of somebody else"
    assert [one.name for one in tmp_path.glob("two*")] == [path.name]


def test_a_file_system_without_hard_links_is_said(made, tmp_path, monkeypatch) -> None:
    here, _ = made

    def refuse(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    with pytest.raises(RefusedError, match=r"cannot be linked.*hard links"):
        backup(here.settings, tmp_path / "two.tar.gz")
    assert not list(tmp_path.glob("two*"))


@pytest.mark.parametrize("damage", ["a page", "no database", "a value"])
def test_a_damaged_database_is_said_with_what_to_do(made, tmp_path, damage) -> None:
    here, _ = made
    path = here.settings.home / "app.db"
    with closing(sqlite3.connect(path)) as connection:
        [page] = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'run'")
        [size] = connection.execute("PRAGMA page_size").fetchone()
        if damage == "a value":
            connection.execute("UPDATE run SET created_at = 'yesterday'")
            connection.commit()
    if damage != "a value":
        with path.open("r+b") as file:
            file.seek((page[0] - 1) * size if damage == "a page" else 0)
            file.write(b"\xa5" * size)
    said = (
        "a row of the table run cannot be read" if damage == "a value" else r"app\.db.* is damaged"
    )
    with pytest.raises(RefusedError, match=f"{said}: .*; restore the last backup"):
        backup(here.settings, tmp_path / "two.tar.gz")
    assert not list(tmp_path.glob("two*"))


def test_a_restore_writes_for_its_owner_alone(places, tmp_path) -> None:
    here, there = places
    fill(here)
    backup(here.settings, tmp_path / "one.tar.gz")
    umask = os.umask(0o022)
    try:
        restore(there.settings, tmp_path / "one.tar.gz")
    finally:
        assert os.umask(umask) == 0o022
    written = list(there.settings.home.rglob("*"))
    assert {one.name for one in written} >= {ID}
    assert [one for one in written if one.stat().st_mode & 0o077] == []


def test_rows_that_this_version_cannot_read_are_copied(made, tmp_path) -> None:
    here, _ = made
    with closing(here.opened()) as database, database.sessions.write() as session:
        session.execute(text("UPDATE run_spec SET spec = '{'"))
    backup(here.settings, tmp_path / "two.tar.gz")
    target = empty(tmp_path)
    restore(target, tmp_path / "two.tar.gz")
    specs = [json.loads(row)[1] for row in rows_of(Place(target))["run_spec"]]
    assert specs == ["{", "{"]
