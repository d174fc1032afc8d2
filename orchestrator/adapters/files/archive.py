"""Payload archives: equal folders give equal bytes, and archives are validated when read.

The first member is ``payload.toml``, at its path in the shipped folder. Where its ``root`` is
another folder, that path is not at the top level, and a reader finds it as the first member. In an
archive of another program ``payload.toml`` may be any member at the top level.
"""

from __future__ import annotations

import fnmatch
import gzip
import hashlib
import io
import os
import posixpath
import re
import stat
import subprocess
import tarfile
import tempfile
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath

from orchestrator.adapters.files.document_nodes import LARGEST_BYTES
from orchestrator.adapters.files.git_work_tree import (
    ignored_beside_tests,
    ignored_modules,
    read_with_git,
)
from orchestrator.adapters.files.tar_stream import (
    Member,
    MemberKind,
    read_members,
    safe_name,
)
from orchestrator.application.ports.archives import ArchiveError, ArchiveLimits, PackedPayload
from orchestrator.application.ports.blobs import file_chunks
from orchestrator.application.ports.documents import Documents
from orchestrator.domain.document_problems import InvalidDocumentError, Problem
from orchestrator.domain.manifest import (
    Manifest,
    missing_tests,
    own_test_files,
    suite_paths,
    untaken_tests,
)

MANIFEST = "payload.toml"
_EXCLUDED = "SEATRIAL.excluded_tests"
"""Field of the first member's header: test files that `exclude` keeps out, one a line."""
_TESTS_KEPT = 100
_LEVEL = 0
# The digest must not depend on the version of zlib, and unpacking must cost the machine little.


class FilePayloadArchives:
    """Implements `orchestrator.application.ports.archives.PayloadArchives`."""

    def __init__(self, documents: Documents, limits: ArchiveLimits | None = None) -> None:
        self._documents = documents
        self._limits = limits or ArchiveLimits()

    def pack(self, source: Path, *, into: Path, manifest_from: Path | None = None) -> PackedPayload:
        """Pack a folder into a new file in `into`. Raises ArchiveError."""
        source = source.absolute()
        try:
            if source.is_dir():
                return self._pack_folder(source, into, manifest_from)
            if manifest_from is not None:
                raise ArchiveError(f"{source} is no folder, and an archive has its own {MANIFEST}")
            return self._take(source)
        except OSError as error:
            what = error.strerror or str(error)
            raise ArchiveError(f"{error.filename or source} cannot be read: {what}") from error

    def read_manifest(self, chunks: Iterable[bytes]) -> Manifest:
        """Validate a whole archive and return its manifest. Raises ArchiveError."""
        tree = Tree()
        place: str | None = None
        text, notes = b"", ""
        for number, member in enumerate(read_members(chunks, self._limits)):
            tree.add(member)
            if place is None and _is_manifest(member, first=number == 0):
                place, text = member.name, _whole(member)
                notes = member.notes.get(_EXCLUDED, "")
        tree.check()
        if place is None:
            raise ArchiveError(
                f"there is no {MANIFEST} at the top of the archive: pack what is in the folder, as"
                " in `tar -C FOLDER -czf payload.tar.gz .`"
            )
        manifest = self._manifest(text, place)
        return replace(
            manifest,
            untaken_tests=untaken_tests(manifest, tree.files, tree.links)[:_TESTS_KEPT],
            excluded_tests=tuple(own_test_files(notes.split("\n")))[:_TESTS_KEPT],
        )

    def read_file(self, path: Path) -> Manifest:
        """Validate an uploaded archive; raises only InvalidDocumentError."""
        try:
            return self.read_manifest(file_chunks(path))
        except ArchiveError as error:
            raise InvalidDocumentError("payload", [Problem((), str(error))]) from error

    def _manifest(self, text: bytes, place: str) -> Manifest:
        manifest = self._documents.read_manifest(_decoded(text, place), place)
        top = posixpath.normpath(posixpath.join(posixpath.dirname(place), manifest.root))
        if top != ".":
            raise ArchiveError(
                f"{place} says root = {manifest.root!r}, which is not the top of the archive"
            )
        return manifest

    def _take(self, source: Path) -> PackedPayload:
        if not source.name.endswith((".tar.gz", ".tgz")):
            raise ArchiveError(f"{source} is neither a folder nor a .tar.gz")
        try:
            manifest = self.read_manifest(file_chunks(source))
        except ArchiveError as error:
            raise ArchiveError(f"{source}: {error}") from error
        return PackedPayload(file_digest(source), source.stat().st_size, manifest, source)

    def _pack_folder(self, folder: Path, into: Path, manifest_from: Path | None) -> PackedPayload:
        path = (manifest_from or folder) / MANIFEST
        if not path.is_file():
            raise ArchiveError(f"{path.parent} has no {MANIFEST}, so it is no payload")
        raw = path.read_bytes()
        text = _decoded(raw, str(path))
        manifest = self._documents.read_manifest(text, str(path))
        root = Path(os.path.normpath(folder / manifest.root))
        if not folder.is_relative_to(root):
            message = f"{path} says root = {manifest.root!r}, which does not hold the file"
            raise ArchiveError(message)
        place = (folder / MANIFEST).relative_to(root).as_posix()
        found = payload_files(root)
        shipped = sorted(_without(found, manifest.exclude))
        excluded = own_test_files({*found}.difference(shipped))
        names = [place, *(name for name in shipped if name != place)]
        there = [*names, *_below_links(root, manifest)]
        missing = list(missing_tests(manifest, there))
        self._documents.refuse_manifest(
            text, str(path), [problem for problem, may_be_written in missing if not may_be_written]
        )
        archive = self._write(root, names, into, raw if manifest_from else None, excluded)
        manifest = self.read_manifest(file_chunks(archive))  # the receiver must accept it
        ignored = _without(_ignored(root), manifest.exclude)
        modules = ignored_modules(root, names, ignored)
        tests, data = ignored_beside_tests(root, names, ignored - {*modules})
        return PackedPayload(
            archive.name.split(".")[0],
            archive.stat().st_size,
            manifest,
            archive,
            unshipped=modules,
            unshipped_tests=tuple(sorted(_without(tests, manifest.exclude))),
            unshipped_data=tuple(sorted(_without(data, manifest.exclude))),
            missing_tests=tuple(str(problem) for problem, _ in missing),
        )

    def _write(
        self,
        root: Path,
        names: list[str],
        into: Path,
        first: bytes | None,
        excluded: list[str],
    ) -> Path:
        """Write the archive; `first` is the content of the first member, if the file's is not.

        The header of the first member names `excluded`, the test files that are not shipped.
        """
        entries = self._entries(root, names if first is None else names[1:])
        if first is not None:
            entry = tarfile.TarInfo(names[0])
            entry.size, entry.mode = len(first), 0o644
            entries.insert(0, entry)
        if excluded:
            entries[0].pax_headers = {_EXCLUDED: "\n".join(excluded[:_TESTS_KEPT])}
        with tempfile.NamedTemporaryFile(dir=into, suffix=".part", delete=False) as file:
            try:
                with gzip.GzipFile("", "wb", _LEVEL, file, mtime=0) as packed:
                    _write_tar(root, entries, packed, first)
                file.flush()
                target = into / f"{file_digest(Path(file.name))}.tar.gz"
                return Path(file.name).rename(target)
            except BaseException:
                Path(file.name).unlink(missing_ok=True)
                raise

    def _entries(self, root: Path, names: list[str]) -> list[tarfile.TarInfo]:
        entries = [_entry(root, name) for name in names]
        check_links({entry.name: entry.linkname for entry in entries if entry.issym()})
        total = sum(entry.size for entry in entries)
        if total > self._limits.total_bytes or len(entries) > self._limits.members:
            largest = max(entries, key=lambda entry: entry.size)
            raise ArchiveError(
                f"{root} holds {len(entries)} files of {total} bytes together, more than a payload"
                f" may ({self._limits.members} files, {self._limits.total_bytes} bytes); the"
                f" largest is {largest.name!r} of {largest.size} bytes"
            )
        return entries


def _is_manifest(member: Member, *, first: bool) -> bool:
    named = member.name == MANIFEST or (first and posixpath.basename(member.name) == MANIFEST)
    return named and member.kind is MemberKind.FILE


def _whole(member: Member) -> bytes:
    if member.size_bytes > LARGEST_BYTES:
        raise ArchiveError(f"{member.name} is larger than {LARGEST_BYTES} bytes")
    return b"".join(member.content)


def _decoded(text: bytes, name: str) -> str:
    try:
        return text.decode()
    except UnicodeDecodeError as error:
        raise ArchiveError(f"{name} is not UTF-8: byte {error.start} is wrong") from None


def file_digest(path: Path) -> str:
    """Return the sha256 of a file, in hex."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _entry(root: Path, name: str) -> tarfile.TarInfo:
    if safe_name(name) != name:
        raise ArchiveError(f"the name {name!r} cannot be packed")
    found = (root / name).lstat()
    entry = tarfile.TarInfo(name)
    if stat.S_ISLNK(found.st_mode):
        entry.type, entry.mode = tarfile.SYMTYPE, 0o777
        entry.linkname = str((root / name).readlink())
    elif stat.S_ISREG(found.st_mode):
        entry.size = found.st_size
        entry.mode = 0o755 if found.st_mode & 0o111 else 0o644
    else:
        message = f"{name!r} is a socket, pipe or device: only files and links are shipped"
        raise ArchiveError(message)
    return entry


def _write_tar(
    root: Path, entries: list[tarfile.TarInfo], out: io.BufferedIOBase, first: bytes | None
) -> None:
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for number, entry in enumerate(entries):
            if number == 0 and first is not None:
                archive.addfile(entry, io.BytesIO(first))
            elif entry.isreg():
                with (root / entry.name).open("rb") as file:
                    archive.addfile(entry, file)
            else:
                archive.addfile(entry)


_MOST_HOPS = 40


class Tree:
    """Collects the members of an archive and refuses invalid ones."""

    def __init__(self) -> None:
        self.files: set[str] = set()
        self.links: dict[str, str] = {}
        """Targets by name."""

    def add(self, member: Member) -> None:
        """Add one member. Raises ArchiveError."""
        if member.kind is MemberKind.FOLDER:
            return
        name = member.name
        if not name or name in self.files or name in self.links:
            raise ArchiveError(f"{name!r} occurs twice in the archive")
        if member.kind is MemberKind.LINK:
            self.links[name] = member.target
            return
        if (
            member.kind is MemberKind.HARD_LINK
            and member.target.removeprefix("./") not in self.files
        ):
            message = f"{name!r} is linked to {member.target!r}, which is not in the archive"
            raise ArchiveError(message)
        self.files.add(name)

    def check(self) -> None:
        """Validate the complete tree. Raises ArchiveError."""
        check_links(self.links)
        for name in (*self.files, *self.links):
            parts = name.split("/")
            for depth in range(1, len(parts)):
                above = "/".join(parts[:depth])
                if above in self.links or above in self.files:
                    raise ArchiveError(f"{name!r} lies below {above!r}, which is no folder")


def check_links(links: Mapping[str, str]) -> None:
    """Follow each link, also through other links. Raises ArchiveError if one leaves the tree."""
    for name, target in links.items():
        if not target.isprintable():
            raise ArchiveError(f"the link {name!r} has an unprintable target")
        if not _stays_inside(name, target, links):
            raise ArchiveError(
                f"the link {name!r} -> {target!r} leaves the payload: copy what it points to"
            )


def _stays_inside(name: str, target: str, links: Mapping[str, str]) -> bool:
    if target.startswith("/"):
        return False
    where = name.split("/")[:-1]
    ahead = deque(_steps(target))
    hops = 0
    while ahead:
        step = ahead.popleft()
        if step != "..":
            where.append(step)
        elif where:
            where.pop()
        else:
            return False
        further = links.get("/".join(where))
        if further is not None:
            hops += 1
            if hops > _MOST_HOPS:
                raise ArchiveError(f"the link {name!r} -> {target!r} leads in a circle")
            if further.startswith("/"):
                return False
            where.pop()
            ahead.extendleft(reversed(_steps(further)))
    return True


def _steps(target: str) -> list[str]:
    return [step for step in target.split("/") if step not in ("", ".")]


CACHES = frozenset({".git", "__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache"})
_MADE = ("build/lib*", "build/bdist*", "*.egg-info")
"""Copies of the source and its metadata that a build creates; they are soon out of date."""
VENV_MARK = "pyvenv.cfg"
HOME_MARK = "controller.lock"


def payload_files(root: Path, *, exclude: Iterable[str] = ()) -> list[str]:
    """Return the names of the files and links to ship, relative to `root`, sorted.

    Inside a git work tree these are the tracked and the untracked files that are not ignored,
    unless git ignores the whole folder. Elsewhere these are all files except what setuptools
    creates. Caches, virtual environments and homes of Seatrial are never included.

    Args:
        root: The folder.
        exclude: Patterns of files and folders that are not shipped.

    Raises:
        ArchiveError: Git failed to list the files.
    """
    is_tracked = _is_work_tree(root)
    found = _kept(list(_in_work_tree(root) if is_tracked else _below(root)))
    return sorted(_without(found, [*exclude, *(() if is_tracked else _MADE)]))


def _below_links(root: Path, manifest: Manifest) -> Iterator[str]:
    """Yield the test paths that are links or below links: only the link itself is shipped."""
    for job in manifest.job:
        for _, name in suite_paths(job):
            parents = [root / one for one in (name, *map(str, PurePosixPath(name).parents))]
            if any(one.is_symlink() for one in parents if one != root) and (root / name).exists():
                yield name


def _without(names: Iterable[str], exclude: Iterable[str]) -> set[str]:
    """Return the names that no pattern excludes."""
    found = set(names)
    for pattern in exclude:
        fits = re.compile(fnmatch.translate(pattern.rstrip("/"))).fullmatch
        found = {name for name in found if not any(map(fits, _with_folders(name)))}
    return found


def _ignored(root: Path) -> list[str]:
    """Return the names of the files that git ignores.

    A wholly ignored folder is one name with a ``/`` at its end. The list is empty outside a git
    work tree.
    """
    if not _is_work_tree(root):
        return []
    words = ("ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory")
    listed = _git(root, *words).stdout.split(b"\0")
    return [os.fsdecode(name) for name in listed if name]


def _with_folders(name: str) -> Iterator[str]:
    path = PurePosixPath(name)
    return (one.as_posix() for one in (path, *path.parents))


def _is_work_tree(root: Path) -> bool:
    if not any((folder / ".git").exists() for folder in (root, *root.parents)):
        return False
    ignored = _git(root, "check-ignore", "--quiet", ".", accept=(0, 1))
    return ignored.returncode == 1


def _in_work_tree(root: Path) -> Iterator[str]:
    listed = _git(root, "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    for raw in filter(None, listed.stdout.split(b"\0")):
        name = os.fsdecode(raw).rstrip("/")
        path = root / name
        if path.is_dir() and not path.is_symlink():
            # A repository inside this one: git lists only its folder.
            yield from (f"{name}/{deeper}" for deeper in payload_files(path))
        elif os.path.lexists(path):
            yield name


def _git(
    root: Path, *words: str, accept: Iterable[int] = (0,)
) -> subprocess.CompletedProcess[bytes]:
    try:
        done = read_with_git(root, *words)
    except OSError as error:
        message = f"{root} is in a git work tree, but git cannot be run: {error}"
        raise ArchiveError(message) from error
    if done.returncode not in accept:
        said = done.stderr.decode(errors="replace").strip()
        raise ArchiveError(f"{root} is in a git work tree, but git cannot list it: {said}")
    return done


def _below(root: Path) -> Iterator[str]:
    for folder, folders, files in os.walk(root, onerror=_refuse):
        here = Path(folder)
        if here != root and not {VENV_MARK, HOME_MARK}.isdisjoint(files):
            folders.clear()
            continue
        links = [name for name in folders if (here / name).is_symlink()]
        folders[:] = sorted(name for name in folders if name not in CACHES and name not in links)
        for name in (*files, *links):
            yield (here / name).relative_to(root).as_posix()


def _refuse(error: OSError) -> None:
    raise ArchiveError(f"{error.filename} cannot be read: {error.strerror}") from error


def _kept(names: list[str]) -> Iterator[str]:
    marks = (VENV_MARK, HOME_MARK)
    left_out = {str(PurePosixPath(n).parent) for n in names if PurePosixPath(n).name in marks}
    left_out.discard(".")
    for name in names:
        path = PurePosixPath(name)
        cached = path.suffix == ".pyc" or not CACHES.isdisjoint(path.parts)
        if not cached and not any(str(parent) in left_out for parent in path.parents):
            yield name
