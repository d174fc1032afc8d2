"""Uploads of ingested files: packed by the client, unpacked in a folder of the controller."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import stat
import struct
import tarfile
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from lzma import LZMAError
from pathlib import Path, PurePosixPath

from orchestrator.adapters.files.tar_stream import (
    BLOCK_BYTES,
    CHUNK_BYTES,
    MemberKind,
    read_members,
    safe_name,
)
from orchestrator.application.ports.archives import ArchiveError, ArchiveLimits
from orchestrator.application.ports.blobs import file_chunks
from orchestrator.application.ports.result_parsers import HEAD_BYTES, TAIL_BYTES, Artifact
from orchestrator.application.ports.uploads import IntakeError, IntakeFullError, UploadedFile
from orchestrator.domain.assembly.results_pass import Record
from orchestrator.domain.run_record import ArtifactRecord

_GZIP_FREE_OF_RATIO_BYTES = 256 * 1024**2
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
    most = min(limit_bytes, max(_GZIP_FREE_OF_RATIO_BYTES, path.stat().st_size * ratio))
    went = 0
    with target.open("wb") as out:
        try:
            for piece in _decompressed(path):
                went += out.write(piece)
                if went > most:
                    message = f"it unpacks to more than {most} bytes: hand it in uncompressed"
                    raise ArchiveError(message)
        except (EOFError, zlib.error) as error:
            return (f"its compression is damaged, so it is read up to byte {went}: {error}",)
    return ()


def _decompressed(path: Path) -> Iterator[bytes]:
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
        for piece in _decompressed(path):
            first += piece
            if len(first) >= BLOCK_BYTES:
                break
    except (EOFError, zlib.error):
        pass
    return first[:BLOCK_BYTES] if first.strip(b"\0") else b""


_MOST_FILES = 10_000


def pack_artifacts(source: Path, into: Path) -> Path:
    """Pack a folder into a new tar; return the path of a file or an archive unchanged.

    Raises ArchiveError with the correction to make.
    """
    try:
        if not source.is_dir():
            return _as_it_is(source)
        return _packed(source, into / "artifacts.tar")
    except OSError as error:
        what = error.strerror or str(error)
        raise ArchiveError(f"{error.filename or source} cannot be read: {what}") from error


def _as_it_is(source: Path) -> Path:
    if not source.is_file():
        raise ArchiveError(f"{source} is neither a file nor a folder")
    if not source.name.isprintable():
        raise ArchiveError(f"the name {source.name!r} cannot be sent: give the file another one")
    with source.open("rb"):
        return source


def _packed(folder: Path, target: Path) -> Path:
    names = sorted(_names(folder, ""))
    if not names:
        raise ArchiveError(f"{folder} holds no file; name a folder of results")
    if len(names) > _MOST_FILES:
        message = f"{folder} holds {len(names)} files, more than the {_MOST_FILES} that are taken"
        raise ArchiveError(message)
    with tarfile.open(target, "w", format=tarfile.PAX_FORMAT) as archive:
        for name in names:
            with (folder / name).open("rb") as file:
                entry = tarfile.TarInfo(name)
                entry.size = os.fstat(file.fileno()).st_size
                archive.addfile(entry, file)
    return target


def _names(folder: Path, above: str) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in entries:
            name = f"{above}{entry.name}"
            mode = entry.stat(follow_symlinks=False).st_mode
            if stat.S_ISDIR(mode):
                yield from _names(Path(entry.path), f"{name}/")
            elif stat.S_ISREG(mode):
                if safe_name(name) != name:
                    raise ArchiveError(f"the name {name!r} cannot be packed")
                yield name
            else:
                what = "a link" if stat.S_ISLNK(mode) else "a socket, pipe or device"
                raise ArchiveError(
                    f"{entry.path} is {what}: only files are taken; copy what it stands for"
                )


LIMITS = ArchiveLimits(members=10_000, total_bytes=4 * 1024**3, file_bytes=4 * 1024**3, ratio=200)
NOTES = ("ingest.yaml", "ingest.yml")
_FULL = (errno.ENOSPC, errno.EDQUOT)
_OTHER_PACKING = (
    b"\xfd7zXZ\0",
    b"BZh",
    b"\x28\xb5\x2f\xfd",
    b"7z\xbc\xaf\x27\x1c",
    b"Rar!\x1a\x07",
)
"""Magic bytes of xz, bzip2, zstd, 7z and rar."""
_NOT_UNPACKED = "it is packed in a way that is not read here: use .zip, .tar.gz or .gz"


@dataclass(slots=True)
class FileUnpackedUpload:
    """Implements `orchestrator.application.ports.uploads.UnpackedUpload`."""

    folder: Path
    files: tuple[UploadedFile, ...]
    _record_stores: list[FileRecordStore] = field(default_factory=list)

    @property
    def notes(self) -> UploadedFile | None:
        """Return the file ``ingest.yaml``; None if the upload has none."""
        return next((file for file in self.files if file.name.lower() in NOTES), None)

    def record_store(self) -> FileRecordStore:
        """Return a new record store, which `close` closes."""
        self._record_stores.append(
            FileRecordStore(self.folder / f"records-{len(self._record_stores)}")
        )
        return self._record_stores[-1]

    def close(self) -> None:
        """Close every record store."""
        for record_store in self._record_stores:
            record_store.close()

    def spool(self, lines: Iterator[bytes]) -> Path:
        """Write lines to a file. Raises IntakeFullError."""
        path = self.folder / "events.jsonl"
        with _room_kept(), path.open("wb") as file:
            file.writelines(lines)
        return path


class FileUploadUnpacker:
    """Implements `orchestrator.application.ports.uploads.UploadUnpacker`."""

    def __init__(self, limits: ArchiveLimits = LIMITS, *, scratch: Path | None = None) -> None:
        """`scratch` is an existing folder to unpack in; by default the system's folder."""
        self._limits = limits
        self._scratch = scratch

    @contextlib.contextmanager
    def open(self, body: Path, name: str) -> Iterator[FileUnpackedUpload]:
        """Unpack an archive, or take a single file as `name`, and close both with the context.

        Raises IntakeError.
        """
        made = tempfile.TemporaryDirectory(prefix="seatrial-ingest-", dir=self._scratch)
        with made as scratch, _room_kept():
            folder = Path(scratch)
            try:
                files = self._unpacked(body, name, folder)
            except ArchiveError as error:
                said = str(error)
                where = f"{name}: " if name and not said.startswith(f"{name}: ") else ""
                raise IntakeError(f"{where}{said}; nothing was stored") from error
            with contextlib.closing(FileUnpackedUpload(folder, files)) as tray:
                yield tray

    def _unpacked(self, body: Path, name: str, folder: Path) -> tuple[UploadedFile, ...]:
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
        """Return the file for the dialects to read, and the number of bytes that unpacking added.

        A gzip file is unpacked; an archive within the archive stays closed, with a remark.
        """
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


def _check_notes(files: list[UploadedFile]) -> None:
    notes = [file.name for file in files if file.name.lower() in NOTES]
    if len(notes) > 1:
        raise ArchiveError(f"{' and '.join(notes)} are both notes: keep one of them")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept(ArtifactRecord):
    path: Path


@dataclass(frozen=True, slots=True)
class _Readable:
    path: Path
    remarks: tuple[str, ...] = ()


@contextlib.contextmanager
def _room_kept() -> Iterator[None]:
    """Raise IntakeFullError instead of OSError if the disk is full."""
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
    return _Kept(unpacked.name, size, seen.hexdigest(), path=path)


def _handed(file: _Kept, readable: _Readable, top: str) -> UploadedFile:
    name = file.name.removeprefix(top)
    path = readable.path
    size = path.stat().st_size
    plain = name.removesuffix(".gz") if path != file.path else name
    artifact = Artifact(plain, path, size, _head(path), _tail(path, size))
    return UploadedFile(name, file.digest, file.size_bytes, file.path, artifact, readable.remarks)


def _head(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.read(HEAD_BYTES)


def _tail(path: Path, size: int) -> bytes:
    with path.open("rb") as file:
        file.seek(max(size - TAIL_BYTES, 0))
        return file.read(TAIL_BYTES)


def _common_top(names: list[str]) -> str:
    """Return the folder that contains all members, with its slash; else an empty text."""
    tops = {PurePosixPath(name).parts[0] for name in names}
    nested = all("/" in name for name in names)
    return f"{tops.pop()}/" if nested and len(tops) == 1 else ""


_FREE_OF_RATIO_BYTES = 1024**3
_END_BYTES = 22
_COMMENT_BYTES = 65_535
_LOCATOR = struct.Struct("<4sLQL")
_RECORD64 = struct.Struct("<4sQ2H2L4Q")
_ENTRY_BYTES = 2_048
"""Maximum average number of bytes that one file takes in a zip's directory."""
_DAMAGE = (zipfile.BadZipFile, zlib.error, LZMAError, EOFError, NotImplementedError, RuntimeError)


@dataclass(frozen=True, slots=True)
class Unpacked:
    """One file; its bytes must be read before the next file is requested."""

    name: str
    content: Iterator[bytes]


def members(body: Path, name: str, limits: ArchiveLimits) -> Iterator[Unpacked]:
    """Yield every file in the archive's order. Raises ArchiveError."""
    with body.open("rb") as file:
        head = file.read(CHUNK_BYTES)
    if is_zip(head):
        found = _of_zip(body, limits)
    elif is_tar(head) or (is_gzip(head) and is_gzipped_tar(body)):
        found = _of_tar(body, limits)
    else:
        found = _of_file(body, name, limits)
    yield from _distinct(found)


def _distinct(unpacked: Iterator[Unpacked]) -> Iterator[Unpacked]:
    seen: set[str] = set()
    for one in unpacked:
        if one.name in seen:
            raise ArchiveError(f"{one.name!r} occurs twice in the archive: pack each file once")
        seen.add(one.name)
        yield one


def _of_file(body: Path, name: str, limits: ArchiveLimits) -> Iterator[Unpacked]:
    size = body.stat().st_size
    if not size:
        raise ArchiveError("it is empty; hand in a folder or archive of results")
    if size > limits.file_bytes:
        raise ArchiveError(f"it is larger than {limits.file_bytes} bytes")
    yield Unpacked(safe_name(name.rpartition("/")[2]) or "artifact", file_chunks(body))


def _of_tar(body: Path, limits: ArchiveLimits) -> Iterator[Unpacked]:
    for member in read_members(file_chunks(body), limits):
        if member.kind is MemberKind.FOLDER:
            continue
        if member.kind is not MemberKind.FILE:
            raise ArchiveError(
                f"{member.name!r} is a {member.kind} to {member.target!r}: only files are taken;"
                " pack what it points to (`tar --dereference`)"
            )
        yield Unpacked(_named(member.name), member.content)


def _of_zip(body: Path, limits: ArchiveLimits) -> Iterator[Unpacked]:
    _check_directory(body, limits)
    try:
        with zipfile.ZipFile(body) as archive:
            entries = archive.infolist()
            if len(entries) > limits.members:
                raise ArchiveError(f"the archive holds more than {limits.members} files")
            budget = _Budget(limits, body.stat().st_size)
            for entry in entries:
                if not entry.is_dir():
                    yield _of_entry(archive, entry, budget)
    except _DAMAGE as error:
        raise ArchiveError(f"the zip archive is damaged: {error}") from None


@dataclass(slots=True)
class _Budget:
    """Limits the unpacked bytes of a zip, independently of the sizes in its directory."""

    limits: ArchiveLimits
    packed: int
    went: int = 0

    def take(self, size: int) -> None:
        self.went += size
        if self.went > self.limits.total_bytes:
            raise ArchiveError(f"the archive unpacks to more than {self.limits.total_bytes} bytes")
        if self.went > max(_FREE_OF_RATIO_BYTES, self.packed * self.limits.ratio):
            times = self.limits.ratio
            raise ArchiveError(f"the archive unpacks to more than {times} times its size")


def _of_entry(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, budget: _Budget) -> Unpacked:
    name, kind = entry.orig_filename, stat.S_IFMT(entry.external_attr >> 16)
    if entry.flag_bits & 1:
        raise ArchiveError(f"{name!r} is encrypted: pack it without a password")
    if kind and kind != stat.S_IFREG:
        raise ArchiveError(f"{name!r} is a link or a device: only files are taken")
    return Unpacked(_named(name.replace("\\", "/")), _inflated(archive, entry, budget))


def _inflated(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, budget: _Budget) -> Iterator[bytes]:
    try:
        with archive.open(entry) as file:
            while chunk := file.read(CHUNK_BYTES):
                budget.take(len(chunk))
                yield chunk
    except _DAMAGE as error:
        raise ArchiveError(f"{entry.filename!r} cannot be unpacked: {error}") from None


def _check_directory(body: Path, limits: ArchiveLimits) -> None:
    """Refuse a directory that would not fit in memory, before it is read."""
    most = limits.members * _ENTRY_BYTES
    for size in _directory_sizes(body):
        if size > most:
            raise ArchiveError(f"the archive holds more than {limits.members} files")


def _directory_sizes(body: Path) -> Iterator[int]:
    """Yield the directory sizes that the zip's end records declare, in 32-bit and zip64 form."""
    size = body.stat().st_size
    with body.open("rb") as file:
        file.seek(max(size - _END_BYTES - _COMMENT_BYTES - _LOCATOR.size, 0))
        tail = file.read()
        for end in _places(tail, b"PK\x05\x06"):
            if end + _END_BYTES <= len(tail):
                yield int.from_bytes(tail[end + 12 : end + 16], "little") & 0x7FFFFFFF
        for place in _places(tail, b"PK\x06\x07"):
            if place + _LOCATOR.size > len(tail):
                continue
            file.seek(min(_LOCATOR.unpack_from(tail, place)[2], size))
            record = file.read(_RECORD64.size)
            if len(record) == _RECORD64.size and record.startswith(b"PK\x06\x06"):
                yield _RECORD64.unpack(record)[8]


def _places(text: bytes, sign: bytes) -> Iterator[int]:
    place = text.rfind(sign)
    if place >= 0:
        yield place


def _named(name: str) -> str:
    if "\x00" in name:
        raise ArchiveError(f"the name {name!r} is not printable UTF-8")
    named = safe_name(name)
    if not named:
        raise ArchiveError(f"{name!r} is no name of a file")
    return named


class FileRecordStore:
    """Implements `orchestrator.domain.assembly.results_pass.RecordStore`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._out = path.open("wb")
        self._back = path.open("rb")
        self._size = 0

    def put(self, record: Record) -> int:
        """Append a record; return its position, which grows."""
        place = self._size
        line = json.dumps(record, separators=(",", ":"), default=str).encode() + b"\n"
        self._size += self._out.write(line)
        return place

    def records(self) -> Iterator[tuple[int, list[object]]]:
        """Yield (position, record) in order."""
        self._out.flush()
        with self._path.open("rb") as file:
            place = 0
            for line in file:
                yield place, json.loads(line)
                place += len(line)

    def at(self, place: int) -> list[object]:
        """Return the record at a position."""
        self._out.flush()
        self._back.seek(place)
        record: list[object] = json.loads(self._back.readline())
        return record

    def close(self) -> None:
        """Close the file."""
        self._out.close()
        self._back.close()
