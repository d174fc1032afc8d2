"""The log of a cell: windowed, live, searchable; each line has an address."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Path, Query, Response
from fastapi.responses import StreamingResponse

from orchestrator.application.read_log import Found, LogLine, raw_pieces
from orchestrator.dashboard import urls
from orchestrator.dashboard.pages.log.lines import ShownLine, for_page, part_of_line, shown_line
from orchestrator.dashboard.pages.log.selection import (
    LogQuery,
    OpenedDep,
    OpenedLog,
    QueryDep,
    Window,
    found_in,
    window_of,
)
from orchestrator.dashboard.responses import Asked, AskedDep, Format, Page, PageMissingError
from orchestrator.domain.cell import CellState, RunState
from orchestrator.domain.units import size
from orchestrator.store.logs import AttemptLog

PART_BYTES = 64_000
"""Of one line on a page of its own."""
_UTF8_BYTES = 4

router = APIRouter()


@router.get(urls.LOG)
def show_log(asked: AskedDep, opened: OpenedDep, query: QueryDep) -> Response:
    """Some of its lines; with JavaScript, a window over all of them."""
    found = found_in(query, opened)
    line = found.line if found is not None and found.line is not None else query.line
    window = window_of(query.window, line, opened.total)
    read = [] if opened.reader is None else opened.reader.lines(window.first, window.count)
    lines = [shown_line(one) for one in read]
    data = _data(opened, lines, found)
    if asked.wanted is not Format.HTML:
        return asked.answer(Page(template=_TEMPLATE, title="Log", data=data))
    facts = {
        **_facts(opened),
        "lines": for_page(lines),
        "line": line,
        "query": query,
        "said": _said_of(found, query),
        "goes_on": _going_on(asked, found),
        **_links(asked, opened, window, lines),
    }
    title = f"Log of {opened.cell.name}"
    return asked.answer(Page(template=_TEMPLATE, title=title, facts=facts, section=urls.RUNS))


@router.get(urls.LOG_LINE)
def show_line(
    asked: AskedDep,
    opened: OpenedDep,
    line: Annotated[int, Path(ge=1, le=10**12)],
    at: Annotated[int, Query(ge=0, le=10**12)] = 0,
) -> Response:
    """One line, however long, part by part."""
    read: Sequence[LogLine] = [] if opened.reader is None else opened.reader.lines(line, 1)
    if not read or at > read[0].size_bytes or opened.reader is None:
        raise PageMissingError(f"this log has {opened.total:,} lines")
    whole = read[0].size_bytes
    limit = min(PART_BYTES, whole - at)
    more = min(_UTF8_BYTES, whole - at - limit)
    text = part_of_line(
        opened.reader.read(read[0].begins_at + at, limit + more), limit, is_first=at == 0
    )
    facts = {
        **_facts(opened),
        "text": text,
        "line": line,
        "at": at,
        "until": at + limit,
        "whole": whole,
        "before": asked.here(at=str(max(0, at - PART_BYTES))) if at else "",
        "after": asked.here(at=str(at + limit)) if at + limit < whole else "",
    }
    title = f"Line {line:,} of the log of {opened.cell.name}"
    data = {"line": line, "at": at, "size_bytes": whole, "text": text}
    page = Page(template=_LINE, title=title, facts=facts, data=data, section=urls.RUNS)
    return asked.answer(page)


@router.get(urls.LOG_RAW)
def save_log(asked: AskedDep, opened: OpenedDep) -> Response:
    """The bytes as they came, as a file."""
    if opened.log is None:
        raise PageMissingError("nothing was written yet")
    name = quote(f"{opened.cell.name}-{opened.log.number}.log", safe="")
    saved = {"Content-Disposition": f"attachment; filename*=UTF-8''{name}"}
    pieces = raw_pieces(asked.context.stores.logs, opened.log)
    return StreamingResponse(pieces, headers=saved, media_type="application/octet-stream")


_TEMPLATE = "log.html.j2"
_LINE = "log_line.html.j2"


def _data(
    opened: OpenedLog, lines: Sequence[ShownLine], found: Found | None
) -> Mapping[str, object]:
    told: dict[str, object] = {
        "run": opened.run.id,
        "cell": opened.cell.name,
        "attempt": opened.log.number if opened.log is not None else None,
        "attempts": [_attempt(log) for log in opened.logs],
        "total": opened.total,
        "has_open_line": opened.reader is not None and opened.reader.has_open_line,
        "size_bytes": opened.log.size_bytes if opened.log is not None else 0,
        "is_over": opened.is_over,
        "is_done": opened.cell.state is CellState.DONE,
        "lines": [line.plain() for line in lines],
    }
    if found is not None:
        searched = {"line": found.line, "reached": found.reached, "is_over": found.is_over}
        told["found"] = searched
    return told


def _attempt(log: AttemptLog) -> Mapping[str, object]:
    return {"number": log.number, "size_bytes": log.size_bytes, "is_over": log.is_over}


def _facts(opened: OpenedLog) -> Mapping[str, object]:
    run, cell, log = opened.run, opened.cell, opened.log
    number = str(log.number) if log is not None else ""
    is_live = run.state is not RunState.FINISHED and not opened.is_over
    return {
        "run": run,
        "cell": cell,
        "opened": opened,
        "attempt": number,
        "is_live": is_live,
        "size": size(log.size_bytes) if log is not None else "",
        "here": urls.log_url(run.id, cell.name),
        "raw": urls.with_query(urls.log_raw_url(run.id, cell.name), attempt=number),
        "stream": urls.with_query(urls.events_url(run.id), after=str(opened.events)),
    }


def _going_on(asked: Asked, found: Found | None) -> str:
    """Where a search that stopped before its end goes on."""
    if found is None or found.line is not None or found.is_over:
        return ""
    return asked.here(line=str(found.reached))


def _said_of(found: Found | None, query: LogQuery) -> str:
    if found is None or found.line is not None:
        return ""
    if not found.is_over:
        return f"Not found as far as line {found.reached:,}."
    if not query.line:
        return "Not in this log."
    return f"None {'before' if query.go == 'previous' else 'after'} line {query.line:,}."


def _links(
    asked: Asked, opened: OpenedLog, window: Window, lines: Sequence[ShownLine]
) -> Mapping[str, str]:
    """To the lines before and after those shown, for who reads page by page."""
    last = lines[-1].number if lines else 0

    def link(first: int) -> str:
        return asked.here(**{"from": str(first), "line": "", "go": ""})

    return {
        "earlier": link(max(1, window.first - window.count)) if window.first > 1 else "",
        "later": link(last + 1) if last and last < opened.total else "",
        "begin": link(1) if window.first > 1 else "",
        "end": asked.here(**{"from": "", "line": "", "go": ""}) if last < opened.total else "",
    }
