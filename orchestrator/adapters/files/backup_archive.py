"""Backup archives: a gzipped tar of copies with their digests, listed by its last member.

An archive that was cut off has no list; whatever else happened to it shows in a digest.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
import tarfile
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

LIST = "backup.json"
FORMAT = 1
_CHUNK = 1 << 20
_LEVEL = 6


class BackupArchiveError(Exception):
    """An archive cannot be written or read; the text says why, for a person."""


@dataclass(frozen=True, slots=True)
class BackupArchive:
    """A verified archive."""

    path: Path
    facts: Mapping[str, str]
    """What it is of: time, version, revision, project, controller."""
    members: Mapping[str, str]
    """Digests by name."""

    def read(self, prefix: str) -> Iterator[tuple[str, Iterator[bytes]]]:
        """Yield the members below `prefix`, in their order; each is read before the next."""
        with _opened(self.path) as archive:
            for member in archive:
                if member.name.startswith(prefix) and member.name in self.members:
                    file = archive.extractfile(member)
                    if file is not None:
                        yield member.name.removeprefix(prefix), _chunks(file)


def write_archive(
    path: Path, facts: Mapping[str, str], members: Iterable[tuple[str, Iterable[bytes]]]
) -> int:
    """Write a new file, readable by its owner only; return its size in bytes.

    Raises BackupArchiveError if it exists, or cannot be written.
    """
    part = path.with_name(f"{path.name}.part")
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            try:
                if path.exists():
                    raise BackupArchiveError(f"{path} exists already: name a new file")
                _write(file, facts, members, path.parent)
                file.flush()
                os.fsync(file.fileno())
                part.rename(path)
            except BaseException:
                with suppress(OSError):
                    part.unlink()
                raise
    except FileExistsError:
        raise BackupArchiveError(
            f"{part} exists: another backup is written there; remove it if none is"
        ) from None
    except OSError as error:
        raise BackupArchiveError(f"{path} cannot be written: {error.strerror or error}") from error
    return path.stat().st_size


def _write(
    file: IO[bytes],
    facts: Mapping[str, str],
    members: Iterable[tuple[str, Iterable[bytes]]],
    scratch: Path,
) -> None:
    digests: dict[str, str] = {}
    with (
        gzip.GzipFile("", "wb", fileobj=file, compresslevel=_LEVEL) as packed,
        tarfile.open(fileobj=packed, mode="w") as archive,
    ):
        for name, chunks in members:
            with tempfile.TemporaryFile(dir=scratch) as copy:
                seen = hashlib.sha256()
                for chunk in chunks:
                    seen.update(chunk)
                    copy.write(chunk)
                digests[name] = seen.hexdigest()
                _add(archive, name, copy)
        listed = {"format": FORMAT, **facts, "members": digests}
        with tempfile.TemporaryFile(dir=scratch) as copy:
            copy.write(json.dumps(listed, indent=1).encode())
            _add(archive, LIST, copy)


def _add(archive: tarfile.TarFile, name: str, copy: IO[bytes]) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = copy.tell(), 0o600
    copy.seek(0)
    archive.addfile(entry, copy)


def verify_archive(path: Path) -> BackupArchive:
    """Read all of an archive, and compare every member with its digest.

    Raises BackupArchiveError for anything that is not as it was written.
    """
    digests: dict[str, str] = {}
    listed: dict[str, Any] = {}
    with _opened(path) as archive:
        for member in archive:
            file = archive.extractfile(member)
            if file is None:
                raise _damaged(path, f"{member.name} is no file")
            if member.name == LIST:
                listed = json.load(file)
            else:
                digests[member.name] = _digest(file)
    if not listed:
        raise _damaged(path, "its end is missing")
    if listed.pop("format", None) != FORMAT:
        raise BackupArchiveError(f"{path} is of another format: a newer version may read it")
    members: dict[str, str] = listed.pop("members", {})
    for name in sorted({*digests, *members}):
        if digests.get(name) != members.get(name):
            raise _damaged(path, f"{name} is not what was written")
    return BackupArchive(path, {name: str(value) for name, value in listed.items()}, digests)


def _digest(file: IO[bytes]) -> str:
    seen = hashlib.sha256()
    for chunk in _chunks(file):
        seen.update(chunk)
    return seen.hexdigest()


@contextmanager
def _opened(path: Path) -> Iterator[tarfile.TarFile]:
    try:
        with tarfile.open(path, mode="r|gz") as archive:
            yield archive
    except (tarfile.TarError, EOFError, zlib.error, ValueError) as error:
        raise _damaged(path, str(error) or type(error).__name__) from error
    except OSError as error:
        raise _damaged(path, error.strerror or str(error)) from error


def _damaged(path: Path, why: str) -> BackupArchiveError:
    return BackupArchiveError(f"{path} is no whole backup: {why}; nothing was restored")


def _chunks(file: IO[bytes]) -> Iterator[bytes]:
    while chunk := file.read(_CHUNK):
        yield chunk
