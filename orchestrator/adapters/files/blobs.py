"""Bytes by digest, each blob one file: ``<root>/aa/<sha256>``.

A file is a row of frames, each a length and as many bytes of zlib. A frame is handed out only
after its checksum was right, and the whole only ends well if its sha256 is the file's name.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO

from orchestrator.domain.blobs import BlobMissingError, Intake, is_digest, opened

_LENGTH_BYTES = 4


class FileBlobs:
    """The Blobs of a folder."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._unfinished = root / "unfinished"

    def put(
        self, chunks: Iterable[bytes], *, digest: str | None = None, limit_bytes: int | None = None
    ) -> tuple[str, int]:
        """Store under the sha256; a blob that is there is written anew, which heals it."""
        self._unfinished.mkdir(parents=True, exist_ok=True)
        intake = Intake(limit_bytes)
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
        """The bytes again. Raises BlobMissingError now, BlobCorruptError while reading."""
        if not self.has(digest):
            raise BlobMissingError(f"there is no blob {digest}")
        return opened(digest, _frames(self._path(digest)))

    def has(self, digest: str) -> bool:
        """Whether it is stored."""
        return is_digest(digest) and self._path(digest).is_file()

    def sweep(self) -> int:
        """Remove what writers that were killed left; only for the one who holds the home."""
        left = list(self._unfinished.glob("*"))
        for path in left:
            path.unlink(missing_ok=True)
        return len(left)

    def _path(self, digest: str) -> Path:
        return self._root / digest[:2] / digest

    def _publish(self, temporary: Path, path: Path) -> None:
        if not path.parent.is_dir():
            path.parent.mkdir(parents=True, exist_ok=True)
            _sync_folder(self._root)
        temporary.replace(path)
        _sync_folder(path.parent)


def _write(file: BinaryIO, frames: Iterable[bytes]) -> None:
    for frame in frames:
        file.write(len(frame).to_bytes(_LENGTH_BYTES, "big"))
        file.write(frame)
    file.flush()
    os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)


def _frames(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while head := file.read(_LENGTH_BYTES):
            yield file.read(int.from_bytes(head, "big"))
