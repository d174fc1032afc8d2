"""The home folder, its lock (one controller at a time), and its caches."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import pwd
import re
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Self

from orchestrator.application.ports.clock import Clock
from orchestrator.domain.retention import Amount

LOCK = "controller.lock"
PID = "controller.pid"
TEMPORARY = "tmp"
"""Folder of temporary files for requests; it is emptied whenever the home is acquired."""
_OTHERS = stat.S_IRWXG | stat.S_IRWXO
_OURS = ("*.db", "*.db-*", "controller.*", "token", "keys", "blobs", TEMPORARY, "wheels", "work")
"""Files and folders of a home. Their contents are protected by closing the folders to others."""
_PATIENCE_TRIES = 20
_PAUSE_S = 0.05
_START_FIELD = 19
"""Field of /proc/PID/stat after the closing parenthesis: start time of the process, in ticks."""


@dataclass(frozen=True, slots=True)
class Holder:
    """The process that holds a home's lock."""

    pid: int
    role: str
    started_at: str


class HomeHeldError(Exception):
    """Another controller holds the home."""

    def __init__(self, home: Path, holder: Holder | None) -> None:
        self.holder = holder
        who = f"process {holder.pid} ({holder.role})" if holder else "a process that is starting"
        super().__init__(f"{home} is held by {who}: stop it, or use another SEATRIAL_HOME")


class HomeUnusableError(Exception):
    """The home is not writable, or its permissions cannot be restricted to the owner."""


def prepare_home(home: Path) -> None:
    """Create the folder, or close one that others can read. Raises HomeUnusableError."""
    try:
        home.mkdir(mode=0o700, parents=True, exist_ok=True)
        _close(home)
        with tempfile.TemporaryFile(dir=home):
            pass
    except OSError as error:
        message = f"SEATRIAL_HOME {home} cannot be used: {error.strerror or error}"
        raise HomeUnusableError(f"{message}; set it to a folder that you can write to") from error


def _close(home: Path) -> None:
    """Remove all permissions of group and others from the home's files and folders."""
    found = home.stat()
    if found.st_mode & _OTHERS:
        if found.st_uid != os.geteuid() or found.st_mode & stat.S_ISVTX:
            whose = f"it belongs to user {found.st_uid}" if found.st_uid != os.geteuid() else ""
            raise HomeUnusableError(
                f"SEATRIAL_HOME {home} holds tokens and keys, others can get into it (mode"
                f" {stat.S_IMODE(found.st_mode):o}), and it cannot be closed:"
                f" {whose or 'it is a folder for everybody'}; set it to a folder of your own"
            )
        home.chmod(0o700)
    for path in (path for pattern in _OURS for path in home.glob(pattern)):
        with suppress(FileNotFoundError):  # A controller that is ending removes its files.
            mode = path.lstat().st_mode
            if mode & _OTHERS and not stat.S_ISLNK(mode):
                path.chmod(stat.S_IMODE(mode) & ~_OTHERS)


def system_user() -> str:
    """Return the user name of this process, or its number."""
    number = os.geteuid()
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"uid {number}"


class HomeLock:
    """A file lock on the home, which ends with its process; its content informs other processes."""

    def __init__(self, home: Path, *, clock: Clock, sleep: Callable[[float], None]) -> None:
        self._home = home
        self._clock = clock
        self._sleep = sleep
        self._fd: int | None = None

    def acquire(self, role: str) -> Self:
        """Acquire the home, waiting about a second for a controller that is ending.

        The temporary folder is emptied.

        Raises:
            HomeHeldError: Another controller keeps the home.
        """
        prepare_home(self._home)
        fd = os.open(self._home / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        if not self._locked(fd):
            os.close(fd)
            raise HomeHeldError(self._home, holder(self._home))
        self._fd = fd
        self._sign(fd, role)
        _clear(self._home / TEMPORARY)
        return self

    def release(self) -> None:
        """Release the home.

        The lock file is kept: removing it would allow two locks on two files.
        """
        if self._fd is None:
            return
        (self._home / PID).unlink(missing_ok=True)
        os.ftruncate(self._fd, 0)
        os.close(self._fd)
        self._fd = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def _locked(self, fd: int) -> bool:
        for attempt in range(_PATIENCE_TRIES + 1):
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                if attempt < _PATIENCE_TRIES:
                    self._sleep(_PAUSE_S)
        return False

    def _sign(self, fd: int, role: str) -> None:
        pid = os.getpid()
        signed = {
            "pid": pid,
            "role": role,
            "started_at": self._clock.now().isoformat(),
            "start": _start_of(pid),
        }
        os.ftruncate(fd, 0)
        os.pwrite(fd, json.dumps(signed).encode(), 0)
        fresh = self._home / f"{PID}.{pid}"
        fresh.write_text(f"{pid}\n", encoding="ascii")
        fresh.rename(self._home / PID)


def temporary_folder(home: Path) -> Path:
    """Return the home's temporary folder, with mode 0700; only the lock's holder may use it."""
    folder = home / TEMPORARY
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


def _clear(folder: Path) -> None:
    """Empty the folder: its users hold the home's lock until their processes end."""
    for left in folder.iterdir() if folder.is_dir() else ():
        if left.is_dir() and not left.is_symlink():
            shutil.rmtree(left, ignore_errors=True)
        else:
            with suppress(OSError):
                left.unlink()


def holder(home: Path) -> Holder | None:
    """Return the holder of the home, or None.

    It takes no lock, because a controller that starts meanwhile would fail.
    """
    try:
        signed = json.loads((home / LOCK).read_text(encoding="utf-8"))
        found = Holder(int(signed["pid"]), str(signed["role"]), str(signed["started_at"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found if _start_of(found.pid) == signed.get("start") else None


def _start_of(pid: int) -> str | None:
    """Return the start time of a process, which differs for a reused number; None if it ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return _alive(pid)
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else fields[_START_FIELD]


def _alive(pid: int) -> str | None:
    """Return a constant text if the process exists, else None; used on systems without /proc."""
    if Path("/proc/self/stat").exists():
        return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except PermissionError:
        pass
    return "alive"


def write_report_tree(home: Path, run_id: str, files: Mapping[str, Iterable[bytes]]) -> Path:
    """Write all files into a new folder that replaces the old one.

    Args:
        home: Seatrial's home.
        run_id: The run.
        files: Contents by relative path.

    Returns:
        The report's folder.
    """
    run_folder = home / "runs" / run_id
    run_folder.mkdir(parents=True, exist_ok=True)
    # A tree that a killed writer leaves is removed when the home is acquired again.
    with tempfile.TemporaryDirectory(prefix="report-", dir=temporary_folder(home)) as scratch:
        fresh = Path(scratch) / "report"
        fresh.mkdir(mode=0o755)
        for name, chunks in files.items():
            path = fresh / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as file:
                file.writelines(chunks)
        return _replace(fresh, run_folder / "report")


def _replace(fresh: Path, place: Path) -> Path:
    """Replace the folder; of concurrent writers the last one wins."""
    while not _move_into_place(fresh, place):
        with suppress(FileNotFoundError):  # another writer has just removed it
            place.rename(Path(tempfile.mkdtemp(prefix="old-", dir=fresh.parent)) / "report")
    return place


def _move_into_place(fresh: Path, place: Path) -> bool:
    """Rename the folder to its place; return False if the place is taken."""
    try:
        fresh.rename(place)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        return False
    return True


_RUN_ID = re.compile(r"[0-9A-Za-z._-]{1,100}")


class HomeCaches:
    """Rendered reports and wheelhouses below a home."""

    def __init__(self, home: Path) -> None:
        self._runs = home / "runs"
        self._wheels = home / "wheels"
        self._copies = [home / "work" / kind for kind in ("payloads", "wheels", "agents")]
        self._doomed = home / "tmp"

    def reports(self) -> Iterator[str]:
        """Yield the ids of the runs that have rendered reports."""
        for path in sorted(self._runs.iterdir()) if self._runs.is_dir() else ():
            if _RUN_ID.fullmatch(path.name) and (path / "report").is_dir():
                yield path.name

    def drop_reports(self, run_id: str, *, dry: bool) -> Amount:
        """Remove a run's rendered reports with their copies of artifacts, or only count them."""
        folder = self._runs / run_id
        size = _size(folder / "report")
        if not dry:
            shutil.rmtree(folder / "report", ignore_errors=True)
            with suppress(OSError):  # it contains a person's files, or is written again
                folder.rmdir()
        return Amount(1, size)

    def drop_wheels(self, before: datetime, *, dry: bool) -> Iterator[Amount]:
        """Remove wheelhouses that were resolved before a time, or only count them.

        The files of killed resolutions are removed too. A cached resolution is used only on the day
        it was made, so no later attempt needs an old wheelhouse. An attempt that takes longer than
        the time since `before` between resolving and shipping its wheels would miss them.
        """
        for path in sorted(self._wheels.iterdir()) if self._wheels.is_dir() else ():
            with suppress(FileNotFoundError):
                if path.lstat().st_mtime > before.timestamp():
                    continue
                size = _size(path)
                if not dry:
                    _remove(path)
                yield Amount(1, size)

    def drop_copies(self, before: datetime, *, dry: bool) -> Iterator[Amount]:
        """Remove unpacked payloads, wheels and agents of local jobs, or only count them.

        Only copies that no attempt has used since `before` are removed; an attempt updates the
        time of the copies that it uses. A folder is renamed before it is removed, so that an
        attempt that begins meanwhile does not find it and sends a new copy.
        """
        for path in [one for shelf in self._copies if shelf.is_dir() for one in shelf.iterdir()]:
            with suppress(FileNotFoundError):
                if path.lstat().st_mtime > before.timestamp():
                    continue
                amount = Amount(1, _size(path))
                if not dry:
                    gone = Path(tempfile.mkdtemp(prefix="pruned-", dir=self._doomed))
                    path.rename(gone / path.name)
                    shutil.rmtree(gone, ignore_errors=True)
                yield amount


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _size(path: Path) -> int:
    """Return the bytes of a file, or of all files of a folder."""
    if not path.is_dir() or path.is_symlink():
        return path.lstat().st_size if path.is_symlink() or path.exists() else 0
    found = 0
    for folder, _, names in os.walk(path):
        for name in names:
            with suppress(OSError):
                found += (Path(folder) / name).lstat().st_size
    return found
