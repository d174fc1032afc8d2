"""Take in what a client uploads: a payload's archive, or a subject's wheel."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from orchestrator.application.context import Context
from orchestrator.store.payloads import StoredPayload

PAYLOAD_LIMIT_BYTES = 2 * 1024**3
SUBJECT_LIMIT_BYTES = 4 * 1024**3
_CHUNK_BYTES = 1024 * 1024


def put_payload(context: Context, digest: str, spooled: Path) -> StoredPayload:
    """Store an archive that was received into a file, after reading its manifest.

    Raises InvalidDocumentError for an archive that is no payload, BlobMismatchError or
    BlobTooLargeError; nothing is stored then.
    """
    manifest = context.read_payload(spooled)
    _, size = context.blobs.put(_chunks(spooled), digest=digest, limit_bytes=PAYLOAD_LIMIT_BYTES)
    payload = StoredPayload(digest, size, manifest)
    context.stores.payloads.put(payload, at=context.clock.now())
    return payload


def put_subject(context: Context, digest: str, spooled: Path) -> int:
    """Store a wheel that was received into a file; return its size in bytes.

    Raises BlobMismatchError or BlobTooLargeError; nothing is stored then.
    """
    _, size = context.blobs.put(_chunks(spooled), digest=digest, limit_bytes=SUBJECT_LIMIT_BYTES)
    return size


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk
