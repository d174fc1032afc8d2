"""Blobs: content named by its sha256, in the compressed frames that every blob store uses.

A frame is at most `FRAME_BYTES` of the bytes, compressed by zlib.
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
"""Largest size of a compressed sample, of its own, with which a frame is compressed."""
_DIGEST = re.compile(r"[0-9a-f]{64}")


CLAIM_S = 86_400.0
"""Seconds that a blob stays after it was stored or claimed: until then a row must refer to it."""


@dataclass(frozen=True, slots=True)
class StoredBlob:
    """A blob that may be removed."""

    digest: str
    size_bytes: int
    """As stored, compressed."""


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
        """Yield the compressed frames. Raises BlobTooLargeError."""
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
        """Return the sha256 of all bytes. Raises BlobMismatchError if another one was announced."""
        found = self._hash.hexdigest()
        if announced is not None and announced != found:
            raise BlobMismatchError(f"sha256 {announced} was announced, {found} was received")
        return found


def _frame(data: bytearray) -> bytes:
    """Return the data as a frame; what does not become smaller, as an archive, is only wrapped."""
    middle = len(data) // 2
    sample = data[middle : middle + _SAMPLE_BYTES]
    is_worth = len(zlib.compress(sample, 1)) < _WORTH * len(sample)
    return zlib.compress(data, _LEVEL if is_worth else _STORED)


def opened(digest: str, frames: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the content. Raises BlobCorruptError before a wrong byte is returned, or at the end."""
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
    """Whether the text is a valid digest; nothing else is ever used in a path."""
    return _DIGEST.fullmatch(text) is not None
