"""Run a command so that nothing of it remains: `python tests/contained.py COMMAND [ARG ...]`.

Every process that the command starts, daemons too, ends with it, and its temporary files are
removed: at its end, on Ctrl-C, on SIGTERM, and when any one process of it, this one included, is
killed with SIGKILL.

Two supervisors watch each other: the outer one starts the inner one, which starts the command.
Both adopt orphans (`PR_SET_CHILD_SUBREAPER`), and the inner one ends when the outer one does. What
a power cut leaves behind is removed by the next start: its lock is free.
Linux only: elsewhere the command runs alone.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

PREFIX = "seatest-"
FOLDER = "SEATRIAL_TESTS_FOLDER"
"""The variable that names the temporary folder to the command."""
GRACE_S = 10.0
"""How long the command may take to end after a signal, before it is killed."""
_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def main(command: list[str]) -> int:
    """Run the command; returns its exit status, 128 + N where signal N ended it."""
    if sys.platform != "linux":
        return subprocess.run(command, check=False).returncode
    remove_leftovers()
    folder = Path(tempfile.mkdtemp(prefix="" if FOLDER in os.environ else PREFIX))
    folder.chmod(0o755)  # tests run programs as other users
    lock = hold(folder)  # inherited by the inner supervisor
    outer = os.getpid()

    def inner() -> None:
        os.setpgid(0, 0)  # Ctrl-C reaches the outer supervisor alone, which hands it on once
        end_with(outer, signal.SIGTERM)
        os._exit(supervise(lambda: start(command, folder), folder, grace_s=GRACE_S))

    try:
        return supervise(inner, folder, grace_s=2 * GRACE_S)
    finally:
        os.close(lock)


def supervise(run: Callable[[], None], folder: Path, *, grace_s: float) -> int:
    """Fork a child that does `run`; after it, end all its descendants and remove the folder.

    Args:
        run: What the child does; it does not return.
        folder: The temporary files of the command.
        grace_s: Seconds from a signal until the child is killed.

    Returns:
        The child's exit status, 128 + N where signal N ended it.
    """
    prctl(_PR_SET_CHILD_SUBREAPER, 1)
    child = os.fork()
    if child == 0:
        run()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda got, _: stop(child, got, grace_s))
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    signal.setitimer(signal.ITIMER_REAL, 0)
    end_descendants()
    remove(folder)
    return status if status >= 0 else 128 - status


def start(command: list[str], folder: Path) -> None:
    """Become the command, which has its temporary folder and ends with its supervisor."""
    end_with(os.getppid(), signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell's background job ignores it
    os.environ["TMPDIR"] = os.environ[FOLDER] = str(folder)
    os.execvp(command[0], command)


def end_with(parent: int, number: int) -> None:
    """Ask for a signal at the parent's end, which may have been before."""
    prctl(_PR_SET_PDEATHSIG, number)
    if os.getppid() != parent:
        os._exit(128 + number)


def stop(child: int, number: int, grace_s: float) -> None:
    """Hand a signal on, and kill the child if it does not end in time."""
    os.kill(child, number)
    signal.signal(signal.SIGALRM, lambda *_: os.kill(child, signal.SIGKILL))
    signal.setitimer(signal.ITIMER_REAL, grace_s)


def end_descendants() -> None:
    """Kill what the command left, again until there is nothing: a process may have forked."""
    while found := descendants(os.getpid()):
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass
        time.sleep(0.01)


def descendants(ancestor: int) -> list[int]:
    """The process ids below one, zombies included."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                stat = (entry / "stat").read_text().rsplit(")", 1)[1]
                parents[int(entry.name)] = int(stat.split()[1])
    found, wanted = [], {ancestor}
    while wanted:
        wanted = {pid for pid, parent in parents.items() if parent in wanted}
        found += wanted
    return found


def remove(folder: Path) -> None:
    """Remove a folder, and the short names that killed agents of it left in /tmp."""
    shutil.rmtree(folder, ignore_errors=True)
    for link in Path("/tmp").glob("st-*"):
        with suppress(OSError):
            if link.readlink().is_relative_to(folder):
                link.unlink()


def hold(folder: Path) -> int:
    """Lock the folder for as long as a supervisor lives; returns the descriptor."""
    lock = os.open(folder / "lock", os.O_CREAT | os.O_RDWR)
    fcntl.flock(lock, fcntl.LOCK_EX)
    return lock


def remove_leftovers() -> None:
    """Remove the folders of runs that ended without their supervisors."""
    for lock in Path(tempfile.gettempdir()).glob(f"{PREFIX}*/lock"):
        with suppress(OSError), lock.open("rb") as held:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove(lock.parent)


def prctl(option: int, value: int) -> None:
    """Set an attribute of this process."""
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
