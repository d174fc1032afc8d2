"""Port of blob stores."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol


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
