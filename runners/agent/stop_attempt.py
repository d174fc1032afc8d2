"""Stopping an attempt, and removing every trace of it."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import Set

from . import lock, processes
from .events import is_full
from .layout import Attempt, RefusedError

_CHILDBIRTH_S = 0.05
_PID_TRIES = 20
_PID_BETWEEN_S = 0.05


class StillThereError(RefusedError):
    """Something of the attempt could not be ended; the text says what."""


def ask(attempt: Attempt, reason: str) -> None:
    """Ask the agent to stop: it ends the job, packs, and says so. The first reason stands."""
    temporary = attempt.stop.with_name(f"stop.{os.getpid()}")
    try:
        temporary.write_text(reason)
    except OSError as error:
        if not is_full(error):
            raise
        # On a full disk the request matters more than its reason: an empty file takes no block.
    try:
        os.link(temporary, attempt.stop)
    except FileExistsError:
        pass
    finally:
        temporary.unlink()


def kill(attempt: Attempt) -> None:
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


def close(attempt: Attempt) -> None:
    """Kill all processes and remove the folder; nothing to remove is no error.

    Somebody else may have removed the folder: what runs without it would make it again.

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


def _agent(attempt: Attempt) -> Set[int]:
    """Return the agent's process id, if one lives; the file alone proves nothing."""
    if not lock.held(attempt.lock):
        return set()
    for _ in range(_PID_TRIES):
        try:
            return {int(attempt.pid.read_text())}
        except (OSError, ValueError):  # noqa: PERF203 - it is written a moment after the lock
            time.sleep(_PID_BETWEEN_S)
    return set()
