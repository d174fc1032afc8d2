"""Finding and ending processes: whole groups, and those that left their group."""

# ruff: noqa: PTH123, PTH208 - hundreds of files at each look

from __future__ import annotations

import os
import signal
import time
from collections import deque
from pathlib import Path
from typing import Callable, Deque, Dict, FrozenSet, List, NamedTuple, Set

MARK = "SEATRIAL_ATTEMPT_DIR"
"""Environment variable that every process of an attempt carries."""

_PROC = Path("/proc")
_SUBREAPER = 36
_LOOK_S = 0.05
_CERTAIN_S = 10.0
_SHOWN = 200
"""Maximum number of characters of a command line."""

Find = Callable[[], Set[int]]


class Stat(NamedTuple):
    """The used fields of ``/proc/<pid>/stat``."""

    state: str
    parent: int
    group: int
    session: int


def adopt_orphans() -> bool:
    """Become the parent of every orphan below this process, so that every one can be found."""
    import ctypes  # noqa: PLC0415 - the agent itself needs it, and no verb

    try:
        return bool(ctypes.CDLL(None).prctl(_SUBREAPER, 1, 0, 0, 0) == 0)
    except (OSError, AttributeError):
        return False


def table() -> Dict[int, Stat]:
    """Return all living processes (zombies are not living)."""
    found: Dict[int, Stat] = {}
    for entry in _numbers():
        try:
            text = _content(entry, "stat").decode("ascii", "replace")
            fields = text[text.rindex(")") + 2 :].split()
            stat = Stat(fields[0], int(fields[1]), int(fields[2]), int(fields[3]))
        except (OSError, ValueError, IndexError):
            continue
        if stat.state not in "ZX":
            found[entry] = stat
    return found


def marked(folder: Path) -> Set[int]:
    """Return the processes that carry the mark of the attempt in this folder."""
    wanted = os.fsencode(f"{MARK}={folder}")
    return {pid for pid in table() if pid != os.getpid() and wanted in _environ(pid)}


def agents(folder: Path) -> Set[int]:
    """Return the agents that were started for the attempt in this folder, which may be gone."""
    return {pid for pid in table() if pid != os.getpid() and _is_agent(pid, folder)}


def _is_agent(pid: int, folder: Path) -> bool:
    """Return whether a process is the attempt's agent, by its command line or the open lock."""
    words = _words(pid)
    if words[-1:] == [b"serve"]:
        return _has_open(pid, f"{folder}/lock")
    return words[-3:-1] == [b"start", b"--attempt"] and os.path.realpath(words[-1]) == os.fsencode(
        folder
    )


def _has_open(pid: int, path: str) -> bool:
    """Return whether a process has the file open, even if the file has been removed since."""
    try:
        links = [str(link.readlink()) for link in (_PROC / str(pid) / "fd").iterdir()]
    except OSError:
        return False
    return path in links or f"{path} (deleted)" in links


def below(ancestor: int, *, seen: Dict[int, Stat]) -> Set[int]:
    """Return every descendant of a process, without the process itself."""
    found: Set[int] = set()
    fresh = {ancestor}
    while fresh:
        fresh = {pid for pid, stat in seen.items() if stat.parent in fresh} - found - {ancestor}
        found |= fresh
    return found


def of_job(leader: int, folder: Path, *, spare: FrozenSet[int] = frozenset()) -> Set[int]:
    """Return all processes of the job that was started as session leader ``leader``."""
    seen = table()
    own = {pid for pid, stat in seen.items() if leader in (pid, stat.group, stat.session)}
    return (own | of_attempt(folder)) - spare - {os.getpid()}


def of_attempt(folder: Path) -> Set[int]:
    """Return all processes of the attempt in this folder, including detached ones."""
    return (below(os.getpid(), seen=table()) | marked(folder)) - {os.getpid()}


def of_session(leader: int) -> Set[int]:
    """Return the processes of the session that ``leader`` leads, and their descendants."""
    seen = table()
    own = {pid for pid, stat in seen.items() if leader in (pid, stat.group, stat.session)}
    return own | below(leader, seen=seen)


def kill_all(find: Find) -> Set[int]:
    """Kill the processes that ``find`` returns until it returns none, for at most ten seconds."""
    deadline = time.monotonic() + _CERTAIN_S
    left = find()
    while left and time.monotonic() < deadline:
        send(left, signal.SIGKILL)
        time.sleep(_LOOK_S / 5)
        reap()
        left = find()
    return left


def command_line(pid: int) -> str:
    """Return a process's command line, shortened; empty if it is unreadable."""
    return b" ".join(_words(pid)).decode("utf-8", "replace")[:_SHOWN]


def send(pids: Set[int], number: signal.Signals) -> None:
    """Send a signal to each process, except to ended processes and to those of other users."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except (ProcessLookupError, PermissionError):  # noqa: PERF203 - each may be gone
            continue


_waited_elsewhere: Set[int] = set()
started: Deque[int] = deque(maxlen=64)
"""Ids of the 64 processes that the agent started last; they may have ended."""


def keep_for_caller(pid: int) -> None:
    """Exclude a child from `reap`, because its starter collects the exit status."""
    _waited_elsewhere.add(pid)
    started.append(pid)


def release(pid: int) -> None:
    """Note that the child's exit status was collected."""
    _waited_elsewhere.discard(pid)


def reap() -> None:
    """Reap adopted orphans, but no child whose status another function waits for."""
    for pid in _children() - _waited_elsewhere:
        try:
            os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:  # noqa: PERF203 - each may be gone
            continue


def _children() -> Set[int]:
    try:
        text = (_PROC / "self" / "task" / str(os.getpid()) / "children").read_text()
    except OSError:
        return set()
    return {int(word) for word in text.split()}


def _numbers() -> Set[int]:
    try:
        return {int(name) for name in os.listdir(_PROC) if name.isdigit()}
    except OSError:
        return set()


def _content(pid: int, name: str) -> bytes:
    """Return the content of a file in /proc; faster than by `Path`, since it is read often."""
    with open(f"{_PROC}/{pid}/{name}", "rb", buffering=0) as stream:
        return stream.read()


def _words(pid: int) -> List[bytes]:
    try:
        return _content(pid, "cmdline").rstrip(b"\0").split(b"\0")
    except OSError:
        return []


def _environ(pid: int) -> FrozenSet[bytes]:
    try:
        return frozenset(_content(pid, "environ").split(b"\0"))
    except OSError:
        return frozenset()
