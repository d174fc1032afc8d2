"""Bytes by digest."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol


class Blobs(Protocol):
    """Payload archives, subjects, artifacts: chunked, compressed, named by sha256."""

    def put(
        self, chunks: Iterable[bytes], *, digest: str | None = None, limit_bytes: int | None = None
    ) -> tuple[str, int]:
        """Store and return (sha256, size in bytes). Storing twice has the effect of once.

        Raises BlobMismatchError or BlobTooLargeError.
        """
        ...

    def open(self, digest: str) -> Iterator[bytes]:
        """The bytes again. Raises BlobMissingError at once."""
        ...

    def has(self, digest: str) -> bool:
        """Whether it is stored."""
        ...
