"""The lock that is held for as long as an agent lives."""

from __future__ import annotations

import fcntl
import os
import time
from pathlib import Path
from typing import Optional

_TRIES = 20
_BETWEEN_S = 0.05


def take(path: Path) -> Optional[int]:
    """Acquire the lock; return None if another agent holds it.

    It is tried for a second, because ``held`` acquires the lock for a moment.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    for _ in range(_TRIES):
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return fd
        except BlockingIOError:  # noqa: PERF203 - the wait is what it is for
            time.sleep(_BETWEEN_S)
    os.close(fd)
    return None


def held(path: Path) -> bool:
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
