"""Runs on the machine: unpacks an archive from standard input completely, or not at all.

``python3 -E -s -S remote_unpack.py FOLDER DIGEST``: the archive (tar, or tar.gz) becomes
FOLDER/DIGEST, where DIGEST is its sha256. The folder appears only after the last byte was verified.
Exit codes: 0 unpacked, 4 refused, with the reason on standard error.

Sent as text to the machine's Python before the agent is uploaded: standard library only, Python 3.9
or newer, no import of Seatrial. It does not use a tar program, which would double the time and has
other rules about owners and links.
"""

# Plain strings, as every file of an archive passes here.
# ruff: noqa: PTH101, PTH103, PTH104, PTH112, PTH118, PTH120, PTH208, PTH211

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import sys
import tarfile
import tempfile
import zlib
from collections.abc import Iterator

CHUNK_BYTES = 256 * 1024
PREFIX = ".incoming-"
GZIP = b"\x1f\x8b"
GZIP_WINDOW = 31
PADDING = b"\0"
REFUSED = 4
CREATE = os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC


class UnpackRefusedError(Exception):
    """The archive cannot become a folder here."""


class ArchiveInput:
    """Standard input as a stream that is only read forwards; hashes the bytes, and unzips them."""

    def __init__(self) -> None:
        self.hash = hashlib.sha256()
        self.last_read = b""
        self._arriving = self._raw()
        self._pieces = self._unzipped()
        self._piece = memoryview(b"")
        self._position = 0

    def tell(self) -> int:
        """Return the number of bytes of the tar stream that have been read."""
        return self._position

    def seek(self, position: int) -> None:
        """Skip forwards to a position."""
        while self._position < position and self._fill():
            self._take(position - self._position)

    def read(self, size: int) -> bytes:
        """Return `size` bytes, fewer only at the end."""
        found = bytes(self._take(size)) if self._fill() else b""
        while len(found) < size and self._fill():
            found += self._take(size - len(found))
        self.last_read = found
        return found

    def copy(self, size: int, descriptor: int) -> None:
        """Write the next bytes to a file. Raises UnpackRefusedError."""
        while size:
            if not self._fill():
                raise UnpackRefusedError("the archive ends in the middle of a file")
            piece = self._take(size)
            size -= len(piece)
            while piece:
                piece = piece[os.write(descriptor, piece) :]

    def drain(self) -> None:
        """Read and hash the bytes after the archive's end: the digest covers the whole input."""
        for _ in self._arriving:
            pass

    def _fill(self) -> bool:
        while not self._piece:
            piece = next(self._pieces, None)
            if piece is None:
                return False
            self._piece = piece
        return True

    def _take(self, size: int) -> memoryview:
        piece, self._piece = self._piece[:size], self._piece[size:]
        self._position += len(piece)
        return piece

    def _raw(self) -> Iterator[memoryview]:
        # One buffer for all: a new object for each piece costs as much time as the hashing does.
        buffer = memoryview(bytearray(CHUNK_BYTES))
        size = os.readv(0, [buffer])
        while size:
            self.hash.update(buffer[:size])
            yield buffer[:size]
            size = os.readv(0, [buffer])

    def _unzipped(self) -> Iterator[memoryview]:
        first = next(self._arriving, memoryview(b""))
        if bytes(first[:2]) == GZIP:
            yield from _unzip(first, self._arriving)
        else:
            yield first
            yield from self._arriving


def _unzip(first: memoryview, rest: Iterator[memoryview]) -> Iterator[memoryview]:
    """Yield the content of a gzip stream, which may consist of several members."""
    unzip = zlib.decompressobj(GZIP_WINDOW)
    piece: memoryview | None = first
    while piece is not None:
        yield memoryview(unzip.decompress(piece))
        while unzip.eof and (left := unzip.unused_data.lstrip(PADDING)):
            unzip = zlib.decompressobj(GZIP_WINDOW)
            yield memoryview(unzip.decompress(left))
        piece = next(rest, None)
    if not unzip.eof:
        raise UnpackRefusedError("its compressed data ends too early")


class Unpacker:
    """Creates an archive's files below one folder, and nothing outside it."""

    def __init__(self, folder: str, source: ArchiveInput) -> None:
        self._folder = folder
        self._source = source
        self._made = {folder}

    def unpack(self) -> None:
        """Create all members of the archive. Raises UnpackRefusedError."""
        with tarfile.TarFile(fileobj=self._source, mode="r", errorlevel=2) as archive:  # type: ignore[arg-type]
            for member in archive:
                self._make(member)
                archive.members = []  # type: ignore[attr-defined]  # else it keeps them all
        # The library takes a damaged header for the archive's end, unless it is the first one.
        if self._source.last_read.strip(PADDING):
            raise UnpackRefusedError("it is damaged in the middle")

    def _make(self, member: tarfile.TarInfo) -> None:
        path = self._inside(member.name)
        if member.isdir():
            self._make_folder(path)
            return
        self._make_folder(os.path.dirname(path))
        if member.isreg() and not member.issparse():
            self._make_file(member, path)
        elif member.issym():
            self._inside(os.path.join(os.path.dirname(member.name), member.linkname))
            os.symlink(member.linkname, path)
        elif member.islnk():
            os.link(self._inside(member.linkname), path, follow_symlinks=False)
        else:
            raise UnpackRefusedError(f"{member.name!r} is neither a file, a folder nor a link")

    def _make_file(self, member: tarfile.TarInfo, path: str) -> None:
        mode = 0o755 if member.mode & 0o100 else 0o644
        descriptor = os.open(path, CREATE, mode)
        try:
            self._source.copy(member.size, descriptor)
            os.utime(descriptor, (member.mtime, member.mtime))
        finally:
            os.close(descriptor)

    def _make_folder(self, path: str) -> None:
        if path not in self._made:
            os.makedirs(path, exist_ok=True)
            self._made.add(path)

    def _inside(self, name: str) -> str:
        plain = os.path.normpath(name)
        if plain == ".." or plain.startswith(("/", "../")):
            raise UnpackRefusedError(f"{name!r} leads out of the archive's folder")
        return self._folder if plain == "." else f"{self._folder}/{plain}"


def main(folder: str, digest: str) -> int:
    """Receive one archive; return the exit code."""
    os.umask(0o022)
    target = os.path.join(folder, digest)
    try:
        os.makedirs(folder, exist_ok=True)
        incoming, lock = _claim(folder)
        try:
            _receive(incoming, digest)
            _publish(incoming, target)
        finally:
            shutil.rmtree(incoming, ignore_errors=True)
            os.close(lock)
    except (UnpackRefusedError, OSError) as error:
        sys.stderr.write(f"{error}\n")
        return REFUSED
    return 0


def _claim(folder: str) -> tuple[str, int]:
    """Return a locked new folder, after removing the folders of receivers that died."""
    gate = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(gate, fcntl.LOCK_EX)
        for name in os.listdir(folder):
            if name.startswith(PREFIX):
                _sweep(os.path.join(folder, name))
        incoming = tempfile.mkdtemp(prefix=PREFIX, dir=folder)
        os.chmod(incoming, 0o755)  # noqa: S103 - payloads may run as another user
        lock = os.open(incoming, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_EX)
        return incoming, lock
    finally:
        os.close(gate)


def _sweep(path: str) -> None:
    with contextlib.suppress(OSError):
        lock = os.open(path, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
        finally:
            os.close(lock)


def _receive(incoming: str, digest: str) -> None:
    """Unpack standard input; refuse it unless its bytes have the expected digest."""
    source = ArchiveInput()
    fault = None
    try:
        Unpacker(incoming, source).unpack()
    except (UnpackRefusedError, tarfile.TarError, zlib.error, EOFError) as error:
        fault = f"it cannot be unpacked: {error}"
    source.drain()
    found = source.hash.hexdigest()
    if found != digest:
        raise UnpackRefusedError(f"what arrived has the sha256 {found}, not {digest}")
    if fault:
        raise UnpackRefusedError(fault)


def _publish(incoming: str, target: str) -> None:
    try:
        os.rename(incoming, target)
    except OSError:
        if not os.path.isdir(target):  # else another receiver was faster, with the same bytes
            raise


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
