"""Sends the new parts of the event stream and the log."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import BinaryIO, NamedTuple, Tuple

from .layout import AttemptFolder, is_locked


class Sent(NamedTuple):
    """Where the next pull begins, and whether the agent was alive."""

    alive: bool
    events_end: int
    log_end: int


def pull(
    attempt: AttemptFolder, out: BinaryIO, *, events_from: int, log_from: int, limit_bytes: int
) -> Sent:
    """Write one JSON line, then the new bytes of both files: at most `limit_bytes` of each.

    The line has `v`, `alive`, `events_bytes` and `log_bytes` (what follows), `events_size` and
    `log_size` (the files), and `now` (the machine's clock). Whether the agent is alive is checked
    before the files are read: once it is not, a reader that got all bytes has got all that will
    ever come. While it lives, or if the limit was reached, the events end with a complete line;
    only a line longer than `limit_bytes` is sent in pieces.
    """
    alive = is_locked(attempt.lock)
    events, events_size = _read(attempt.events, events_from, limit_bytes)
    if alive or len(events) == limit_bytes:
        events = _whole_lines(events)
    log, log_size = _read(attempt.log, log_from, limit_bytes)
    header = {
        "v": 1,
        "alive": alive,
        "events_bytes": len(events),
        "log_bytes": len(log),
        "events_size": events_size,
        "log_size": log_size,
        "now": time.time(),
    }
    out.write(json.dumps(header).encode("ascii") + b"\n")
    out.write(events)
    out.write(log)
    out.flush()
    return Sent(alive, events_from + len(events), log_from + len(log))


def _read(path: Path, offset: int, limit_bytes: int) -> Tuple[bytes, int]:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return b"", 0
    try:
        size = os.fstat(fd).st_size
        return os.pread(fd, max(min(limit_bytes, size - offset), 0), offset), size
    finally:
        os.close(fd)


def _whole_lines(data: bytes) -> bytes:
    """Return the complete lines; a line longer than the limit is returned in pieces."""
    end = data.rfind(b"\n")
    return data[: end + 1] if end >= 0 else data
