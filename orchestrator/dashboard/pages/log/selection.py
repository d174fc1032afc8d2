"""Which log is asked for, and which of its lines."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Path, Query

from orchestrator.application.read_log import MOST_LINES, Found, LogReader, Search, open_log
from orchestrator.dashboard.path_lookup import cell_of, run_of
from orchestrator.dashboard.responses import AskedDep, PageMissingError
from orchestrator.domain.cell import Cell, CellState, Run
from orchestrator.store.logs import AttemptLog

_LONGEST_SEARCH = 200
_MOST = 10**12


@dataclass(frozen=True, slots=True)
class OpenedLog:
    """The log of a cell's attempt."""

    run: Run
    cell: Cell
    logs: Sequence[AttemptLog]
    """Of every attempt."""
    log: AttemptLog | None
    """The one that is looked at; None where the cell has no attempt yet."""
    reader: LogReader | None
    events: int
    """The number of the run's newest event when the log was read, or of one shortly before."""

    @property
    def is_over(self) -> bool:
        """Nothing more comes."""
        return self.cell.state is CellState.DONE if self.log is None else self.log.is_over

    @property
    def total(self) -> int:
        """How many lines there are."""
        return 0 if self.reader is None else self.reader.total


@dataclass(frozen=True, slots=True)
class Window:
    """Lines of a log that are looked at at once."""

    first: int
    """0 where nobody said."""
    count: int


@dataclass(frozen=True, slots=True)
class LogQuery:
    """What an address asks of a log."""

    line: int
    """One to look at."""
    window: Window
    search: Search
    go: str
    """``next`` or ``previous``: search from the line."""


def log_query(
    line: Annotated[int, Query(ge=0, le=_MOST)] = 0,
    first: Annotated[int, Query(ge=0, le=_MOST, alias="from")] = 0,
    count: Annotated[int, Query(ge=1, le=MOST_LINES)] = MOST_LINES,
    find: Annotated[str, Query(max_length=_LONGEST_SEARCH)] = "",
    case: bool = False,
    go: Annotated[str, Query(max_length=10)] = "",
) -> LogQuery:
    """As it stands in the address."""
    search = Search(find.partition("\n")[0], ignores_case=not case)
    return LogQuery(line, Window(first, count), search, go)


QueryDep = Annotated[LogQuery, Depends(log_query)]


def opened_log(
    asked: AskedDep,
    run: Annotated[str, Path()],
    cell: Annotated[str, Path()],
    attempt: Annotated[int, Query(ge=0, le=_MOST)] = 0,
) -> OpenedLog:
    """The log that the address names; without an attempt, the last one's."""
    found_run = run_of(asked, run)
    found_cell = cell_of(asked, found_run, cell)
    stores = asked.context.stores
    events = stores.feed.last(found_run.id)  # before the log: rather looked at twice than never
    logs = stores.logs.of_cell(found_cell.id)
    log = _chosen(logs, attempt)
    if attempt and log is None:
        numbers = ", ".join(str(one.number) for one in logs) or "none yet"
        raise PageMissingError(f"{cell} has no attempt {attempt}; it has {numbers}")
    reader = None
    if log is not None:
        reader = open_log(stores.logs, asked.context.log_indexes.of(log.attempt_id), log)
    return OpenedLog(found_run, found_cell, logs, log, reader, events)


OpenedDep = Annotated[OpenedLog, Depends(opened_log)]


def window_of(asked: Window, line: int, total: int) -> Window:
    """What to show: what is asked for, what is round a line, or the end."""
    count = asked.count
    first = asked.first or (line - count // 2 if line else total - count + 1)
    return Window(max(1, first), count)


def found_in(query: LogQuery, opened: OpenedLog) -> Found | None:
    """What a search comes to; None where nothing is searched."""
    if opened.reader is None or not query.search.text or not query.go:
        return None
    if query.go == "previous":
        return opened.reader.find_before(query.search, before=query.line or opened.total + 1)
    return opened.reader.find(query.search, after=query.line)


def _chosen(logs: Sequence[AttemptLog], number: int) -> AttemptLog | None:
    if not number:
        return logs[-1] if logs else None
    return next((log for log in logs if log.number == number), None)
