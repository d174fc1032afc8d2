"""Ports of stored files: blobs, and what a controller's home has that can be written again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Protocol

from orchestrator.domain.blobs import CLAIM_S, StoredBlob
from orchestrator.domain.retention import Amount

CHUNK_BYTES = 256 * 1024


def file_chunks(path: Path) -> Iterator[bytes]:
    """Yield the bytes of a file in chunks of at most `CHUNK_BYTES`. Raises OSError."""
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk


class Blobs(Protocol):
    """Stores payload archives, subjects and artifacts: chunked, compressed, named by sha256."""

    def put(
        self, chunks: Iterable[bytes], *, digest: str | None = None, limit_bytes: int | None = None
    ) -> tuple[str, int]:
        """Store the bytes; return (sha256, size in bytes). Idempotent.

        Raises BlobMismatchError or BlobTooLargeError.
        """
        ...

    def open(self, digest: str) -> Iterator[bytes]:
        """Yield the bytes. Raises BlobMissingError at once."""
        ...

    def has(self, digest: str) -> bool:
        """Whether the blob is stored."""
        ...

    def claim(self, digest: str) -> bool:
        """Whether the blob is stored; if so, a row may refer to it within `CLAIM_S`.

        Until then it is not removed.
        """
        ...

    def stored(self, *, idle_s: float | None = CLAIM_S) -> Iterator[StoredBlob]:
        """Yield blobs last stored or claimed at least `idle_s` seconds ago, ordered by digest.

        None yields all blobs, also those that are claimed meanwhile.
        """
        ...

    def remove(self, digest: str, *, idle_s: float = CLAIM_S) -> bool:
        """Remove a blob that was neither stored nor claimed within the last `idle_s` seconds.

        Returns whether it was removed.
        """
        ...


class HomeFiles(Protocol):
    """Files in the controller's home that the controller can write again."""

    def reports(self) -> Iterator[str]:
        """Yield the ids of runs with rendered reports."""
        ...

    def drop_reports(self, run_id: str, *, dry: bool) -> Amount:
        """Remove or only count a run's rendered reports with their copies of artifacts."""
        ...

    def drop_wheels(self, before: datetime, *, dry: bool) -> Iterator[Amount]:
        """Remove or only count the wheelhouses that were resolved before a time."""
        ...

    def drop_copies(self, before: datetime, *, dry: bool) -> Iterator[Amount]:
        """Remove unpacked payloads, wheels and agents of local jobs, or only count them.

        Only copies that no attempt has started to use since `before`.
        """
        ...
