"""Which files of a folder are its payload."""

from __future__ import annotations

import fnmatch
import os
import re
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from orchestrator.application.ports.archives import ArchiveError

CACHES = frozenset({".git", "__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache"})
VENV_MARK = "pyvenv.cfg"
HOME_MARK = "controller.lock"
# A git hook sets these, and they would name another repository than the folder's own.
_GIT = ("env", "-u", "GIT_DIR", "-u", "GIT_WORK_TREE", "-u", "GIT_INDEX_FILE", "git")


def payload_files(root: Path, *, exclude: Iterable[str] = ()) -> list[str]:
    """Names of the files and links to ship, relative to `root`, sorted.

    Inside a git work tree these are the tracked and the untracked files that are not ignored,
    unless the folder as a whole is ignored; elsewhere, all. Never caches, virtual environments and
    homes of Seatrial.

    Args:
        root: The folder.
        exclude: Patterns of files and folders that stay behind.

    Raises:
        ArchiveError: Git cannot tell.
    """
    found = set(_kept(list(_in_work_tree(root) if _is_work_tree(root) else _below(root))))
    for pattern in exclude:
        fits = re.compile(fnmatch.translate(pattern.rstrip("/"))).fullmatch
        found = {name for name in found if not any(map(fits, _with_folders(name)))}
    return sorted(found)


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
            # A repository inside this one: git names its folder only.
            yield from (f"{name}/{deeper}" for deeper in payload_files(path))
        elif os.path.lexists(path):
            yield name


def _git(
    root: Path, *words: str, accept: Iterable[int] = (0,)
) -> subprocess.CompletedProcess[bytes]:
    try:
        done = subprocess.run((*_GIT, "-C", str(root), *words), capture_output=True, check=False)
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
