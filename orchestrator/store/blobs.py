"""Blobs and payloads as rows, for controllers that share a database."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import IO

from sqlalchemy import delete, func, insert, select, true, update
from sqlalchemy.orm import Session

from orchestrator.domain.blobs import (
    CLAIM_S,
    BlobIntake,
    BlobMissingError,
    StoredBlob,
    is_digest,
    opened,
)
from orchestrator.domain.manifest import StoredPayload
from orchestrator.store.sessions import Sessions
from orchestrator.store.sql import changed, database_time_s, insert_into
from orchestrator.store.tables import BlobChunkRow, BlobRow, PayloadRow, PrunedBlobRow


class PayloadStore:
    """Uploaded payloads by digest; their bytes are blobs."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def put(self, payload: StoredPayload, *, at: datetime) -> None:
        """Store a payload and delete its record of pruning; idempotent."""
        row = {
            "digest": payload.digest,
            "size_bytes": payload.size_bytes,
            "manifest": payload.manifest,
            "uploaded_at": at,
        }
        with self._sessions.write() as session:
            insert = insert_into(session, PayloadRow).values(row)
            session.execute(insert.on_conflict_do_nothing())
            session.execute(delete(PrunedBlobRow).where(PrunedBlobRow.digest == payload.digest))

    def get(self, digest: str) -> StoredPayload | None:
        """Return the payload, or None."""
        with self._sessions.read() as session:
            row = session.get(PayloadRow, digest)
            return StoredPayload(row.digest, row.size_bytes, row.manifest) if row else None


_IN_MEMORY_BYTES = 8 * 1024 * 1024
_PAGE = 200


class DbBlobs:
    """Blob store in the database."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def put(
        self, chunks: Iterable[bytes], *, digest: str | None = None, limit_bytes: int | None = None
    ) -> tuple[str, int]:
        """Store the bytes under their sha256.

        The bytes are in a temporary file until their digest is known, so that a slow sender
        holds no transaction open and a killed one leaves no row.
        """
        intake = BlobIntake(limit_bytes)
        with tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY_BYTES) as spool:
            lengths = [spool.write(frame) for frame in intake.frames(chunks)]
            found = intake.digest(digest)
            spool.seek(0)
            self._store(found, intake.size_bytes, spool, lengths)
        return found, intake.size_bytes

    def _store(self, digest: str, size_bytes: int, spool: IO[bytes], lengths: list[int]) -> None:
        with self._sessions.write() as session:
            if _touch(session, digest):
                return
            row = {
                "digest": digest,
                "size_bytes": size_bytes,
                "touched_s": database_time_s(session),
            }
            new = insert_into(session, BlobRow).values(row).on_conflict_do_nothing()
            if not changed(session, new):
                return  # another sender has just stored it
            for number, length in enumerate(lengths):
                chunk = {"digest": digest, "number": number, "body": spool.read(length)}
                session.execute(insert(BlobChunkRow).values(chunk))

    def open(self, digest: str) -> Iterator[bytes]:
        """Yield the bytes. Raises BlobMissingError at once, BlobCorruptError while reading."""
        if not self.has(digest):
            raise BlobMissingError(f"there is no blob {digest}")
        return opened(digest, self._frames(digest))

    def has(self, digest: str) -> bool:
        """Return whether the blob is stored."""
        if not is_digest(digest):
            return False
        with self._sessions.read() as session:
            return session.get(BlobRow, digest) is not None

    def claim(self, digest: str) -> bool:
        """Return whether the blob is stored; a stored blob is not removed within `CLAIM_S`."""
        if not is_digest(digest):
            return False
        with self._sessions.write() as session:
            return _touch(session, digest)

    def stored(self, *, idle_s: float | None = CLAIM_S) -> Iterator[StoredBlob]:
        """Yield the blobs that were not stored or claimed for `idle_s` seconds; None: all blobs."""
        after = ""
        while True:
            with self._sessions.read() as session:
                old = (
                    true()
                    if idle_s is None
                    else BlobRow.touched_s <= database_time_s(session) - idle_s
                )
                page = (
                    select(BlobRow.digest, func.sum(func.length(BlobChunkRow.body)))
                    .join(BlobChunkRow, BlobChunkRow.digest == BlobRow.digest, isouter=True)
                    .where(BlobRow.digest > after, old)
                    .group_by(BlobRow.digest)
                    .order_by(BlobRow.digest)
                    .limit(_PAGE)
                )
                found = [StoredBlob(one, int(size or 0)) for one, size in session.execute(page)]
            yield from found
            if len(found) < _PAGE:
                return
            after = found[-1].digest

    def remove(self, digest: str, *, idle_s: float = CLAIM_S) -> bool:
        """Remove a blob that was not stored or claimed for `idle_s` seconds.

        Return whether it was removed.
        """
        with self._sessions.write() as session:
            old = BlobRow.touched_s <= database_time_s(session) - idle_s
            mine = select(BlobRow.digest).where(BlobRow.digest == digest, old)
            # A concurrent claim waits, and then finds that the blob is gone.
            if session.scalar(mine.with_for_update()) is None:
                return False
            changed(session, delete(BlobChunkRow).where(BlobChunkRow.digest == digest))
            return changed(session, delete(BlobRow).where(BlobRow.digest == digest)) == 1

    def _frames(self, digest: str) -> Iterator[bytes]:
        number = 0
        while True:
            with self._sessions.read() as session:
                row = session.get(BlobChunkRow, (digest, number))
                if row is None:
                    return
                body = row.body
            yield body
            number += 1


def _touch(session: Session, digest: str) -> bool:
    now = update(BlobRow).where(BlobRow.digest == digest)
    return changed(session, now.values(touched_s=database_time_s(session))) == 1
