"""Logs as pytest and a shell write them, with colours."""

from __future__ import annotations

import random
import zlib
from collections.abc import Iterator
from datetime import datetime, timedelta

from benchmarks.dashboard.bulk_insert import Sink
from benchmarks.dashboard.words import AREAS, VERBS, harmful
from orchestrator.store.tables import EvidenceChunkRow, EvidenceStream

_CHUNK_BYTES = 256 * 1024
_LONGEST = 1_000_000


def write_log(
    sink: Sink, attempt: int, lines: int, *, since: datetime, seed: int, hostile: bool
) -> int:
    """Write `lines` log lines in chunks; return their size in bytes."""
    written = 0
    for chunk in _chunks(log_lines(lines, since, seed=seed, hostile=hostile)):
        body = zlib.compress(chunk, 1)
        keys = {"attempt": attempt, "stream": EvidenceStream.LOG, "offset": written}
        sink.add(EvidenceChunkRow, **keys, body=body)
        written += len(chunk)
    return written


def _chunks(lines: Iterator[str]) -> Iterator[bytes]:
    waiting = bytearray()
    for line in lines:
        waiting += line.encode()
        if len(waiting) >= _CHUNK_BYTES:
            yield bytes(waiting)
            waiting.clear()
    if waiting:
        yield bytes(waiting)


def log_lines(
    count: int, since: datetime, *, seed: int = 1, hostile: bool = False
) -> Iterator[str]:
    """Yield log lines with line ends."""
    chance = random.Random(seed)
    for number in range(count):
        if hostile and number % 7 == 3:
            length = _LONGEST if number == 24 else 0
            yield f"{harmful(number // 7, length=length)}\n".replace("\r\n", " ")
            continue
        at = since + timedelta(milliseconds=number * 37)
        area, verb = AREAS[number % len(AREAS)], VERBS[number // 7 % len(VERBS)]
        match number % 11:
            case 0:
                yield f"\x1b[2m{at:%H:%M:%S}.{at.microsecond // 1000:03}\x1b[0m pulse {number}\n"
            case 4:
                yield (
                    f"{at:%H:%M:%S} \x1b[33mWARNING\x1b[0m {area}: {verb.replace('_', ' ')} took"
                    f" {chance.random():.3f} s\n"
                )
            case _:
                word = "\x1b[31mFAILED\x1b[0m" if number % 173 == 9 else "\x1b[32mPASSED\x1b[0m"
                done = number * 100 // count
                yield f"tests/unit/test_{area}.py::test_{area}_{verb} {word} [{done:3}%]\n"
