"""Runs on the machine: determines the agent's user and its work folder.

``python3 -E -s -S probe_login.py``, as the user who signs in. Prints one JSON object: ``base`` (the
work folder), ``sudo`` (whether every further command runs through sudo), ``reason`` (why the agent
is not root, if it is not) and ``fault`` (why no work is possible, or null).

Sent as text to the machine's Python before the agent is uploaded: standard library only, Python 3.9
or newer, no import of Seatrial.
"""

# ruff: noqa: PTH110, PTH116, PTH118, PTH208, TID251

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

SHARED = "/var/lib/seatrial"
OWN = ".seatrial"
NO_SUDO = "no-sudo"
"""A file of this name in the work folder below the home folder forbids the use of sudo."""

ROOTS_HOME = "/root"
SUDO = ("sudo", "-n", "-H", "--")
TIMEOUT_S = 30.0

# A machine where sudo worked once and fails now must not be treated as one without sudo: its
# running attempts would not be found. So the first success leaves a mark that all users can see.
MAKE = """
import os, sys
base, mark = sys.argv[1:]
os.umask(0o022)
os.makedirs(base, exist_ok=True)
if os.statvfs(base).f_flag & os.ST_NOEXEC:
    sys.exit(base + " is on a file system that is mounted noexec")
os.chmod(base, 0o755)
if mark:
    os.makedirs(os.path.dirname(mark), exist_ok=True)
    open(mark, "a").close()
print(os.geteuid())
"""


def main() -> None:
    """Determine the agent's work folder and whether sudo is used; print both as JSON.

    The module's docstring describes the keys.
    """
    home = os.environ.get("HOME") or "/"
    own = os.path.join(home, OWN)
    if _in_use(own):
        found: dict[str, object] = {"reason": f"{own} holds attempts that were begun without sudo"}
    else:
        found = _as_root(home, own) if os.geteuid() == 0 else _as_user(own)
    usual: dict[str, object] = {"base": own, "sudo": False, "reason": "", "fault": None}
    sys.stdout.write(json.dumps({**usual, **found}))


def _in_use(own: str) -> bool:
    """Return whether the folder has attempts, which must be found there in any case."""
    try:
        return bool(os.listdir(os.path.join(own, "attempts")))
    except OSError:
        return False


def _as_root(home: str, own: str) -> dict[str, object]:
    """Return root's work folder: the shared folder if other users may not enter root's home.

    If the shared folder cannot be made, it is in root's home, too.
    """
    return {"base": own if _others_may_enter(home) or _made((), "") else SHARED}


def _others_may_enter(home: str) -> bool:
    try:
        return home != ROOTS_HOME and bool(os.stat(home).st_mode & 0o001)
    except OSError:
        return False


def _as_user(own: str) -> dict[str, object]:
    if os.path.exists(os.path.join(own, NO_SUDO)):
        return {"reason": f"{own}/{NO_SUDO} forbids sudo"}
    if shutil.which(SUDO[0]) is None:
        return {"reason": "the machine has no sudo"}
    mark = f"{SHARED}/by-sudo/{os.geteuid()}"
    problem = _made(SUDO, mark)
    if problem is None:
        return {"base": SHARED, "sudo": True}
    if os.path.exists(mark):
        return {
            "fault": f"sudo does not work any more for user id {os.geteuid()} ({problem}), and "
            f"what was started with it lies in {SHARED}; let it work again, or remove {mark}"
        }
    return {"reason": problem}


def _made(prefix: tuple[str, ...], mark: str) -> str | None:
    """Create the shared folder as root; return why that failed, or None."""
    command = [*prefix, sys.executable, "-E", "-s", "-S", "-c", MAKE, SHARED, mark]
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
            env={**os.environ, "LC_ALL": "C"},
        )
    except subprocess.TimeoutExpired:
        return f"{command[0]} did not answer within {TIMEOUT_S:g} s"
    if done.returncode == 0 and done.stdout.strip() == b"0":
        return None
    said = done.stderr.decode(errors="replace").strip()
    return said[-300:] or f"exit code {done.returncode} and no output"


if __name__ == "__main__":
    main()
