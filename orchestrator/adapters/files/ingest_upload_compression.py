"""What a compressed file is, and one log out of it, in bounded memory."""

from __future__ import annotations

import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path

from orchestrator.adapters.files.tar_stream import BLOCK_BYTES, CHUNK_BYTES
from orchestrator.application.ports.archives import ArchiveError

_FREE_OF_RATIO_BYTES = 256 * 1024**2
_WITH_HEADER = 31
"""What zlib calls gzip."""


class TarredError(Exception):
    """What is compressed is an archive."""


def is_gzip(head: bytes) -> bool:
    """Whether a file begins like gzip."""
    return head.startswith(b"\x1f\x8b\x08")


def is_zip(head: bytes) -> bool:
    """Whether a file begins like a zip archive, which may be empty."""
    return head.startswith((b"PK\x03\x04", b"PK\x05\x06"))


def is_tar(head: bytes) -> bool:
    """Whether a file begins like a tar archive, which may be empty."""
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
    """Whether what is compressed is a tar archive."""
    return is_tar(_first(path))


def inflate(path: Path, target: Path, limit_bytes: int, *, ratio: int) -> tuple[str, ...]:
    """Uncompress one log into a new file; returns what a person must know of it.

    Raises TarredError of an archive, ArchiveError of what unpacks to more than is allowed.
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
    """Everything up to where it is damaged, which the library's own file would swallow."""
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
            # What follows a member is another one, or padding.
            waiting = (member.unused_data or file.read(CHUNK_BYTES)).lstrip(b"\0")


def _first(path: Path) -> bytes:
    """The first block; zeros, which an empty archive begins with, are no archive here."""
    first = b""
    try:
        for piece in _inflated(path):
            first += piece
            if len(first) >= BLOCK_BYTES:
                break
    except (EOFError, zlib.error):
        pass
    return first[:BLOCK_BYTES] if first.strip(b"\0") else b""
