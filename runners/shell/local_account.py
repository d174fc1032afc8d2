"""Commands on this computer as another account: begun as root, or by a rule of sudo."""

from __future__ import annotations

import os
import pwd
import shlex
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from orchestrator.domain.machine import UnreachableError
from runners.agent.processes import below, table

SUDO = ("sudo", "-n")
_CARRIED = (
    *("PATH", "LANG", "LC_ALL", "TZ", "LD_LIBRARY_PATH"),
    *("CUDA_HOME", "CUDA_PATH", "CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"),
    *("ROCM_PATH", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"),
)
"""Variables that commands inherit: others may contain tokens, keys and passwords."""
_KILL_FOR_S = 10.0
_PROOF_TIMEOUT_S = 30.0

# Prints a line for each forbidden thing that the account can do; each one is tried.
_PROOF = """
[ "$(id -u)" = "$uid" ] || echo "its commands run as the user id $(id -u)"
{ ls -- "$home" || cd -- "$home"; } >/dev/null 2>&1 && echo "it can look into $home"
for file in "$@"; do
    cat -- "$file" >/dev/null 2>&1 && echo "it can read $file"
done
kill -0 "$pid" 2>/dev/null && echo "it can send signals to the controller"
cat "/proc/$pid/environ" >/dev/null 2>&1 && echo "it can read the controller's environment"
sudo -n true </dev/null >/dev/null 2>&1 && echo "sudo lets it become root without a password"
mkdir -p "$work" && [ -w "$work" ] || echo "it cannot write to $work"
exit 0
"""


class AccountError(UnreachableError):
    """Commands cannot run as this account; the message gives the reason and the correction."""


class PopenOptions(TypedDict, total=False):
    """Further arguments of `subprocess.Popen`."""

    cwd: str
    env: Mapping[str, str]
    user: int
    group: int
    extra_groups: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class LocalAccount:
    """Another user of this computer."""

    name: str
    uid: int
    gid: int
    groups: tuple[int, ...]
    """Ids of supplementary groups."""
    home: str

    @property
    def work(self) -> str:
        """The work folder of agents."""
        return f"{self.home}/.seatrial"

    def environment(self) -> dict[str, str]:
        """Return the environment variables of the account's commands."""
        ours = os.environ  # noqa: TID251 - what is handed on is no setting of ours
        carried = {name: ours[name] for name in _CARRIED if name in ours}
        own = {"HOME": self.home, "USER": self.name, "LOGNAME": self.name, "SHELL": "/bin/sh"}
        return {"PATH": os.defpath, **carried, **own}


def account_of(name: str) -> LocalAccount:
    """Return an account by name. Raises AccountError if it is unsuitable for jobs."""
    try:
        found = pwd.getpwnam(name)
    except KeyError:
        raise AccountError(
            f"there is no account {name!r}: `useradd --system --create-home"
            f" --shell /usr/sbin/nologin {name}` makes one"
        ) from None
    if found.pw_uid in (0, os.geteuid()):
        whose = "root" if found.pw_uid == 0 else "the controller's own user"
        raise AccountError(f"the account {name} is {whose}: name one that owns nothing else")
    if not _owns(found.pw_uid, found.pw_dir):
        raise AccountError(
            f"the account {name} has no home folder of its own ({found.pw_dir}), which its jobs"
            f" work in: `mkhomedir_helper {name}` or `install -d -o {name} -m 700 FOLDER` with"
            f" `usermod -d FOLDER {name}` gives it one"
        )
    groups = tuple(os.getgrouplist(name, found.pw_gid))
    return LocalAccount(name, found.pw_uid, found.pw_gid, groups, found.pw_dir)


def _owns(uid: int, folder: str) -> bool:
    try:
        return Path(folder).stat().st_uid == uid
    except OSError:
        return False


def started_as(account: LocalAccount | None, command: str) -> tuple[list[str], PopenOptions]:
    """Return the arguments that run a shell command as the account, and Popen's options."""
    shell = ["/bin/sh", "-c", command]
    if account is None:
        return shell, {}
    if os.geteuid() == 0:
        return shell, {
            "cwd": "/",
            "env": account.environment(),
            "user": account.uid,
            "group": account.gid,
            "extra_groups": account.groups,
        }
    pairs = [f"{name}={value}" for name, value in account.environment().items()]
    return [*SUDO, "-u", account.name, "--", "/usr/bin/env", "-i", *pairs, *shell], {"cwd": "/"}


def kill_below_sudo(pid: int, account: LocalAccount | None) -> None:
    """Kill the processes below a sudo process, which belong to the account, by its own user."""
    if account is None or os.geteuid() == 0:
        return
    deadline = time.monotonic() + _KILL_FOR_S
    while (found := below(pid, seen=table())) and time.monotonic() < deadline:
        words, options = started_as(account, f"kill -KILL {' '.join(map(str, sorted(found)))}")
        subprocess.run(words, capture_output=True, check=False, **options)


def prove_apart(account: LocalAccount, *, home: str, secrets: tuple[str, ...]) -> None:
    """Check that the account can neither read the controller's files nor reach its process.

    Args:
        account: The account of jobs.
        home: The controller's folder.
        secrets: Files that only the controller may read.

    Raises AccountError, which names every violation.
    """
    given = {"uid": account.uid, "home": home, "pid": os.getpid(), "work": account.work}
    assigned = "".join(f"{name}={shlex.quote(str(value))}\n" for name, value in given.items())
    files = f"set -- {shlex.join(secrets)}\n"
    words, options = started_as(account, assigned + files + _PROOF)
    try:
        done = subprocess.run(
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PROOF_TIMEOUT_S,
            check=False,
            **options,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise AccountError(f"no command can be run as {account.name}: {error}") from None
    said = done.stdout.decode(errors="replace").splitlines()
    if done.returncode:
        heard = done.stderr.decode(errors="replace").strip()[-300:] or f"exit {done.returncode}"
        raise AccountError(
            f"no command can be run as {account.name}: the controller is not root, and sudo says:"
            f" {heard}. Start it as root, or let sudo run commands as {account.name} without a"
            " password"
        )
    if said:
        raise AccountError(f"jobs cannot be left to {account.name}: {'; '.join(said)}")
