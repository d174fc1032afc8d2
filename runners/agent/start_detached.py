"""Starting the agent so that it outlives the connection that started it."""

from __future__ import annotations

import json
import os
import resource
import select
import signal
import sys
import traceback
from typing import BinaryIO, Dict, Mapping, NoReturn

from . import earlier_events, lock, processes, run_attempt
from .layout import Attempt, RefusedError

_SECRETS_BYTES = 4 * 1024 * 1024
_WAIT_S = 30


class BadInputError(RefusedError):
    """What came on stdin is not what ``start`` takes."""


class NotStartedError(RefusedError):
    """The agent ended, or hung, before it could say that it runs."""


def read_secrets(stream: BinaryIO) -> Dict[str, str]:
    """Read ``{"secrets": {name: value}}``; nothing at all means none.

    Raises:
        BadInputError: it is something else. The text never repeats the input.
    """
    raw = stream.read(_SECRETS_BYTES)
    if not raw.strip():
        return {}
    try:
        value = json.loads(raw)
    except ValueError:
        raise BadInputError("stdin is not JSON") from None
    secrets = value.get("secrets", {}) if isinstance(value, dict) else None
    if not isinstance(secrets, dict) or not all(isinstance(one, str) for one in secrets.values()):
        raise BadInputError('stdin must be {"secrets": {name: text}}')
    return secrets


def start(attempt: Attempt, secrets: Mapping[str, str]) -> None:
    """Start the agent of an attempt, unless it runs or has ended; return once it holds the lock.

    Raises:
        NotStartedError: it did not come up.
    """
    held = lock.take(attempt.lock)
    if held is None:
        return
    if earlier_events.read(attempt.events).ended:
        os.close(held)
        return
    ready, tell = os.pipe()
    child = os.fork()
    if child == 0:
        _leave(attempt, secrets, held=held, tell=tell)
    os.close(tell)
    # The lock belongs to the open file, which the agent has inherited: closing it frees nothing.
    os.close(held)
    os.waitpid(child, 0)
    with os.fdopen(ready, "rb", buffering=0) as stream:
        arm_report = select.select([stream], [], [], _WAIT_S)[0] and stream.read(1)
    if not arm_report:
        raise NotStartedError(f"the agent did not come up; see {attempt.complaints}")


def _leave(attempt: Attempt, secrets: Mapping[str, str], *, held: int, tell: int) -> NoReturn:
    """Fork again in a session of its own, so that no terminal can end the agent."""
    try:
        os.setsid()
        if os.fork() == 0:
            _become_agent(attempt, secrets, held=held, tell=tell)
    finally:
        os._exit(0)


def _become_agent(
    attempt: Attempt, secrets: Mapping[str, str], *, held: int, tell: int
) -> NoReturn:
    code = 1
    try:
        _detach(attempt, keep=(held, tell))
        attempt.pid.write_text(f"{os.getpid()}\n")
        os.write(tell, b"1")
        os.close(tell)
        processes.adopt_orphans()
        run_attempt.run(attempt, secrets)
        code = 0
    except BaseException:  # noqa: BLE001 - nobody is above: it goes to agent.err
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _detach(attempt: Attempt, *, keep: "tuple[int, int]") -> None:
    """Let go of everything of the caller's: streams, descriptors, folder, signal settings."""
    os.chdir("/")
    os.umask(0o022)
    quiet = os.open(os.devnull, os.O_RDWR)
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    complaints = os.open(attempt.complaints, flags, 0o600)
    for source, target in ((quiet, 0), (quiet, 1), (complaints, 2)):
        os.dup2(source, target)
    low, high = sorted(keep)
    limit = os.sysconf("SC_OPEN_MAX")
    for first, last in ((3, low), (low + 1, high), (high + 1, min(limit, 65_536))):
        os.closerange(first, last)
    signal.pthread_sigmask(signal.SIG_SETMASK, set())
    # A hung test is ended by SIGABRT: the core of a process with a model in it would fill the disk.
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
