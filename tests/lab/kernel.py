"""What the lab asks of Linux and Python's library does not offer before 3.12."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

NEW_MOUNTS = 0x00020000
NEW_PIDS = 0x20000000
NEW_NETWORK = 0x40000000
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None, use_errno=True)

T = TypeVar("T")


def unshare(flags: int) -> None:
    """Leave namespaces of this thread for new ones; process ids begin with the next child."""
    _check(_libc.unshare(flags))


def enter(namespace: int) -> None:
    """Bring this thread into the namespace behind an open file."""
    _check(_libc.setns(namespace, 0))


def die_with_parent() -> None:
    """Be killed when the process that forked this one ends."""
    _check(_libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0))


def new_network() -> int:
    """Make an empty network namespace; it lives as long as the file that is returned is open."""

    def make() -> int:
        unshare(NEW_NETWORK)
        return _own_network()

    return _aside(make)


def in_network(namespace: int, work: Callable[[], T]) -> T:
    """Do `work` inside a network namespace: sockets that it makes stay there."""

    def there() -> T:
        enter(namespace)
        return work()

    return _aside(there)


def _own_network() -> int:
    return os.open(f"/proc/self/task/{threading.get_native_id()}/ns/net", os.O_RDONLY)


def _aside(work: Callable[[], T]) -> T:
    """Do it in a thread of its own, as a thread cannot come back from where it went."""
    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="lab-aside") as threads:
        return threads.submit(work).result()


def _check(answer: int) -> None:
    if answer != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
