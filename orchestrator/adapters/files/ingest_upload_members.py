"""The files of what was handed in: a tar, a zip or a single file. Regular files only."""

from __future__ import annotations

import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from lzma import LZMAError
from pathlib import Path

from orchestrator.adapters.files.ingest_upload_compression import (
    is_gzip,
    is_gzipped_tar,
    is_tar,
    is_zip,
)
from orchestrator.adapters.files.tar_stream import CHUNK_BYTES, Kind, read_members, safe_name
from orchestrator.application.ports.archives import ArchiveError, Limits

_FREE_OF_RATIO_BYTES = 1024**3
_END_BYTES = 22
_COMMENT_BYTES = 65_535
_LOCATOR = struct.Struct("<4sLQL")
_RECORD64 = struct.Struct("<4sQ2H2L4Q")
_ENTRY_BYTES = 2_048
"""The most that one file may take in a zip's directory, on average."""
_DAMAGE = (zipfile.BadZipFile, zlib.error, LZMAError, EOFError, NotImplementedError, RuntimeError)


@dataclass(frozen=True, slots=True)
class Unpacked:
    """One file, whose bytes must be read before the next one is asked for."""

    name: str
    content: Iterator[bytes]


def members(body: Path, name: str, limits: Limits) -> Iterator[Unpacked]:
    """Every file, in the archive's order. Raises ArchiveError."""
    with body.open("rb") as file:
        head = file.read(CHUNK_BYTES)
    if is_zip(head):
        found = _of_zip(body, limits)
    elif is_tar(head) or (is_gzip(head) and is_gzipped_tar(body)):
        found = _of_tar(body, limits)
    else:
        found = _of_file(body, name, limits)
    yield from _distinct(found)


def _distinct(found: Iterator[Unpacked]) -> Iterator[Unpacked]:
    seen: set[str] = set()
    for one in found:
        if one.name in seen:
            raise ArchiveError(f"{one.name!r} stands in the archive twice: pack each file once")
        seen.add(one.name)
        yield one


def _of_file(body: Path, name: str, limits: Limits) -> Iterator[Unpacked]:
    size = body.stat().st_size
    if not size:
        raise ArchiveError("it is empty; hand in a folder or archive of results")
    if size > limits.file_bytes:
        raise ArchiveError(f"it is larger than {limits.file_bytes} bytes")
    yield Unpacked(safe_name(name.rpartition("/")[2]) or "artifact", _chunks(body))


def _of_tar(body: Path, limits: Limits) -> Iterator[Unpacked]:
    for member in read_members(_chunks(body), limits):
        if member.kind is Kind.FOLDER:
            continue
        if member.kind is not Kind.FILE:
            raise ArchiveError(
                f"{member.name!r} is a {member.kind} to {member.target!r}: only files are taken;"
                " pack what it points to (`tar --dereference`)"
            )
        yield Unpacked(_named(member.name), member.content)


def _of_zip(body: Path, limits: Limits) -> Iterator[Unpacked]:
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
    """What may still come out of a zip, whatever its directory says."""

    limits: Limits
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


def _check_directory(body: Path, limits: Limits) -> None:
    """Refuse a directory that would not fit in memory, before anything reads it."""
    most = limits.members * _ENTRY_BYTES
    for size in _directory_sizes(body):
        if size > most:
            raise ArchiveError(f"the archive holds more than {limits.members} files")


def _directory_sizes(body: Path) -> Iterator[int]:
    """What the zip's end says of its directory, in the plain and in the large form."""
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


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            yield chunk
