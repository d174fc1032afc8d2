"""Detects whether a SQLite database that was not closed lost committed data.

SQLite reads its write-ahead log up to the first frame that is not as it was written, and forgets
the rest without a word. Format: https://www.sqlite.org/fileformat2.html#the_write_ahead_log
"""

from __future__ import annotations

import filecmp
import logging
import shutil
import sqlite3
import struct
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import BinaryIO

from orchestrator.domain.units import plural
from orchestrator.store.errors import DamagedError

logger = logging.getLogger(__name__)

_HEADER = struct.Struct(">8I")
_FRAME = struct.Struct(">6I")
_MAGIC = (0x377F0682, 0x377F0683)
_RESTORE = "restore the last backup of the home"


def check_unclosed(path: Path) -> None:
    """Check a database that its last process did not close.

    Raises DamagedError, with what is lost and what to do. Of the log a copy is kept; who starts
    again after that goes on with what is left.
    """
    log = Path(f"{path}-wal")
    if not path.is_file() or not log.is_file() or not log.stat().st_size:
        return
    lost = lost_commits(log)
    if lost:
        kept = Path(f"{log}.damaged")
        said = (
            f"the write-ahead log {log} is damaged: the last {plural(lost, 'transaction')} that"
            f" had been committed cannot be read any more (a copy is kept as {kept.name})"
        )
        if not (kept.is_file() and filecmp.cmp(log, kept, shallow=False)):
            shutil.copyfile(log, kept)
            raise DamagedError(f"{said}; {_RESTORE}, or start again to go on with what is left")
        logger.error("%s; it goes on with what is left", said)
    fault = _quick_check(path)
    if fault:
        raise DamagedError(f"the database {path} is damaged: {fault}; {_RESTORE}")


def lost_commits(log: Path) -> int:
    """Count transactions after the first corrupt WAL frame; at least one is lost.

    A frame that is torn at the very end is of a transaction that was not committed.
    """
    with log.open("rb") as file:
        header = file.read(_HEADER.size)
        if len(header) < _HEADER.size:
            return 0
        magic, _, page, _, *salts, first, second = _HEADER.unpack(header)
        order = ">" if magic == _MAGIC[1] else "<"
        if magic not in _MAGIC or _sum(header[:24], order) != (first, second):
            return sum(bool(_FRAME.unpack(head)[1]) for head, _ in _frames(file, page or 4096))
        return _behind_the_break(file, page, tuple(salts), (first, second), order)


def _behind_the_break(
    file: BinaryIO, page: int, salts: tuple[int, ...], known: tuple[int, int], order: str
) -> int:
    lost, is_broken = 0, False
    for head, body in _frames(file, page):
        _, commit, *rest = _FRAME.unpack(head)
        if tuple(rest[:2]) != salts:
            if is_broken:
                continue
            break  # of an earlier round: the log was begun anew
        known = _sum(head[:8] + body, order, known)
        is_broken = is_broken or known != tuple(rest[2:])
        lost += bool(is_broken and commit)
    return lost


def _frames(file: BinaryIO, page: int) -> Iterator[tuple[bytes, bytes]]:
    while True:
        head, body = file.read(_FRAME.size), file.read(page)
        if len(head) < _FRAME.size or len(body) < page:
            return
        yield head, body


def _sum(data: bytes, order: str, known: tuple[int, int] = (0, 0)) -> tuple[int, int]:
    one, two = known
    words = struct.unpack(f"{order}{len(data) // 4}I", data)
    for at in range(0, len(words), 2):
        one = (one + words[at] + two) & 0xFFFFFFFF
        two = (two + words[at + 1] + one) & 0xFFFFFFFF
    return one, two


def _quick_check(path: Path) -> str:
    try:
        with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
            (said,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.OperationalError:
        return ""  # opening it tells why it cannot be opened
    except sqlite3.DatabaseError as error:
        return str(error)
    return "" if said == "ok" else str(said)
