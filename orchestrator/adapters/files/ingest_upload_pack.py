"""A folder on its way to a controller: one tar of its regular files."""

from __future__ import annotations

import os
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path

from orchestrator.adapters.files.tar_stream import safe_name
from orchestrator.application.ports.archives import ArchiveError

ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz")
_MOST_FILES = 10_000


def pack_artifacts(source: Path, into: Path) -> Path:
    """A tar of a folder, in a new file; a file or an archive stays where it is.

    Raises ArchiveError with a sentence that says what to mend.
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
