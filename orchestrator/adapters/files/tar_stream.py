"""Tar streams of untrusted origin, among them the bundle of a machine's artifacts."""

from __future__ import annotations

import gzip
import io
import tarfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from orchestrator.application.ports.archives import (
    ARTIFACT_LIMITS,
    ArchiveError,
    ArchiveLimits,
    BundleError,
)

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

BLOCK_BYTES = 512
CHUNK_BYTES = 256 * 1024
LONGEST_NAME_BYTES = 1024
_LARGEST_HEADER_BYTES = 256 * 1024
_FREE_OF_RATIO_BYTES = 1024**3
_GZIP = b"\x1f\x8b"
_REFUSED_RECORDS = ("GNU.sparse",)
_LONG = {tarfile.GNUTYPE_LONGNAME: "path", tarfile.GNUTYPE_LONGLINK: "linkpath"}
_EXTENSIONS = frozenset({tarfile.XHDTYPE, tarfile.XGLTYPE, *_LONG})


class MemberKind(StrEnum):
    """Kinds of members; other kinds are refused."""

    FILE = "file"
    FOLDER = "folder"
    LINK = "link"
    HARD_LINK = "hard link"


_KINDS = {
    tarfile.REGTYPE: MemberKind.FILE,
    tarfile.AREGTYPE: MemberKind.FILE,
    tarfile.DIRTYPE: MemberKind.FOLDER,
    tarfile.SYMTYPE: MemberKind.LINK,
    tarfile.LNKTYPE: MemberKind.HARD_LINK,
}
_WORDS = {
    tarfile.CHRTYPE: "a device",
    tarfile.BLKTYPE: "a device",
    tarfile.FIFOTYPE: "a pipe",
    tarfile.GNUTYPE_SPARSE: "a sparse file",
}


@dataclass(frozen=True, slots=True)
class Member:
    """One entry of an archive."""

    name: str
    """Relative and normalised, without a leading ``./``; empty for the archive's own folder."""
    kind: MemberKind
    size_bytes: int
    target: str
    """Target of a link, as written."""
    content: Iterator[bytes]
    """Content of a file; its unread rest is skipped when the next member is read."""
    notes: Mapping[str, str] = field(default_factory=dict)
    """Fields of its extension headers."""


class _Input:
    """Reads exact numbers of bytes from chunks of any size."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._held = b""

    def upto(self, size: int) -> bytes:
        """Return between 1 and `size` bytes; an empty value at the end."""
        while not self._held:
            chunk = next(self._chunks, None)
            if chunk is None:
                return b""
            self._held = chunk
        taken, self._held = self._held[:size], self._held[size:]
        return taken

    def exactly(self, size: int) -> bytes:
        parts = []
        while size:
            part = self.upto(size)
            if not part:
                raise ArchiveError("the archive is cut off")
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def drain(self) -> None:
        """Read to the end, so that a compressed stream's checksum is verified."""
        while self.upto(CHUNK_BYTES):
            pass


def open_tar(chunks: Iterable[bytes], limits: ArchiveLimits) -> Iterator[bytes]:
    """Yield the uncompressed bytes of a tar or tar.gz. Raises ArchiveError beyond the limits."""
    source = _Input(chunks)
    head = source.upto(CHUNK_BYTES)
    if len(head) == 1:
        head += source.upto(CHUNK_BYTES)
    plain = _inflated(source, head, limits) if head.startswith(_GZIP) else _plain(source, head)
    total = 0
    # Headers and padding are additional to the files: the number of members limits them.
    allowed = limits.total_bytes + limits.members * 8 * BLOCK_BYTES
    for chunk in plain:
        total += len(chunk)
        if total > allowed:
            raise ArchiveError(f"the archive unpacks to more than {limits.total_bytes} bytes")
        yield chunk


def _plain(source: _Input, head: bytes) -> Iterator[bytes]:
    while head:
        yield head
        head = source.upto(CHUNK_BYTES)


class _Raw(io.RawIOBase):
    """A file object over the compressed bytes that counts the bytes read."""

    def __init__(self, source: _Input, head: bytes) -> None:
        self._source = source
        self._head = head
        self.came = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        view = memoryview(buffer)
        part, self._head = self._head[: len(view)], self._head[len(view) :]
        part = part or self._source.upto(len(view))
        view[: len(part)] = part
        self.came += len(part)
        return len(part)


def _inflated(source: _Input, head: bytes, limits: ArchiveLimits) -> Iterator[bytes]:
    raw = _Raw(source, head)
    went = 0
    try:
        with gzip.GzipFile(fileobj=io.BufferedReader(raw)) as packed:
            while data := packed.read1(CHUNK_BYTES):
                went += len(data)
                if went > max(_FREE_OF_RATIO_BYTES, raw.came * limits.ratio):
                    raise ArchiveError(
                        f"the archive unpacks to more than {limits.ratio} times its size"
                    )
                yield data
    except EOFError:
        raise ArchiveError("the archive is cut off") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise ArchiveError(f"the archive's compression is damaged: {error}") from None


def read_members(chunks: Iterable[bytes], limits: ArchiveLimits) -> Iterator[Member]:
    """Yield the members of a tar or tar.gz in their order. Raises ArchiveError."""
    source = _Input(open_tar(chunks, limits))
    count = 0
    while (header := _next_header(source)) is not None:
        count += 1
        if count > limits.members:
            raise ArchiveError(f"the archive holds more than {limits.members} files")
        yield from _member(source, header, limits)
    source.drain()


def _member(source: _Input, header: tarfile.TarInfo, limits: ArchiveLimits) -> Iterator[Member]:
    kind = _KINDS.get(header.type)
    if kind is None:
        what = _WORDS.get(header.type, "of an unknown type")
        raise ArchiveError(f"{header.name!r} is {what}: only files, folders and links are taken")
    size = header.size if kind is MemberKind.FILE else 0
    if size > limits.file_bytes:
        raise ArchiveError(f"{header.name!r} is larger than {limits.file_bytes} bytes")
    content = _content(source, size)
    yield Member(safe_name(header.name), kind, size, header.linkname, content, header.pax_headers)
    for _ in content:
        pass


def _content(source: _Input, size: int) -> Iterator[bytes]:
    left = size
    while left:
        chunk = source.upto(min(left, CHUNK_BYTES))
        if not chunk:
            raise ArchiveError("the archive is cut off")
        left -= len(chunk)
        yield chunk
    source.exactly(-size % BLOCK_BYTES)


def _next_header(source: _Input) -> tarfile.TarInfo | None:
    """Return the next member's header with its extension headers applied; None at the end."""
    changes: dict[str, str] = {}
    while True:
        block = source.upto(BLOCK_BYTES)
        if not block:
            return None
        block += source.exactly(BLOCK_BYTES - len(block))
        if not block.strip(b"\0"):
            return None
        header = _parse(block)
        if header.type not in _EXTENSIONS:
            return _changed(header, changes)
        changes |= _pax_values(header.type, _extension(source, header))


def _pax_values(kind: bytes, data: bytes) -> dict[str, str]:
    """Return the fields that an extension header overrides in the next member."""
    if kind in _LONG:
        return {_LONG[kind]: _text(data.split(b"\0")[0])}
    records = _records(data)
    if kind == tarfile.XHDTYPE:
        return records
    if {"path", "linkpath", "size"} & set(records):
        raise ArchiveError("the archive names files in a global header")
    return {}


def _parse(block: bytes) -> tarfile.TarInfo:
    try:
        header = tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except tarfile.HeaderError as error:
        raise ArchiveError(f"this is not a tar archive: {error}") from None
    if header.size < 0:
        raise ArchiveError(f"{header.name!r} claims a negative size")
    return header


def _extension(source: _Input, header: tarfile.TarInfo) -> bytes:
    if header.size > _LARGEST_HEADER_BYTES:
        raise ArchiveError("the archive has a header of unreasonable size")
    data = source.exactly(header.size)
    source.exactly(-header.size % BLOCK_BYTES)
    return data


def _records(data: bytes) -> dict[str, str]:
    """Parse records of the form ``LENGTH KEY=VALUE``, each with a line end."""
    records: dict[str, str] = {}
    while data.strip(b"\0"):
        length, _, _ = data.partition(b" ")
        end = int(length) if length.isdigit() and len(length) < 9 else 0
        key, equals, value = data[len(length) + 1 : end - 1].partition(b"=")
        if not equals or data[end - 1 : end] != b"\n":
            raise ArchiveError("the archive has a damaged header")
        records[_text(key)] = _text(value)
        data = data[end:]
    return records


def _changed(header: tarfile.TarInfo, changes: dict[str, str]) -> tarfile.TarInfo:
    if any(key.startswith(_REFUSED_RECORDS) for key in changes):
        raise ArchiveError(f"{header.name!r} is a sparse file: pack it without --sparse")
    header.name = changes.get("path", header.name)
    header.linkname = changes.get("linkpath", header.linkname)
    if "size" in changes:
        if not changes["size"].isdecimal() or len(changes["size"]) > 15:
            raise ArchiveError(f"{header.name!r} claims an impossible size")
        header.size = int(changes["size"])
    header.pax_headers = changes
    return header


def _text(data: bytes) -> str:
    return data.decode("utf-8", "surrogateescape")


def safe_name(name: str) -> str:
    """Return a member's name without empty and ``.`` parts.

    Raises ArchiveError if the name is absolute, contains ``..``, is too long or not printable.
    """
    if len(name.encode("utf-8", "surrogateescape")) > LONGEST_NAME_BYTES:
        raise ArchiveError(f"the name {name[:80]!r}... is too long")
    if not name.isprintable():
        raise ArchiveError(f"the name {name!r} is not printable UTF-8")
    parts = [part for part in name.split("/") if part not in ("", ".")]
    if name.startswith("/") or ".." in parts:
        raise ArchiveError(f"{name!r} leads out of the archive")
    return "/".join(parts)


def unpack_bundle(
    chunks: Iterable[bytes], limits: ArchiveLimits = ARTIFACT_LIMITS
) -> Iterator[tuple[str, Iterable[bytes]]]:
    """Yield (flat file name, its chunks); see `orchestrator.application.ports.archives`.

    The unread rest of a file is skipped when the next file is requested.

    Raises BundleError.
    """
    seen: set[str] = set()
    try:
        for member in read_members(chunks, limits):
            if member.kind is MemberKind.FOLDER and not member.name:
                continue
            if member.kind is not MemberKind.FILE or not member.name or "/" in member.name:
                raise BundleError(f"{member.name!r} is no plain file at the top of the bundle")
            if member.name in seen:
                raise BundleError(f"{member.name!r} occurs twice in the bundle")
            seen.add(member.name)
            yield member.name, _bundle_content(member.content)
    except ArchiveError as error:
        raise BundleError(str(error)) from error


def _bundle_content(chunks: Iterator[bytes]) -> Iterator[bytes]:
    try:
        yield from chunks
    except ArchiveError as error:
        raise BundleError(str(error)) from error
