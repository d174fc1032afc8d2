"""What somebody hands in, unpacked below a folder of ours: under names that we choose."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from orchestrator.adapters.files.ingest_upload_compression import (
    TarredError,
    inflate,
    is_gzip,
    is_zip,
)
from orchestrator.adapters.files.ingest_upload_members import Unpacked, members
from orchestrator.adapters.files.record_spool import FileTape
from orchestrator.application.ports.archives import ArchiveError, Limits
from orchestrator.application.ports.dialects import HEAD_BYTES, TAIL_BYTES, Artifact
from orchestrator.application.ports.ingest_upload import Handed, IntakeError, IntakeFullError

LIMITS = Limits(members=10_000, total_bytes=4 * 1024**3, file_bytes=4 * 1024**3, ratio=200)
NOTES = ("ingest.yaml", "ingest.yml")
_FULL = (errno.ENOSPC, errno.EDQUOT)
_OTHER_PACKING = (
    b"\xfd7zXZ\0",
    b"BZh",
    b"\x28\xb5\x2f\xfd",
    b"7z\xbc\xaf\x27\x1c",
    b"Rar!\x1a\x07",
)
"""How xz, bzip2, zstd, 7z and rar begin."""
_NOT_UNPACKED = "it is packed in a way that is not read here: use .zip, .tar.gz or .gz"


@dataclass(slots=True)
class FileTray:
    """Implements `orchestrator.application.ports.ingest_upload.Tray`."""

    folder: Path
    files: tuple[Handed, ...]
    _tapes: list[FileTape] = field(default_factory=list)

    @property
    def notes(self) -> Handed | None:
        """See the port."""
        return next((file for file in self.files if file.name.lower() in NOTES), None)

    def tape(self) -> FileTape:
        """See the port."""
        self._tapes.append(FileTape(self.folder / f"tape-{len(self._tapes)}"))
        return self._tapes[-1]

    def close(self) -> None:
        """Let every tape go."""
        for tape in self._tapes:
            tape.close()

    def spool(self, lines: Iterator[bytes]) -> Path:
        """See the port."""
        path = self.folder / "events.jsonl"
        with _room_kept(), path.open("wb") as file:
            file.writelines(lines)
        return path


class FileIntake:
    """Implements `orchestrator.application.ports.ingest_upload.Intake`."""

    def __init__(self, limits: Limits = LIMITS, *, scratch: Path | None = None) -> None:
        """`scratch` is an existing folder to unpack below; the system's own by default."""
        self._limits = limits
        self._scratch = scratch

    @contextlib.contextmanager
    def open(self, body: Path, name: str) -> Iterator[FileTray]:
        """See the port."""
        made = tempfile.TemporaryDirectory(prefix="seatrial-ingest-", dir=self._scratch)
        with made as scratch, _room_kept():
            folder = Path(scratch)
            try:
                files = self._unpacked(body, name, folder)
            except ArchiveError as error:
                said = str(error)
                where = f"{name}: " if name and not said.startswith(f"{name}: ") else ""
                raise IntakeError(f"{where}{said}; nothing was stored") from error
            with contextlib.closing(FileTray(folder, files)) as tray:
                yield tray

    def _unpacked(self, body: Path, name: str, folder: Path) -> tuple[Handed, ...]:
        kept = [
            _kept(folder / f"{number}", unpacked)
            for number, unpacked in enumerate(members(body, name, self._limits))
        ]
        if not kept:
            raise ArchiveError("there is no file in it; hand in a folder or archive of results")
        top = _common_top([file.name for file in kept])
        left = self._limits.total_bytes - sum(file.size_bytes for file in kept)
        files = []
        for file in sorted(kept, key=lambda file: file.name):
            readable, size = self._readable(file, left)
            left -= size
            files.append(_handed(file, readable, top))
        _check_notes(files)
        return tuple(files)

    def _readable(self, file: _Kept, left: int) -> tuple[_Readable, int]:
        """Where a dialect finds the file's text, and how much more room that took."""
        head = _head(file.path)
        if is_zip(head):
            return _Readable(file.path, ("an archive within the archive is not opened",)), 0
        if head.startswith(_OTHER_PACKING):
            return _Readable(file.path, (_NOT_UNPACKED,)), 0
        if not is_gzip(head):
            return _Readable(file.path), 0
        target = file.path.with_suffix(".plain")
        try:
            said = inflate(file.path, target, left, ratio=self._limits.ratio)
        except TarredError:
            target.unlink(missing_ok=True)
            return _Readable(file.path, ("an archive within the archive is not opened",)), 0
        except ArchiveError as error:
            raise ArchiveError(f"{file.name}: {error}") from None
        return _Readable(target, said), target.stat().st_size


def _check_notes(files: list[Handed]) -> None:
    notes = [file.name for file in files if file.name.lower() in NOTES]
    if len(notes) > 1:
        raise ArchiveError(f"{' and '.join(notes)} are both notes: keep one of them")


@dataclass(frozen=True, slots=True)
class _Kept:
    name: str
    path: Path
    digest: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class _Readable:
    path: Path
    remarks: tuple[str, ...] = ()


@contextlib.contextmanager
def _room_kept() -> Iterator[None]:
    """A full disk is said as what it is."""
    try:
        yield
    except OSError as error:
        if error.errno not in _FULL:
            raise
        message = "the controller's disk has no room to unpack this; free some and try again"
        raise IntakeFullError(message) from error


def _kept(path: Path, unpacked: Unpacked) -> _Kept:
    seen, size = hashlib.sha256(), 0
    with path.open("wb") as file:
        for chunk in unpacked.content:
            seen.update(chunk)
            size += file.write(chunk)
    return _Kept(unpacked.name, path, seen.hexdigest(), size)


def _handed(file: _Kept, readable: _Readable, top: str) -> Handed:
    name = file.name.removeprefix(top)
    path = readable.path
    size = path.stat().st_size
    plain = name.removesuffix(".gz") if path != file.path else name
    artifact = Artifact(plain, path, size, _head(path), _tail(path, size))
    return Handed(name, file.digest, file.size_bytes, file.path, artifact, readable.remarks)


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(HEAD_BYTES)


def _tail(path: Path, size: int) -> bytes:
    with path.open("rb") as file:
        file.seek(max(size - TAIL_BYTES, 0))
        return file.read(TAIL_BYTES)


def _common_top(names: list[str]) -> str:
    """The folder that an archive has everything in, with its slash; else empty."""
    tops = {PurePosixPath(name).parts[0] for name in names}
    nested = all("/" in name for name in names)
    return f"{tops.pop()}/" if nested and len(tops) == 1 else ""
