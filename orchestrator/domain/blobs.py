"""Blobs: content that is named by its sha256, stored as compressed frames.

A frame has at most `FRAME_BYTES` of the content, compressed by zlib.
"""

from __future__ import annotations

import hashlib
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

FRAME_BYTES = 512 * 1024
_LEVEL = 3
_STORED = 0
_SAMPLE_BYTES = 16 * 1024
_WORTH = 0.95
"""A frame is compressed if a sample of it shrinks to less than this part of its size."""
_DIGEST = re.compile(r"[0-9a-f]{64}")


CLAIM_S = 86_400.0
"""Seconds for which a blob is kept after it was stored or claimed, even if no row refers to it."""


@dataclass(frozen=True, slots=True)
class StoredBlob:
    """A stored blob, with its digest and stored size."""

    digest: str
    size_bytes: int
    """Size as stored, after compression."""


class BlobMissingError(Exception):
    """No blob of this digest is stored."""


class BlobMismatchError(Exception):
    """The bytes do not have the announced digest; nothing was stored."""


class BlobTooLargeError(Exception):
    """The blob is larger than its limit; nothing was stored."""


class BlobCorruptError(Exception):
    """The stored bytes do not match their digest; none of the wrong bytes were returned."""


class BlobIntake:
    """Counts and hashes incoming bytes, and cuts them into frames."""

    def __init__(self, limit_bytes: int | None) -> None:
        self._limit_bytes = limit_bytes
        self._hash = hashlib.sha256()
        self.size_bytes = 0

    def frames(self, chunks: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the compressed frames of the content. Raises BlobTooLargeError."""
        waiting = bytearray()
        for chunk in chunks:
            self._take(chunk)
            waiting += chunk
            while len(waiting) >= FRAME_BYTES:
                yield _frame(waiting[:FRAME_BYTES])
                del waiting[:FRAME_BYTES]
        if waiting:
            yield _frame(waiting)

    def _take(self, chunk: bytes) -> None:
        self.size_bytes += len(chunk)
        if self._limit_bytes is not None and self.size_bytes > self._limit_bytes:
            raise BlobTooLargeError(f"the upload exceeds the {self._limit_bytes:,}-byte limit")
        self._hash.update(chunk)

    def digest(self, announced: str | None) -> str:
        """Return the sha256 of all bytes.

        Raises BlobMismatchError if it is not the announced one.
        """
        found = self._hash.hexdigest()
        if announced is not None and announced != found:
            raise BlobMismatchError(f"sha256 {announced} was announced, {found} was received")
        return found


def _frame(data: bytearray) -> bytes:
    """Return the data as a frame; data that compression does not shrink is stored as it is."""
    middle = len(data) // 2
    sample = data[middle : middle + _SAMPLE_BYTES]
    is_worth = len(zlib.compress(sample, 1)) < _WORTH * len(sample)
    return zlib.compress(data, _LEVEL if is_worth else _STORED)


def opened(digest: str, frames: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the content of the frames.

    Raises BlobCorruptError instead of yielding a damaged frame, or at the end if the digest of
    the whole content differs.
    """
    whole = hashlib.sha256()
    for frame in frames:
        try:
            chunk = zlib.decompress(frame)
        except zlib.error as error:
            raise BlobCorruptError(f"blob {digest} is damaged: {error}") from error
        whole.update(chunk)
        yield chunk
    if whole.hexdigest() != digest:
        raise BlobCorruptError(f"blob {digest} is damaged: it is not whole")


def is_digest(text: str) -> bool:
    """Whether the text is a sha256 digest; only such texts are used in paths."""
    return _DIGEST.fullmatch(text) is not None
