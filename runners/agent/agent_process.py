"""The agent's own process: started so that it outlives the connection, and stopped."""

from __future__ import annotations

import json
import os
import resource
import select
import shutil
import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import BinaryIO, Callable, Dict, Mapping, NoReturn, Optional, Set, Tuple

from . import processes
from .layout import AgentRefusedError, AttemptFolder, is_locked, take_lock

# `close` and `stop` are done without what only the agent itself needs.
# ruff: noqa: PLC0415

_CHILDBIRTH_S = 0.05
_PID_TRIES = 20
_PID_BETWEEN_S = 0.05


class StillThereError(AgentRefusedError):
    """A process or the folder of the attempt could not be removed; the text names it."""


def ask(attempt: AttemptFolder, reason: str) -> None:
    """Request a stop: the agent ends the job and packs. The first reason is kept."""
    temporary = attempt.stop.with_name(f"stop.{os.getpid()}")
    try:
        temporary.write_text(reason)
    except OSError as error:
        from .events import is_full

        if not is_full(error):
            raise
        # On a full disk the request matters more than its reason: an empty file takes no block.
    try:
        os.link(temporary, attempt.stop)
    except FileExistsError:
        pass
    finally:
        temporary.unlink()


def kill(attempt: AttemptFolder) -> None:
    """Kill the agent and every process of the attempt, and wait until they are gone.

    Raises:
        StillThereError: some do not end.
    """

    def find() -> Set[int]:
        running = processes.agents(attempt.folder) | processes.marked(attempt.folder)
        return _agent(attempt) | running

    left = processes.kill_all(find)
    # A child that the agent was just starting carries the mark a moment later.
    time.sleep(_CHILDBIRTH_S)
    left |= processes.kill_all(find)
    if left:
        raise StillThereError(f"processes {sorted(left)} of {attempt.folder} do not end")


def close(attempt: AttemptFolder) -> None:
    """Kill all processes and remove the folder; nothing to remove is no error.

    Processes are killed first, also without the folder: they would create it again.

    Raises:
        StillThereError: a process does not end, or the folder cannot be removed.
    """
    kill(attempt)
    prefix = Path(attempt.short_prefix)
    for link in prefix.parent.glob(f"{prefix.name}*"):
        if link.is_symlink() and attempt.folder in link.readlink().parents:
            link.unlink()
    if attempt.folder.exists():
        shutil.rmtree(attempt.folder, ignore_errors=True)
    if attempt.folder.exists():
        raise StillThereError(f"{attempt.folder} cannot be removed entirely")


def _agent(attempt: AttemptFolder) -> Set[int]:
    """Return a set with the running agent's process id.

    It is empty if no agent holds the lock, or if the id cannot be read.
    """
    if not is_locked(attempt.lock):
        return set()
    for _ in range(_PID_TRIES):
        try:
            return {int(attempt.pid.read_text())}
        except (OSError, ValueError):  # noqa: PERF203 - it is written a moment after the lock
            time.sleep(_PID_BETWEEN_S)
    return set()


_HANDED_BYTES = 256 * 1024 * 1024
_WAIT_S = 30


class BadInputError(AgentRefusedError):
    """The input of ``start`` is invalid."""


class NotStartedError(AgentRefusedError):
    """The agent ended or hung before it reported its start."""


def read_handed(stream: BinaryIO) -> Tuple[Optional[Mapping[str, object]], Dict[str, str]]:
    """Read ``{"plan": {...}, "secrets": {name: value}}``; both keys are optional.

    Raises:
        BadInputError: it is something else. The text never repeats the input.
    """
    raw = stream.read(_HANDED_BYTES)
    if not raw.strip():
        return None, {}
    try:
        value = json.loads(raw)
    except ValueError:
        raise BadInputError("stdin is not JSON") from None
    plan = value.get("plan") if isinstance(value, dict) else None
    secrets = value.get("secrets", {}) if isinstance(value, dict) else None
    if not isinstance(secrets, dict) or not all(isinstance(one, str) for one in secrets.values()):
        raise BadInputError('stdin must be {"plan": {...}, "secrets": {name: text}}')
    return plan if isinstance(plan, dict) else None, secrets


def keep_plan(attempt: AttemptFolder, plan: Mapping[str, object]) -> None:
    """Create the attempt's folder and store the plan there, unless it has one."""
    usual = os.umask(0o022)
    attempt.folder.parent.mkdir(parents=True, exist_ok=True)
    os.umask(0o077)
    attempt.folder.mkdir(exist_ok=True)
    if not attempt.plan.exists():
        # A rename makes the plan appear whole.
        temporary = attempt.plan.with_name(f"plan.{os.getpid()}")
        temporary.write_text(json.dumps(plan, separators=(",", ":")), encoding="utf-8")
        temporary.rename(attempt.plan)
    os.umask(usual)


def start(attempt: AttemptFolder, secrets: Mapping[str, str]) -> None:
    """Start the agent of an attempt, unless it runs or has ended; return once it holds the lock.

    Raises:
        NotStartedError: it did not start.
    """
    held = take_lock(attempt.lock)
    if held is None:
        return
    from . import event_lines, run_attempt  # imported before the agent reports its start

    if event_lines.read(attempt.events).ended:
        os.close(held)
        return
    ready, tell = os.pipe()
    child = os.fork()
    if child == 0:
        _leave(attempt, partial(run_attempt.run, attempt, secrets), held=held, tell=tell)
    os.close(tell)
    # The lock belongs to the open file, which the agent has inherited: closing it frees nothing.
    os.close(held)
    os.waitpid(child, 0)
    with os.fdopen(ready, "rb", buffering=0) as stream:
        arm_report = select.select([stream], [], [], _WAIT_S)[0] and stream.read(1)
    if not arm_report:
        raise NotStartedError(f"the agent did not come up; see {attempt.complaints}")


def _leave(attempt: AttemptFolder, work: Callable[[], None], *, held: int, tell: int) -> NoReturn:
    """Fork again in a new session, so that no terminal can end the agent. Never returns."""
    try:
        os.setsid()
        if os.fork() == 0:
            _become_agent(attempt, work, held=held, tell=tell)
    finally:
        os._exit(0)


def _become_agent(
    attempt: AttemptFolder, work: Callable[[], None], *, held: int, tell: int
) -> NoReturn:
    code = 1
    try:
        _detach(attempt, keep=(held, tell))
        attempt.pid.write_text(f"{os.getpid()}\n")
        os.write(tell, b"1")
        os.close(tell)
        processes.adopt_orphans()
        work()
        code = 0
    except BaseException:  # noqa: BLE001 - nobody is above: it goes to agent.err
        import traceback

        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _detach(attempt: AttemptFolder, *, keep: "tuple[int, int]") -> None:
    """Detach from the caller: streams, descriptors, working directory, signal handlers."""
    os.chdir("/")
    os.umask(0o022)
    quiet = os.open(os.devnull, os.O_RDWR)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    complaints = os.open(attempt.complaints, flags, 0o600)
    for source, target in ((quiet, 0), (quiet, 1), (complaints, 2)):
        os.dup2(source, target)
    # Where one process answers many verbs, Python's own streams are not these.
    sys.stdin, sys.stdout, sys.stderr = (
        open(target, mode, closefd=False, errors="backslashreplace")  # noqa: SIM115
        for target, mode in ((0, "r"), (1, "w"), (2, "w"))
    )
    low, high = sorted(keep)
    limit = os.sysconf("SC_OPEN_MAX")
    for first, last in ((3, low), (low + 1, high), (high + 1, min(limit, 65_536))):
        os.closerange(first, last)
    signal.pthread_sigmask(signal.SIG_SETMASK, set())
    # A hung test is ended by SIGABRT: the core of a process with a model in it would fill the disk.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
