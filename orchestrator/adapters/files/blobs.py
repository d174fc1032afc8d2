"""Blobs by digest, each in one file: ``<root>/aa/<sha256>``.

A file is a sequence of frames: a length and that many bytes of zlib data. A frame is returned only
after its checksum was verified, and reading succeeds only if the sha256 equals the file's name.
"""

from __future__ import annotations

import math
import os
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from orchestrator.domain.blobs import (
    CLAIM_S,
    BlobIntake,
    BlobMissingError,
    StoredBlob,
    is_digest,
    opened,
)

_LENGTH_BYTES = 4
_PREFIX = 2
"""Characters of a digest that name its folder."""


class FileBlobs:
    """Blobs in a folder."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._unfinished = root / "unfinished"
        self._guard = threading.Lock()

    def put(
        self, chunks: Iterable[bytes], *, digest: str | None = None, limit_bytes: int | None = None
    ) -> tuple[str, int]:
        """Store the bytes under their sha256; an existing blob is rewritten, which repairs it."""
        self._unfinished.mkdir(parents=True, exist_ok=True)
        intake = BlobIntake(limit_bytes)
        number, name = tempfile.mkstemp(dir=self._unfinished)
        temporary = Path(name)
        try:
            with os.fdopen(number, "wb") as file:
                _write(file, intake.frames(chunks))
            found = intake.digest(digest)
            self._publish(temporary, self._path(found))
        finally:
            temporary.unlink(missing_ok=True)
        return found, intake.size_bytes

    def open(self, digest: str) -> Iterator[bytes]:
        """Return the bytes. Raises BlobMissingError now, BlobCorruptError while reading."""
        if not self.has(digest):
            raise BlobMissingError(f"there is no blob {digest}")
        return opened(digest, _frames(self._path(digest)))

    def has(self, digest: str) -> bool:
        """Return whether the blob is stored."""
        return is_digest(digest) and self._path(digest).is_file()

    def claim(self, digest: str) -> bool:
        """Return whether the blob is stored; if so, it is not removed for `CLAIM_S` seconds."""
        if not is_digest(digest):
            return False
        with self._guard:
            try:
                os.utime(self._path(digest))
            except FileNotFoundError:
                return False
            return True

    def stored(self, *, idle_s: float | None = CLAIM_S) -> Iterator[StoredBlob]:
        """Yield the blobs that were last stored or claimed at least `idle_s` seconds ago.

        If `idle_s` is None, yield all blobs.
        """
        before = math.inf if idle_s is None else time.time() - idle_s
        folders = sorted(self._root.iterdir()) if self._root.is_dir() else []
        for folder in (one for one in folders if len(one.name) == _PREFIX):
            for path in sorted(folder.iterdir()):
                with suppress(FileNotFoundError):  # another prune has just removed it
                    found = path.stat()
                    if is_digest(path.name) and found.st_mtime <= before:
                        yield StoredBlob(path.name, found.st_size)

    def remove(self, digest: str, *, idle_s: float = CLAIM_S) -> bool:
        """Remove a blob that was not stored or claimed for `idle_s` seconds.

        Return whether it was removed. A lock of this process is enough, because only one process
        at a time stores blobs in a home.
        """
        path = self._path(digest)
        with self._guard:
            try:
                if path.stat().st_mtime > time.time() - idle_s:
                    return False
                path.unlink()
            except FileNotFoundError:
                return False
            return True

    def sweep(self) -> int:
        """Remove the temporary files of killed writers and return their number.

        The caller must hold the home's lock.
        """
        left = list(self._unfinished.glob("*"))
        for path in left:
            path.unlink(missing_ok=True)
        return len(left)

    def _path(self, digest: str) -> Path:
        return self._root / digest[:2] / digest

    def _publish(self, temporary: Path, path: Path) -> None:
        if not path.parent.is_dir():
            path.parent.mkdir(parents=True, exist_ok=True)
            sync_folder(self._root)
        with self._guard:
            temporary.replace(path)
        sync_folder(path.parent)


def _write(file: BinaryIO, frames: Iterable[bytes]) -> None:
    for frame in frames:
        file.write(len(frame).to_bytes(_LENGTH_BYTES, "big"))
        file.write(frame)
    file.flush()
    os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Flush a folder's entries to the disk, so that a renamed file survives a power failure."""
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _frames(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while head := file.read(_LENGTH_BYTES):
            yield file.read(int.from_bytes(head, "big"))
