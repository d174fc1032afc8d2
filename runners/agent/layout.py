"""Paths of the agent's files, marks that detect changed files, and the agent's lock."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from typing import NamedTuple, Optional, Tuple, Union

# ruff: noqa: PTH116 - marks are made of paths as text, of which there are hundreds

_HERE = Path(__file__).resolve().parent
_TMP = "/tmp"
"""A constant instead of TMPDIR, because all verbs of the agent must use the same paths."""


class AgentRefusedError(Exception):
    """A verb of the agent was refused; the message gives the reason."""


class AttemptFolder(NamedTuple):
    """The folder of one attempt and the names inside it."""

    folder: Path
    arm: str = ""
    """The arm with separate payload, environment and job folders; empty for the subject."""

    @property
    def own(self) -> Path:
        """Folder of the files that each arm has separately."""
        return self.folder / self.arm if self.arm else self.folder

    @property
    def plan(self) -> Path:
        """The plan, as the controller passed it to ``start``."""
        return self.folder / "plan.json"

    @property
    def lock(self) -> Path:
        """The lock file, which the agent holds by flock while it runs."""
        return self.folder / "lock"

    @property
    def pid(self) -> Path:
        """File with the agent's process id, which is valid only while the lock is held."""
        return self.folder / "agent.pid"

    @property
    def complaints(self) -> Path:
        """File with the agent's own stderr."""
        return self.folder / "agent.err"

    @property
    def events(self) -> Path:
        """File with the numbered event stream."""
        return self.folder / "events.jsonl"

    @property
    def reserve(self) -> Path:
        """Reserved disk space, so that events can be written on a full disk."""
        return self.folder / "reserve"

    @property
    def log(self) -> Path:
        """File with the output of all jobs, one after the other."""
        return self.folder / "log"

    @property
    def stop(self) -> Path:
        """A file whose existence requests a stop; the file contains the reason."""
        return self.folder / "stop"

    @property
    def payload(self) -> Path:
        """Folder with the attempt's copy of the payload."""
        return self.own / "payload"

    @property
    def venv(self) -> Path:
        """Folder of the overlay environment."""
        return self.own / "venv"

    @property
    def python(self) -> Path:
        """Path of the overlay's interpreter."""
        return self.venv / "bin" / "python"

    @property
    def home(self) -> Path:
        """HOME of jobs that run as a separate user."""
        return self.folder / "home"

    @property
    def jobs(self) -> Path:
        """Folder with one folder per job."""
        return self.own / "jobs"

    @property
    def given(self) -> Path:
        """Folder of files for jobs that jobs cannot change."""
        return self.own / "given"

    @property
    def artifacts(self) -> Path:
        """Flat folder of the files that are sent to the controller."""
        return self.folder / "artifacts"

    @property
    def base(self) -> Path:
        """The folder that all attempts, payloads and wheelhouses of this machine share."""
        return self.folder.parent.parent

    def pristine(self, digest: str) -> Path:
        """Return the folder of the unpacked payload archive with this digest."""
        return self.base / "payloads" / digest

    def wheelhouse(self, digest: str) -> Path:
        """Return the folder of the wheels shipped under this digest."""
        return self.base / "wheels" / digest

    def job(self, job: str) -> JobFolder:
        """Return the folders of one job."""
        short = _short(f"{self.arm}/{job}" if self.arm else job, 4)
        return JobFolder(self.jobs / job, self.given / job, f"{self.short_prefix}{short}")

    @property
    def short_prefix(self) -> str:
        """Prefix of the short names of this attempt's temporary folders."""
        return f"{_TMP}/st-{_short(str(self.folder), 8)}-"


class JobFolder(NamedTuple):
    """The folders of one job; the contents of ``folder`` belong to the jobs' user."""

    folder: Path
    given: Path
    short_tmp: str

    @property
    def records(self) -> Path:
        """The pipe that the pytest plugin writes to."""
        return self.given / "records"

    @property
    def events(self) -> Path:
        """File of the job's own events, ``$SEATRIAL_EVENTS``."""
        return self.folder / "events.jsonl"

    @property
    def modules(self) -> Path:
        """``$SEATRIAL_MODULES``: file that lists modules of the subject loaded from elsewhere."""
        return self.folder / "modules.jsonl"

    @property
    def artifacts(self) -> Path:
        """Folder of the job's artifacts, ``$SEATRIAL_ARTIFACTS``."""
        return self.folder / "artifacts"

    @property
    def tmp(self) -> Path:
        """Temporary folder, ``$TMPDIR`` or the target of a short link in it."""
        return self.folder / "tmp"

    @property
    def caches(self) -> Path:
        """Folder of the compiler caches of one arm of a pairing."""
        return self.folder / "caches"

    @property
    def turns(self) -> Path:
        """``$SEATRIAL_TURNS``: the pipe that starts the turns of a resident arm."""
        return self.given / "turns"

    @property
    def skip(self) -> Path:
        """JSON list of the node ids that have results already and are not run again."""
        return self.given / "skip.json"

    @property
    def captured(self) -> Path:
        """``$SEATRIAL_CAPTURED``: folder of pytest's captured output, owned by the jobs' user."""
        return self.given / "captured"

    @property
    def empty_config(self) -> Path:
        """Configuration file of pytest for a payload without one."""
        return self.given / "pytest.ini"


def on_path() -> Path:
    """Return the folder with the modules that payloads may import."""
    shipped = _HERE.parent / "on_path"
    return shipped if (shipped / "seatrial_pytest.py").is_file() else _HERE / "on_path"


def _short(text: str, digits: int) -> str:
    import hashlib  # noqa: PLC0415 - few verbs need a name of this kind

    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:digits]


_LOCK_TRIES = 20
_LOCK_BETWEEN_S = 0.05


def take_lock(path: Path) -> Optional[int]:
    """Acquire the lock; return None if another agent holds it.

    It is tried for a second, because `is_locked` acquires the lock for a moment.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    for _ in range(_LOCK_TRIES):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return fd
        except BlockingIOError:  # noqa: PERF203 - the wait is what it is for
            time.sleep(_LOCK_BETWEEN_S)
    os.close(fd)
    return None


def is_locked(path: Path) -> bool:
    """Return whether an agent holds the lock."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(fd)


Mark = Optional[Tuple[int, int, int, int]]
"""Inode, size, and the times of the last change of content and of metadata of a file."""


def mark_of(file: Union[Path, str], *, is_link: bool = False) -> Mark:
    """Return a mark that changes with the file (or with the link); None if it is unreadable."""
    try:
        found = os.lstat(file) if is_link else os.stat(file)
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns
