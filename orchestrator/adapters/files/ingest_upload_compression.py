"""Detects compressed files and uncompresses a single log in bounded memory."""

from __future__ import annotations

import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from orchestrator.adapters.files.tar_stream import BLOCK_BYTES, CHUNK_BYTES
from orchestrator.application.ports.archives import ArchiveError

_FREE_OF_RATIO_BYTES = 256 * 1024**2
_WITH_HEADER = 31
"""The window bits with which zlib reads gzip."""


class TarredError(Exception):
    """The compressed content is an archive."""


def is_gzip(head: bytes) -> bool:
    """Return whether a file has the magic bytes of gzip."""
    return head.startswith(b"\x1f\x8b\x08")


def is_zip(head: bytes) -> bool:
    """Return whether a file begins like a zip archive, which may be empty."""
    return head.startswith((b"PK\x03\x04", b"PK\x05\x06"))


def is_tar(head: bytes) -> bool:
    """Return whether a file begins like a tar archive, which may be empty."""
    block = head[:BLOCK_BYTES]
    if len(block) < BLOCK_BYTES:
        return False
    if not block.strip(b"\0"):
        return not head.strip(b"\0")
    try:
        tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except tarfile.HeaderError:
        return False
    return True


def is_gzipped_tar(path: Path) -> bool:
    """Return whether the compressed content is a tar archive."""
    return is_tar(_first(path))


def inflate(path: Path, target: Path, limit_bytes: int, *, ratio: int) -> tuple[str, ...]:
    """Uncompress one log into a new file; return remarks for a person.

    Raises TarredError for an archive, ArchiveError if the content exceeds the limit.
    """
    if is_gzipped_tar(path):
        raise TarredError
    most = min(limit_bytes, max(_FREE_OF_RATIO_BYTES, path.stat().st_size * ratio))
    went = 0
    with target.open("wb") as out:
        try:
            for piece in _inflated(path):
                went += out.write(piece)
                if went > most:
                    message = f"it unpacks to more than {most} bytes: hand it in uncompressed"
                    raise ArchiveError(message)
        except (EOFError, zlib.error) as error:
            return (f"its compression is damaged, so it is read up to byte {went}: {error}",)
    return ()


def _inflated(path: Path) -> Iterator[bytes]:
    """Yield the content up to the first damage; `gzip.GzipFile` would discard it."""
    with path.open("rb") as file:
        waiting = file.read(CHUNK_BYTES)
        while waiting:
            member = zlib.decompressobj(_WITH_HEADER)
            while not member.eof:
                waiting = waiting or file.read(CHUNK_BYTES)
                piece = member.decompress(waiting, CHUNK_BYTES)
                if not (waiting or piece or member.eof):
                    raise EOFError("it ends too early")
                yield piece
                waiting = member.unconsumed_tail
            # A member is followed by another member or by padding.
            waiting = (member.unused_data or file.read(CHUNK_BYTES)).lstrip(b"\0")


def _first(path: Path) -> bytes:
    """Return the first uncompressed block; an empty one for a block of zeros."""
    first = b""
    try:
        for piece in _inflated(path):
            first += piece
            if len(first) >= BLOCK_BYTES:
                break
    except (EOFError, zlib.error):
        pass
    return first[:BLOCK_BYTES] if first.strip(b"\0") else b""
