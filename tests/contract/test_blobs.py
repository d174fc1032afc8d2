"""Blobs: the same questions to a folder, to SQLite and to Postgres."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import select

from orchestrator.adapters.files.blobs import FileBlobs
from orchestrator.domain.blobs import (
    FRAME_BYTES,
    BlobCorruptError,
    BlobMismatchError,
    BlobMissingError,
    BlobTooLargeError,
)
from orchestrator.store.database import open_database
from orchestrator.store.tables import BlobChunkRow, BlobRow
from tests.databases import together

PAYLOAD = bytes(range(256)) * 5000


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture(
    params=["files", "sqlite", pytest.param("postgres", marks=pytest.mark.needs_postgres)]
)
def blobs(request, tmp_path):
    """Each kind."""
    if request.param == "files":
        yield FileBlobs(tmp_path / "blobs")
        return
    database = open_database(request.getfixturevalue(f"{request.param}_url"))
    yield database.blobs
    database.close()


def test_bytes_come_back(blobs):
    frames = (os.urandom(3 * FRAME_BYTES), bytes(FRAME_BYTES), bytes(FRAME_BYTES + 1))
    for content in (b"", b"x", PAYLOAD, *frames):
        cut = [content[i : i + 70_001] for i in range(0, len(content), 70_001)]
        assert blobs.put(cut) == (sha256(content), len(content))
        assert b"".join(blobs.open(sha256(content))) == content
        assert blobs.has(sha256(content))


def test_what_repeats_itself_takes_less_room(tmp_path):
    FileBlobs(tmp_path).put([bytes(10_000_000)])
    stored = sum(p.stat().st_size for p in tmp_path.rglob("*") if p.is_file())
    assert stored < 100_000


def test_storing_twice_has_the_effect_of_once(blobs):
    for _ in range(2):
        assert blobs.put([PAYLOAD], digest=sha256(PAYLOAD)) == (sha256(PAYLOAD), len(PAYLOAD))
    assert b"".join(blobs.open(sha256(PAYLOAD))) == PAYLOAD


def test_many_may_store_the_same_at_once(blobs):
    together([partial(blobs.put, [PAYLOAD])] * 5)
    assert b"".join(blobs.open(sha256(PAYLOAD))) == PAYLOAD


def test_another_digest_than_announced_stores_nothing(blobs):
    with pytest.raises(BlobMismatchError):
        blobs.put([PAYLOAD], digest=sha256(b"other"))
    assert not blobs.has(sha256(PAYLOAD))
    assert not blobs.has(sha256(b"other"))


def test_too_many_bytes_store_nothing_and_are_not_all_read(blobs):
    taken = []

    def endless() -> Iterator[bytes]:
        while True:
            taken.append(1)
            yield b"x" * 1000

    with pytest.raises(BlobTooLargeError, match="5,000-byte limit"):
        blobs.put(endless(), limit_bytes=5000)
    assert len(taken) == 6
    assert blobs.put([b"x" * 5000], limit_bytes=5000)[1] == 5000


def test_a_sender_that_breaks_off_stores_nothing(blobs, tmp_path):
    def broken() -> Iterator[bytes]:
        yield PAYLOAD
        raise ConnectionError

    with pytest.raises(ConnectionError):
        blobs.put(broken())
    assert not blobs.has(sha256(PAYLOAD))
    assert [p for p in (tmp_path / "blobs").rglob("*") if p.is_file()] == []


def test_a_missing_blob_is_said_at_once(blobs):
    for digest in ("0" * 64, "../../etc/passwd", "", "..", "A" * 64, "\x00"):
        assert not blobs.has(digest)
        with pytest.raises(BlobMissingError):
            blobs.open(digest)


@settings(
    max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(chunks=st.lists(st.binary(max_size=2000), max_size=6))
def test_how_the_bytes_are_cut_makes_no_difference(blobs, chunks):
    whole = b"".join(chunks)
    assert blobs.put(iter(chunks)) == (sha256(whole), len(whole))
    assert b"".join(blobs.open(sha256(whole))) == whole


@pytest.mark.parametrize("where", [0, 3, 4, 5, 40, -1])
@pytest.mark.parametrize("how", ["flip", "cut", "grow"])
def test_a_damaged_file_never_becomes_other_bytes(tmp_path, where, how):
    blobs = FileBlobs(tmp_path)
    content = os.urandom(FRAME_BYTES + 100)
    digest, _ = blobs.put([content])
    path = tmp_path / digest[:2] / digest
    stored = bytearray(path.read_bytes())
    if how == "flip":
        stored[where] ^= 1
    elif how == "cut":
        del stored[where:]
    else:
        stored += stored[: where % 50 + 1]
    path.write_bytes(stored)
    handed_out: list[bytes] = []
    with pytest.raises(BlobCorruptError):
        handed_out.extend(blobs.open(digest))
    assert content.startswith(b"".join(handed_out))
    blobs.put([content])
    assert b"".join(blobs.open(digest)) == content


def test_a_damaged_row_never_becomes_other_bytes(database):
    content = os.urandom(2 * FRAME_BYTES)
    digest, _ = database.blobs.put([content])
    with database.sessions.write() as session:
        row = session.scalars(select(BlobChunkRow).where(BlobChunkRow.number == 1)).one()
        row.body = row.body[:50] + bytes([row.body[50] ^ 1]) + row.body[51:]
    with pytest.raises(BlobCorruptError):
        b"".join(database.blobs.open(digest))
    with database.sessions.write() as session:
        session.delete(session.scalars(select(BlobChunkRow).where(BlobChunkRow.number == 1)).one())
    with pytest.raises(BlobCorruptError, match="not whole"):
        b"".join(database.blobs.open(digest))


KILLED = """
import os, signal, sys
from pathlib import Path
from orchestrator.adapters.files.blobs import FileBlobs

def die(*_): os.kill(os.getpid(), signal.SIGKILL)

Path.replace = die  # the last moment before the blob has its name
FileBlobs(Path(sys.argv[1])).put([b"x" * 1000])
"""


def test_a_writer_that_is_killed_leaves_nothing_to_see(tmp_path):
    done = subprocess.run([sys.executable, "-c", KILLED, tmp_path], cwd=Path(__file__).parents[2])
    assert done.returncode == -signal.SIGKILL
    blobs = FileBlobs(tmp_path)
    assert not blobs.has(sha256(b"x" * 1000))
    assert blobs.sweep() == 1
    assert [p for p in tmp_path.rglob("*") if p.is_file()] == []
    assert blobs.put([b"x" * 1000])[1] == 1000


def test_what_nobody_claimed_for_long_enough_is_removed(blobs):
    digest, _ = blobs.put([PAYLOAD])
    other, _ = blobs.put([b"other"])
    [first, second] = blobs.stored(idle_s=None)
    assert [first.digest, second.digest] == sorted([digest, other])
    assert 0 < first.size_bytes + second.size_bytes < len(PAYLOAD)
    assert list(blobs.stored()) == []
    assert not blobs.remove(digest), "it has just been stored"
    assert blobs.has(digest)
    assert blobs.remove(digest, idle_s=-1)
    assert not blobs.remove(digest, idle_s=-1)
    assert not blobs.has(digest)
    assert not blobs.claim(digest)
    assert blobs.claim(other)
    blobs.put([PAYLOAD])
    assert b"".join(blobs.open(digest)) == PAYLOAD


@pytest.mark.parametrize("how", ["claim", "put"])
def test_a_blob_that_is_claimed_or_stored_again_stays(blobs, how, tmp_path):
    """It was listed as unused; meanwhile a run starts that refers to it."""
    digest, _ = blobs.put([PAYLOAD])
    age(blobs, tmp_path, digest)
    assert [one.digest for one in blobs.stored()] == [digest]
    if how == "claim":
        assert blobs.claim(digest)
    else:
        blobs.put([PAYLOAD])
    assert list(blobs.stored()) == []
    assert not blobs.remove(digest)
    assert b"".join(blobs.open(digest)) == PAYLOAD


def age(blobs, folder, digest):
    """As if it had been stored two days ago."""
    if isinstance(blobs, FileBlobs):
        path = folder / "blobs" / digest[:2] / digest
        then = path.stat().st_mtime - 2 * 86_400
        os.utime(path, (then, then))
        return
    with blobs._sessions.write() as session:
        row = session.get_one(BlobRow, digest)
        row.touched_s -= 2 * 86_400


def test_who_removes_and_who_stores_at_once_end_with_all_or_nothing(blobs):
    digest = sha256(PAYLOAD)
    for _ in range(5):
        blobs.put([PAYLOAD])
        work = [partial(blobs.remove, digest, idle_s=-1), partial(blobs.put, [PAYLOAD])] * 2
        together(work)
        if blobs.has(digest):
            assert b"".join(blobs.open(digest)) == PAYLOAD
        else:
            with pytest.raises(BlobMissingError):
                blobs.open(digest)
