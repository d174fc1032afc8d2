"""Backup archives: gzipped tar files whose last member lists the sha256 of every other member.

An archive that was cut off has no list. Any other damage makes a member differ from its digest; the
digests are no protection against somebody who changes a member and the list.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import tarfile
import tempfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import IO, Annotated, Self

from pydantic import AwareDatetime, StringConstraints, TypeAdapter, ValidationError

LIST = "backup.json"
FORMAT = 1
_CHUNK = 1 << 20
_LEVEL = 6
_LIST_LIMIT = 128 << 20
"""Maximum bytes of the list: a million blobs."""
Fact = Annotated[str, StringConstraints(pattern="^[!-~]{1,200}$")]
ControllerId = Annotated[str, StringConstraints(pattern="^[0-9a-hjkmnp-tv-z]{26}$")]
"""A lower-case ULID."""


class BackupArchiveError(Exception):
    """An archive cannot be written or read; the text says why, for a person."""


class MemberGoneError(Exception):
    """The content of a member was deleted before it could be written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupFacts:
    """Time, program version, schema revision, project and controller id of a backup."""

    at: AwareDatetime
    version: Fact
    """Version of the program."""
    revision: Fact
    """Revision of the database schema."""
    project: Fact
    controller: ControllerId
    """Tag of the controller's machines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Format:
    format: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Listed(BackupFacts):
    format: int
    members: dict[str, str]
    """The sha256 of each member, by its name, in hexadecimal."""


_FORMAT = TypeAdapter(_Format)
_LISTED = TypeAdapter(_Listed)


class _PlainFile(tarfile.TarInfo):
    """A header of a file, the only kind that is written; others could have names without end."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        entry = super().frombuf(buf, encoding, errors)
        if entry.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
            raise ValueError(f"{entry.name!r} is no file")
        return entry


@dataclass(frozen=True, slots=True)
class BackupArchive:
    """An archive whose members were compared with their digests."""

    path: Path
    facts: BackupFacts
    members: Mapping[str, str]
    """The sha256 of each member, by its name, in hexadecimal."""

    def read(self, prefix: str) -> Iterator[tuple[str, IO[bytes]]]:
        """Yield the members whose names begin with `prefix`: the rest of the name, and the file.

        A file must be read before the next member. Raises BackupArchiveError for a damaged archive.
        """
        with _opened(self.path) as archive:
            for member in archive:
                if member.name.startswith(prefix) and member.name in self.members:
                    file = archive.extractfile(member)
                    if file is not None:
                        yield member.name.removeprefix(prefix), file


def write_archive(
    path: Path, facts: BackupFacts, members: Iterable[tuple[str, Iterable[bytes]]]
) -> BackupArchive:
    """Write and verify a new file, readable by its owner only.

    Args:
        path: The file. Until it is verified its name ends with `.part`.
        facts: Time, version and ids of the backup.
        members: Names and contents. A member whose contents raise MemberGoneError is left out.

    Raises:
        BackupArchiveError: The file exists, cannot be written, or differs when it is read back.
            Errors of `members` are passed on. No file is left.
    """
    try:
        _LISTED.validate_json(_list(facts, {}), strict=True)
    except ValidationError as error:
        raise BackupArchiveError(f"{path} is not written: {_first(error)}") from error
    part = path.with_name(f"{path.name}.part")
    try:
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            try:
                if path.exists():
                    raise BackupArchiveError(f"{path} exists already: name a new file")
                _write(file, facts, members, path.parent)
                file.flush()
                os.fsync(file.fileno())
                archive = _verified(path, part)
                _link(part, path)
            finally:
                with suppress(OSError):
                    part.unlink()
    except FileExistsError:
        raise BackupArchiveError(
            f"{part} exists: another backup is written there; remove it if none is"
        ) from None
    except OSError as error:
        raise BackupArchiveError(f"{path} cannot be written: {error.strerror or error}") from error
    return archive


def _verified(path: Path, part: Path) -> BackupArchive:
    try:
        return replace(verify_archive(part), path=path)
    except BackupArchiveError as error:
        raise BackupArchiveError(
            f"{path} is not written: {error}: check the disk, and back up again"
        ) from error


def _link(part: Path, path: Path) -> None:
    """Rename the finished file to `path`, unless a file of that name exists."""
    try:
        os.link(part, path)
    except FileExistsError:
        raise BackupArchiveError(f"{path} exists already: name a new file") from None
    except OSError as error:
        raise BackupArchiveError(
            f"{part} cannot be linked to {path}: {error.strerror or error}: name a file on a file"
            " system that has hard links"
        ) from error


def _write(
    file: IO[bytes],
    facts: BackupFacts,
    members: Iterable[tuple[str, Iterable[bytes]]],
    scratch: Path,
) -> None:
    digests: dict[str, str] = {}
    with (
        gzip.GzipFile("", "wb", fileobj=file, compresslevel=_LEVEL) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.GNU_FORMAT) as archive,
    ):
        for name, chunks in members:
            with suppress(MemberGoneError), tempfile.TemporaryFile(dir=scratch) as copy:
                seen = hashlib.sha256()
                for chunk in chunks:
                    seen.update(chunk)
                    copy.write(chunk)
                digests[name] = seen.hexdigest()
                _add(archive, name, copy)
        listed = _list(facts, digests)
        if len(listed) > _LIST_LIMIT:
            raise BackupArchiveError(f"{len(digests)} blobs and tables are more than a backup has")
        with tempfile.TemporaryFile(dir=scratch) as copy:
            copy.write(listed)
            _add(archive, LIST, copy)


def _list(facts: BackupFacts, members: dict[str, str]) -> bytes:
    known = {one.name: getattr(facts, one.name) for one in fields(BackupFacts)}
    return _LISTED.dump_json(_Listed(format=FORMAT, members=members, **known), indent=1)


def _add(archive: tarfile.TarFile, name: str, copy: IO[bytes]) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = copy.tell(), 0o600
    copy.seek(0)
    archive.addfile(entry, copy)


def verify_archive(path: Path) -> BackupArchive:
    """Read all of an archive, and compare every member with its sha256.

    Raises BackupArchiveError if the archive is missing, cut off, changed, or of another format.
    """
    digests: dict[str, str] = {}
    listed = b""
    with _opened(path) as archive:
        for member in archive:
            file = archive.extractfile(member)
            if file is None or member.name in digests or (member.name == LIST and listed):
                raise damaged(path, f"{member.name!r} is there twice, or no file")
            if member.name == LIST:
                listed = file.read(_LIST_LIMIT + 1)
            else:
                digests[member.name] = _digest(file)
    if not listed:
        raise damaged(path, "its end is missing")
    return BackupArchive(path, _facts(path, listed, digests), digests)


def _facts(path: Path, listed: bytes, digests: Mapping[str, str]) -> BackupFacts:
    if len(listed) > _LIST_LIMIT:
        raise damaged(path, f"{LIST} has more than {_LIST_LIMIT} bytes")
    try:
        if _FORMAT.validate_json(listed, strict=True).format != FORMAT:
            raise BackupArchiveError(f"{path} is of another format: a newer version may read it")
        found = _LISTED.validate_json(listed, strict=True)
    except ValidationError as error:
        raise damaged(path, f"{LIST} cannot be read: {_first(error)}") from error
    for name in sorted({*digests, *found.members}):
        if digests.get(name) != found.members.get(name):
            raise damaged(path, f"{name!r} is not what was written")
    return found


def _first(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(one) for one in first["loc"][:1]) or "all of it"
    return f"{place}: {first['msg']}"


def _digest(file: IO[bytes]) -> str:
    seen = hashlib.sha256()
    for chunk in chunks_of(file):
        seen.update(chunk)
    return seen.hexdigest()


@contextmanager
def _opened(path: Path) -> Iterator[tarfile.TarFile]:
    try:
        with tarfile.open(path, mode="r|gz", tarinfo=_PlainFile) as archive:
            yield archive
    except (tarfile.TarError, EOFError, zlib.error, ValueError) as error:
        raise damaged(path, str(error) or type(error).__name__) from error
    except OSError as error:
        raise damaged(path, error.strerror or str(error)) from error


def damaged(path: Path, why: str) -> BackupArchiveError:
    """Return the error for an archive that is damaged; `why` names the damaged part."""
    return BackupArchiveError(f"{path} is no whole backup: {why}")


def chunks_of(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the bytes of a member, at most 1 MiB at a time."""
    while chunk := file.read(_CHUNK):
        yield chunk
