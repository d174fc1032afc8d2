"""Sends requests to the pages' application in this process, and measures each answer."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

import httpx
import psycopg
from sqlalchemy import Engine, event

_NO_TIMEOUT = httpx.Timeout(None)


@dataclass(frozen=True, slots=True)
class Asked:
    """Measurements of one answer."""

    path: str
    status: int
    seconds: float
    cpu_s: float
    """CPU seconds of this process and the database's, which other work does not lengthen."""
    raw_bytes: int
    sent_bytes: int
    """Bytes of the compressed body."""
    statements: int
    database_s: float
    """Seconds of `seconds` that database statements took."""
    nodes: int
    """Number of elements on the page."""


@dataclass(slots=True)
class Statements:
    """Counts and times of database statements since `clear`."""

    count: int = 0
    seconds: float = 0.0
    slowest: dict[str, float] = field(default_factory=dict)
    """Longest time of each statement, in seconds; not reset by `clear`."""
    backends: set[int] = field(default_factory=set)
    """Ids of the Postgres processes of this process's connections."""
    _begun: float = 0.0

    def clear(self) -> None:
        self.count, self.seconds = 0, 0.0

    def use(self, connection: object, *_: object) -> None:
        """Note the server process of a connection that is taken from the pool."""
        if isinstance(connection, psycopg.Connection):
            self.backends.add(connection.info.backend_pid)

    def cpu_s(self) -> float:
        """Return the total CPU seconds of this process and the database's."""
        return time.process_time() + sum(map(_worked_s, self.backends))

    def begin(self, *_: object) -> None:
        self._begun = time.perf_counter()

    def end(self, _connection: object, _cursor: object, statement: str, *_: object) -> None:
        took = time.perf_counter() - self._begun
        if statement.startswith("BEGIN"):
            return
        self.count += 1
        self.seconds += took
        self.slowest[statement] = max(self.slowest.get(statement, 0.0), took)


def _worked_s(process: int) -> float:
    """Return a process's CPU seconds from Linux's scheduler; 0 if they are unreadable."""
    try:
        return int(Path(f"/proc/{process}/schedstat").read_text().split()[0]) / 1e9
    except OSError:
        return 0.0


@contextmanager
def counting(engine: Engine) -> Iterator[Statements]:
    """Yield the counts of database statements in the block."""
    seen = Statements()
    event.listen(engine, "before_cursor_execute", seen.begin)
    event.listen(engine, "after_cursor_execute", seen.end)
    event.listen(engine, "checkout", seen.use)
    try:
        yield seen
    finally:
        event.remove(engine, "before_cursor_execute", seen.begin)
        event.remove(engine, "after_cursor_execute", seen.end)
        event.remove(engine, "checkout", seen.use)


async def ask(client: httpx.AsyncClient, path: str, statements: Statements) -> Asked:
    """Send one request, and return its measurements."""
    statements.clear()
    begun, worked = time.perf_counter(), statements.cpu_s()
    async with client.stream("GET", path, timeout=_NO_TIMEOUT) as answer:
        body = await answer.aread()
    took, worked = time.perf_counter() - begun, statements.cpu_s() - worked
    return Asked(
        path=path,
        status=answer.status_code,
        seconds=took,
        cpu_s=worked,
        raw_bytes=len(body),
        sent_bytes=answer.num_bytes_downloaded,
        statements=statements.count,
        database_s=statements.seconds,
        nodes=_nodes(body) if b"<html" in body[:200] else 0,
    )


def _nodes(body: bytes) -> int:
    counter = _Nodes()
    counter.feed(body.decode())
    return counter.count


class _Nodes(HTMLParser):
    """Counts HTML elements."""

    count = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.count += 1


def _but_one_in_twenty(seconds: Sequence[float]) -> float:
    ranked = sorted(seconds)
    return ranked[max(0, math.ceil(len(ranked) * 0.95) - 1)]


@dataclass(frozen=True, slots=True)
class Summary:
    """All answers of one page."""

    route: str
    answers: tuple[Asked, ...]

    @property
    def p50(self) -> float:
        return statistics.median(one.seconds for one in self.answers)

    @property
    def p95(self) -> float:
        """95th percentile of the answers' wall time, in seconds."""
        return _but_one_in_twenty([one.seconds for one in self.answers])

    @property
    def cpu_p95(self) -> float:
        """95th percentile of the answers' CPU time, in seconds."""
        return _but_one_in_twenty([one.cpu_s for one in self.answers])

    @property
    def worst(self) -> Asked:
        return max(self.answers, key=lambda one: one.seconds)

    def most(self, name: str) -> int:
        """Return the largest value of a field over all answers."""
        return max(int(getattr(one, name)) for one in self.answers)

    @property
    def database_part(self) -> float:
        whole = sum(one.seconds for one in self.answers)
        return sum(one.database_s for one in self.answers) / whole if whole else 0.0

    @property
    def failures(self) -> set[int]:
        """Statuses other than 200."""
        return {one.status for one in self.answers} - {200}
