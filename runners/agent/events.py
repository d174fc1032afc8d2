"""The event stream: one writer, numbered from 1 without a gap, one write per line."""

from __future__ import annotations

import errno
import json
import os
import time
from pathlib import Path
from typing import Callable, Mapping, Optional

from .evidence_text import JsonValue, Masker, cap, clean

Data = Mapping[str, JsonValue]

_RESERVE_BYTES = 512 * 1024
_LAST_RESERVE_BYTES = 64 * 1024
_LAST_KINDS = ("phase", "log", "end")
_SYNC_S = 1.0
_FULL = (errno.ENOSPC, errno.EDQUOT)


def is_full(error: OSError) -> bool:
    """Return whether an error means that the disk (or the quota) is full."""
    return error.errno in _FULL


def write_all(fd: int, data: bytes) -> int:
    """Write all bytes; return how many were written, fewer only if the disk is full.

    Raises:
        OSError: for any other cause.
    """
    done = 0
    while done < len(data):
        try:
            done += os.write(fd, data[done:] if done else data)
        except OSError as error:  # noqa: PERF203 - a write may be short
            if not is_full(error):
                raise
            break
    return done


class EventWriter:
    """Appends events; on a full disk, a reserve file is deleted to have space for the last ones."""

    def __init__(
        self, path: Path, *, reserve: Path, masker: Masker, text_bytes: int, after_seq: int = 0
    ) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        self._reserve = reserve
        self._masker = masker
        self._text_bytes = text_bytes
        self._synced_at = time.monotonic()
        self._dirty = False
        self._last_reserve = reserve.with_name(f"{reserve.name}.last")
        self._exhausted = False
        self.seq = after_seq
        self.lost = 0
        self.disk_full = False
        self.on_full: Optional[Callable[[], None]] = None
        self._keep(self._last_reserve, _LAST_RESERVE_BYTES)
        self._keep(self._reserve, _RESERVE_BYTES)
        self._end_torn_line()

    def emit(self, kind: str, job: Optional[str], data: Data) -> None:
        """Append one event; strings in it are masked, cleaned and capped.

        Once the reserve is used up as well, only the events about ends are written.

        Raises:
            OSError: an event about an end cannot be written.
        """
        if self._exhausted and kind not in _LAST_KINDS:
            self.lost += 1
            return
        line = {
            "v": 1,
            "seq": self.seq + 1,
            "ts": round(time.time(), 6),
            "kind": kind,
            "job": job,
            "data": self._fit(self._masker.data(dict(data))),
        }
        raw = json.dumps(line, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        if self._append(raw.encode("utf-8") + b"\n"):
            self.seq += 1
            self._dirty = True
        else:
            self.lost += 1

    def log(self, level: str, message: str, job: Optional[str] = None) -> None:
        """Append a message for a person."""
        self.emit("log", job, {"level": level, "message": message})

    def full(self) -> None:
        """Handle a full disk once: stop the job's output, free the reserve, and emit an event."""
        if self.disk_full:
            return
        self.disk_full = True
        if self.on_full is not None:
            self.on_full()
        self._reserve.unlink(missing_ok=True)

    def sync(self, *, now: bool = False) -> None:
        """Sync written data to the disk, at most once a second unless ``now``."""
        if not self._dirty or not (now or time.monotonic() - self._synced_at >= _SYNC_S):
            return
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            if not is_full(error):
                raise
            self.full()
        self._dirty = False
        self._synced_at = time.monotonic()

    def close(self) -> None:
        """Sync the file and close it."""
        self.sync(now=True)
        os.close(self._fd)
        self._reserve.unlink(missing_ok=True)
        self._last_reserve.unlink(missing_ok=True)

    def _append(self, line: bytes) -> bool:
        """Write a line completely or not at all: readers only get whole lines."""
        begin = os.fstat(self._fd).st_size
        done = write_all(self._fd, line)
        if done < len(line):
            self.full()
            done += write_all(self._fd, line[done:])
        if done == len(line):
            return True
        os.ftruncate(self._fd, begin)
        if self._exhausted:
            raise OSError(errno.ENOSPC, "no space left for events, all reserves are used up")
        self._exhausted = True
        self._last_reserve.unlink(missing_ok=True)
        return False

    def _fit(self, value: JsonValue) -> JsonValue:
        if isinstance(value, str):
            return clean(cap(value, self._text_bytes))
        if isinstance(value, Mapping):
            return {clean(str(key))[:1_000]: self._fit(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self._fit(item) for item in value]
        return value

    def _keep(self, path: Path, size_bytes: int) -> None:
        """Fill the reserve with random bytes: a file system may allocate no space for zeros."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
        fd = os.open(path, flags, 0o600)
        try:
            if write_all(fd, os.urandom(size_bytes)) < size_bytes:
                self.full()
        finally:
            os.close(fd)

    def _end_torn_line(self) -> None:
        """Terminate an incomplete line that a killed agent left."""
        size = os.fstat(self._fd).st_size
        if size and os.pread(self._fd, 1, size - 1) != b"\n":
            write_all(self._fd, b"\n")
