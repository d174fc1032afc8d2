"""Uploaded payloads by digest; their bytes are blobs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from orchestrator.domain.manifest import Manifest
from orchestrator.store.sessions import Sessions
from orchestrator.store.sql import insert_into
from orchestrator.store.tables import PayloadRow


@dataclass(frozen=True, slots=True)
class StoredPayload:
    """An uploaded payload."""

    digest: str
    size_bytes: int
    manifest: Manifest


class PayloadStore:
    """Uploaded payloads by digest; their bytes are blobs."""

    def __init__(self, sessions: Sessions) -> None:
        self._sessions = sessions

    def put(self, payload: StoredPayload, *, at: datetime) -> None:
        """Store it; the same digest is stored once."""
        row = {
            "digest": payload.digest,
            "size_bytes": payload.size_bytes,
            "manifest": payload.manifest,
            "uploaded_at": at,
        }
        with self._sessions.write() as session:
            insert = insert_into(session, PayloadRow).values(row)
            session.execute(insert.on_conflict_do_nothing())

    def get(self, digest: str) -> StoredPayload | None:
        """The payload, or None."""
        with self._sessions.read() as session:
            row = session.get(PayloadRow, digest)
            return StoredPayload(row.digest, row.size_bytes, row.manifest) if row else None
