"""The jobs' copy of the payload, which is restored before each job."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from pathlib import Path, PurePath
from typing import Collection, Dict, Iterator, List

from .layout import mark_of

_SETTINGS = frozenset((
    ".pytest.ini", ".pytest.toml", "conftest.py", "entry_points.txt", "pyproject.toml",
    "pytest.ini", "pytest.toml", "setup.cfg", "sitecustomize.py", "tox.ini", "usercustomize.py",
))  # fmt: skip
"""Names of files that pytest or Python read automatically."""
_AT_START = ("sitecustomize", "usercustomize")
_SOURCE_FOLDERS = ("src", "lib", "python")
"""Folders of the payload that have its packages, the same as in `seatrial_shipped`."""
_MOST_NAMES = 2_000
_CACHE = "__pycache__"
_MODULES = (".py", ".pyc", ".pyd", ".so")
"""Suffixes of files that Python imports."""


class PayloadCopy:
    """A copy that belongs to the jobs' user, beside the unpacked original, which does not."""

    def __init__(self, pristine: Path, copy: Path, names: Collection[str]) -> None:
        """Record its files before the first job.

        Args:
            pristine: The unpacked original.
            copy: The jobs' copy of it.
            names: Names of modules that Python imports without the payload.
        """
        self._pristine = pristine
        self._copy = copy
        shipped = (path for path in _files(pristine) if _CACHE not in path.parts)
        self._marks = {path: mark_of(copy / path, is_link=True) for path in shipped}
        self._by_size: Dict[int, List[PurePath]] = {}
        for path in sorted(self._marks):
            mark = self._marks[path]
            self._by_size.setdefault(mark[1] if mark is not None else 0, []).append(path)
        modules = [path for path in self._marks if _is_importable(pristine, path)]
        named = frozenset(path.parent / _stem(path) for path in modules)
        packages = frozenset(path.parent for path in named if path.name == "__init__")
        self._folders = frozenset(folder for path in modules for folder in path.parents)
        self._imported = named | self._folders
        shipped_names = (path.name for path in self._imported if path.parent not in packages)
        self._names = frozenset((*_AT_START, *names, *shipped_names)) - {""}

    def tops(self) -> List[str]:
        """Return the top-level names of the modules in the payload's usual folders.

        ``*`` if they are too many for a variable of the environment.
        """
        sources = [path.parts for path in self._marks if path.suffix == ".py"]
        below = [parts[1:] for parts in sources if parts[0] in _SOURCE_FOLDERS]
        found = {parts[0].partition(".")[0] for parts in (*sources, *below) if parts}
        return sorted(filter(str.isidentifier, found)) if len(found) < _MOST_NAMES else ["*"]

    def shipped_as(self, file: Path) -> str:
        """Return the path of a shipped file with the same content; empty if there is none.

        An unreadable file and a broken link are the same as no other file.
        """
        source = Path(os.path.realpath(file))
        try:
            size = source.stat().st_size if source.is_file() else 0
        except OSError:
            return ""
        same = self._by_size.get(size, ()) if size else ()
        return next((str(path) for path in same if _is_same(self._pristine / path, source)), "")

    def restore(self) -> List[str]:
        """Undo jobs' changes of shipped files and of pytest's settings; return their paths.

        Changed and removed files are written again. Added settings, modules that Python could
        import in place of installed or shipped ones or of folders of modules, and byte code are
        removed; shipped byte code too, since it may differ from its source. Other new files are
        kept for later jobs. Links that a job created are not followed.

        Raises:
            OSError: a change cannot be undone.
        """
        changed = [path for path in sorted(self._marks) if self._check_content(path)]
        now = _files(self._copy)
        new = (path for path in now if path not in self._marks)
        added = sorted(p for p in new if p.name in _SETTINGS or self._is_in_place(p))
        byte_code = {
            p for p in now if _CACHE in p.parts or (p.suffix == ".pyc" and p not in self._marks)
        }
        for path in sorted(byte_code.union(added)):
            with _folder(self._copy, path.parent) as folder:
                os.unlink(path.name, dir_fd=folder)
        for path in changed:
            _write(self._pristine / path, self._copy, path)
            self._marks[path] = mark_of(self._copy / path, is_link=True)
        return [str(path) for path in (*changed, *added)]

    def _is_in_place(self, path: PurePath) -> bool:
        """Return whether Python may import a new file, or linked folder, instead of another module.

        Any folder may be on the path. A folder without `__init__.py` comes after every module of
        its name on the whole path, and all folders of that name are searched.
        """
        if _CACHE in path.parts or not _is_importable(self._copy, path):
            return False
        stem = _stem(path)
        if stem == "__init__":
            return path.parent in self._folders or path.parent.name in self._names
        return stem in self._names or path.parent / stem in self._imported

    def _check_content(self, path: PurePath) -> bool:
        """Return whether a file's content changed; only touched files are compared."""
        mark = mark_of(self._copy / path, is_link=True)
        if mark == self._marks[path]:
            return False
        self._marks[path] = mark
        return not _is_same(self._pristine / path, self._copy / path)


def _files(root: Path) -> List[PurePath]:
    return [
        PurePath(os.path.relpath(folder, root), name)
        for folder, folders, names in os.walk(root)
        for name in (*names, *(each for each in folders if Path(folder, each).is_symlink()))
    ]


def _is_importable(root: Path, path: PurePath) -> bool:
    """Return whether a file is a module by its name, or a link to a folder."""
    return bool(_stem(path)) and (path.suffix in _MODULES or (root / path).is_dir())


def _stem(path: PurePath) -> str:
    """Return a module's name: ``a`` of ``a.cpython-311-x86_64-linux-gnu.so``."""
    return path.name.partition(".")[0]


def _is_same(shipped: Path, now: Path) -> bool:
    try:
        if shipped.is_symlink() or now.is_symlink():
            return shipped.readlink() == now.readlink()
        return stat.S_ISREG(now.lstat().st_mode) and shipped.read_bytes() == now.read_bytes()
    except OSError:
        return False


def _write(source: Path, copy: Path, path: PurePath) -> None:
    """Copy a shipped file to its place, replacing any file or folder."""
    owner = copy.stat()
    with _folder(copy, path.parent) as folder:
        _clear(path.name, folder)
        if source.is_symlink():
            os.symlink(source.readlink(), path.name, dir_fd=folder)
        else:
            mode = stat.S_IMODE(source.stat().st_mode)
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
            with os.fdopen(os.open(path.name, flags, mode, dir_fd=folder), "wb") as out:
                out.write(source.read_bytes())
                os.fchmod(out.fileno(), mode)
        os.chown(path.name, owner.st_uid, owner.st_gid, dir_fd=folder, follow_symlinks=False)


@contextlib.contextmanager
def _folder(root: Path, inner: PurePath) -> Iterator[int]:
    """Yield the descriptor of a subfolder; links and files in its path are replaced by folders."""
    owner = root.stat()
    with contextlib.ExitStack() as opened:
        found = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
        opened.callback(os.close, found)
        for part in inner.parts:
            found = _enter(part, found, owner)
            opened.callback(os.close, found)
        yield found


def _enter(part: str, outer: int, owner: os.stat_result) -> int:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    with contextlib.suppress(OSError):
        return os.open(part, flags, dir_fd=outer)
    _clear(part, outer)
    os.mkdir(part, 0o755, dir_fd=outer)
    os.chown(part, owner.st_uid, owner.st_gid, dir_fd=outer, follow_symlinks=False)
    return os.open(part, flags, dir_fd=outer)


def _clear(name: str, folder: int) -> None:
    """Remove a file, link or folder from an open folder."""
    try:
        is_folder = stat.S_ISDIR(os.lstat(name, dir_fd=folder).st_mode)
    except FileNotFoundError:
        return
    if is_folder:
        shutil.rmtree(f"/proc/self/fd/{folder}/{name}")
    else:
        os.unlink(name, dir_fd=folder)
