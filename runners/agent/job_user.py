"""Runs jobs as a separate user, so that they cannot change the evidence."""

from __future__ import annotations

import contextlib
import grp
import os
import pwd
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, List, Mapping, Optional, Sequence, Tuple

from . import bounded_process, metadata_guard
from .layout import AttemptFolder

USER = "seatrial-payload"
LAST_RESORT = "nobody"
"""User of the jobs if no user can be created, as on a read-only system."""

NOT_ROOT = "SEATRIAL_NOT_ROOT"
"""Variable in which the controller gives the reason why the agent is not root."""

_TIMEOUT_S = 60.0
_PLACES = "/usr/sbin:/sbin:/usr/bin:/bin"
_DEVICE_GROUPS = ("video", "render")
_DEVICE_NODES = ("nvidia*", "kfd", "dri/render*", "accel*", "accel/*", "vfio/*")
_OPEN = os.R_OK | os.W_OK
_TPU_LOCK = Path("/tmp/libtpu_lockfile")
_TRY = """
import os, sys
payload, own, *nodes = sys.argv[1:]
for folder in [path for path in sys.path if path]:
    try:
        names = os.listdir(folder)
    except PermissionError:
        sys.exit(f"{folder} cannot be read")
    except OSError:
        continue  # there is none, or it is a file
    for path in [os.path.join(folder, name) for name in names]:
        if os.path.exists(path) and not os.access(path, os.R_OK):
            sys.exit(f"{path} cannot be read")
for folder, _, names in os.walk(payload, onerror=lambda error: sys.exit(str(error))):
    for name in names:
        path = os.path.join(folder, name)
        if os.path.exists(path) and not os.access(path, os.R_OK):
            sys.exit(f"{path} cannot be read")
open(os.path.join(own, ".try"), "w").close()
os.unlink(os.path.join(own, ".try"))
for node in nodes:
    if not os.access(node, os.R_OK | os.W_OK):
        sys.exit(f"{node} cannot be opened")
"""


@dataclass(frozen=True)
class User:
    """The user that jobs run as."""

    name: str
    home: str
    account: bounded_process.Account
    reason: str

    @property
    def separated(self) -> bool:
        """Whether jobs run as another user than the agent."""
        return self.account is not None


def own_user(reason: str) -> User:
    """Return the agent's own user as the jobs' user, with the reason."""
    try:
        entry = pwd.getpwuid(os.geteuid())
        return User(entry.pw_name, os.environ.get("HOME") or entry.pw_dir, None, reason)
    except KeyError:
        return User(str(os.geteuid()), os.environ.get("HOME", "/"), None, reason)


def choose(
    attempt: AttemptFolder, *, wanted: bool, guarded: bool, tick: Callable[[], None]
) -> User:
    """Choose the jobs' user and make it the owner of the jobs' folders.

    Another user is chosen only after a test: it must run the overlay's Python, read the payload,
    and open every device that the agent can open. With `guarded` it is kept from the metadata
    server before that, because the overlay's packages may run code whenever its Python starts.
    """
    if not wanted:
        return own_user("the plan asks for the agent's own user")
    if os.geteuid() != 0:
        why = os.environ.get(NOT_ROOT)
        return own_user(f"agent is not root: {why}" if why else "agent is not root")
    entry = _entry(tick)
    if entry is None:
        return own_user(f"user {USER} does not exist and cannot be made")
    name, nodes = entry.pw_name, _nodes()
    account = (entry.pw_uid, entry.pw_gid, _groups(nodes))
    _hand_over(attempt, account)
    if guarded:
        metadata_guard.prohibit(account, tick)
    problem = _problem(attempt, account, nodes, tick) or _sudo_problem(name, tick)
    if problem is not None:
        _take_back(attempt)
        return own_user(f"user {name} cannot do the work: {problem}")
    _inherit_tpu_lock(account)
    return User(name, str(attempt.home), account, f"jobs run as {name}")


def _entry(tick: Callable[[], None]) -> Optional[pwd.struct_passwd]:
    found = _lookup(USER)
    useradd = shutil.which("useradd", path=_PLACES)
    if found is None and useradd is not None:
        argv = (useradd, "-r", "-M", "-d", "/nonexistent", "-s", "/usr/sbin/nologin", USER)
        bounded_process.run(argv, timeout_s=_TIMEOUT_S, tick=tick)
    return _lookup(USER) or _lookup(LAST_RESORT)


def _lookup(name: str) -> Optional[pwd.struct_passwd]:
    try:
        return pwd.getpwnam(name)
    except KeyError:
        return None


def _nodes() -> Tuple[Path, ...]:
    """Return the paths of the devices that the agent can open."""
    found = [node for pattern in _DEVICE_NODES for node in Path("/dev").glob(pattern)]
    return tuple(node for node in found if not node.is_dir() and os.access(node, _OPEN))


def _groups(nodes: Sequence[Path]) -> Tuple[int, ...]:
    """Return the ids of the groups that may open the devices, without root's group."""
    found: List[int] = [
        status.st_gid
        for status in (node.stat() for node in nodes)
        if status.st_gid != 0 and status.st_mode & 0o060 == 0o060
    ]
    for name in _DEVICE_GROUPS:
        try:
            found.append(grp.getgrnam(name).gr_gid)
        except KeyError:  # noqa: PERF203 - few machines have both groups
            continue
    return tuple(dict.fromkeys(found))


def _hand_over(attempt: AttemptFolder, account: Tuple[int, int, Tuple[int, ...]]) -> None:
    uid, gid, _ = account
    attempt.home.mkdir(mode=0o700, exist_ok=True)
    for folder in (attempt.payload, attempt.home):
        give(folder, uid, gid)
    # The jobs' folder stays the agent's: each job gets only its own, fresh one in it.
    # Others may pass through to the folders handed over; the evidence beside them is mode 0600.
    attempt.folder.chmod(0o711)
    attempt.artifacts.chmod(0o700)


def _take_back(attempt: AttemptFolder) -> None:
    for folder in (attempt.payload, attempt.home):
        give(folder, os.geteuid(), os.getegid())
    attempt.folder.chmod(0o700)


def give(folder: Path, uid: int, gid: int) -> None:
    """Make a user the owner of a folder and its contents; links are not followed."""
    os.chown(folder, uid, gid, follow_symlinks=False)
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            os.chown(Path(parent) / name, uid, gid, follow_symlinks=False)


def _problem(
    attempt: AttemptFolder,
    account: Tuple[int, int, Tuple[int, ...]],
    nodes: Sequence[Path],
    tick: Callable[[], None],
) -> Optional[str]:
    """Return the operation that the user failed to do in a trial; None if all succeeded."""
    environment: Mapping[str, str] = {"PATH": os.defpath, "HOME": str(attempt.home)}
    answer = bounded_process.run(
        (
            str(attempt.python),
            "-c",
            _TRY,
            str(attempt.payload),
            str(attempt.home),
            *map(str, nodes),
        ),
        timeout_s=_TIMEOUT_S,
        env=environment,
        account=account,
        tick=tick,
    )
    if answer.ok:
        return None
    return answer.text.strip()[-500:] or f"its Python ended with exit code {answer.exit_code}"


def _sudo_problem(name: str, tick: Callable[[], None]) -> Optional[str]:
    """Return a reason if sudo lets the user become root without a password, else None."""
    sudo = shutil.which("sudo", path=_PLACES)
    if sudo is None:
        return None
    answer = bounded_process.run(
        (sudo, "-n", "-l", "-U", name),
        timeout_s=_TIMEOUT_S,
        env={"PATH": _PLACES, "LC_ALL": "C"},
        tick=tick,
    )
    return "sudo lets it become root without a password" if "NOPASSWD" in answer.text else None


def _inherit_tpu_lock(account: Tuple[int, int, Tuple[int, ...]]) -> None:
    """Make the user the owner of a left-over TPU lock file, so that libtpu can open it."""
    with contextlib.suppress(OSError):
        status = _TPU_LOCK.lstat()
        if stat.S_ISREG(status.st_mode) and status.st_nlink == 1:
            os.chown(_TPU_LOCK, account[0], account[1], follow_symlinks=False)
