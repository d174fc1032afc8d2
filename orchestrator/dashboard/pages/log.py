"""The log of a cell: a window of lines, the search, and new lines while the cell runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated
from urllib.parse import quote

from fastapi import APIRouter, Depends, Path, Query, Response
from fastapi.responses import StreamingResponse

from orchestrator.application.describe_run import describe_cell
from orchestrator.application.read_log import (
    MOST_LINES,
    LogLine,
    LogReader,
    LogSearchResult,
    Search,
    open_log,
    raw_pieces,
)
from orchestrator.dashboard import urls
from orchestrator.dashboard.labels import visible
from orchestrator.dashboard.responses import (
    Format,
    Page,
    PageMissingError,
    PageRequest,
    PageRequestDep,
    cell_of,
    run_of,
)
from orchestrator.domain.cell import Cell, CellState, Run, RunState
from orchestrator.domain.outcome import Outcome
from orchestrator.domain.terminal_text import StyledText, styled_texts
from orchestrator.domain.units import plural, size
from orchestrator.store.attempt_evidence import AttemptLog

LONGEST = 2_000
"""Maximum characters of a shown line."""
MOST_PARTS = 24
"""Maximum styled parts of a line; the rest of the line is one plain part."""
_PAGE_PARTS = 2_000
"""Maximum styled parts of all lines on a page without JavaScript."""
Part = tuple[str, str]
"""A text with its CSS classes."""


@dataclass(frozen=True, slots=True)
class ShownLine:
    """A line of a log as the page shows it."""

    number: int
    parts: Sequence[Part]
    size_bytes: int
    is_cut: bool
    """Whether the line is longer than the shown text."""

    @property
    def whole(self) -> str:
        """Return the text of the link to a whole line, with its size."""
        return f"whole line, {size(self.size_bytes)}"

    def plain(self) -> dict[str, object]:
        """Return the line for JSON: its number, its parts, and the size of a truncated one."""
        told: dict[str, object] = {"line": self.number, "parts": self.parts}
        return told | {"size_bytes": self.size_bytes} if self.is_cut else told


def shown_line(line: LogLine) -> ShownLine:
    """Return a line as a terminal shows it, with visible control characters, cut at `LONGEST`."""
    text, is_cut = _text(line)
    parts: list[Part] = []
    room = LONGEST
    for stretch in _few(styled_texts(text)):
        shown = visible(stretch.text)
        parts.append((shown[:room], " ".join(f"t-{word}" for word in stretch.style.split())))
        room -= len(shown)
        if room < 0:
            break
    return ShownLine(line.number, parts, line.size_bytes, is_cut or room < 0)


def for_page(lines: Iterable[ShownLine]) -> list[ShownLine]:
    """Return the lines; those beyond `_PAGE_PARTS` styled parts are plain text."""
    room, shown = _PAGE_PARTS, []
    for line in lines:
        room -= len(line.parts)
        if room < 0 and len(line.parts) > 1:
            whole = "".join(text for text, _ in line.parts)
            line = ShownLine(line.number, [(whole, "")], line.size_bytes, line.is_cut)
        shown.append(line)
    return shown


def part_of_line(data: bytes, limit: int, *, is_first: bool) -> str:
    """Return the text of some bytes of a line, cut between characters."""
    begin = 0
    while not is_first and begin < len(data) and _goes_on(data[begin]):
        begin += 1
    end = min(limit, len(data))
    while end < len(data) and _goes_on(data[end]):
        end += 1
    return visible(data[begin:end].decode("utf-8", "replace"))


def _goes_on(byte: int) -> bool:
    return byte & 0xC0 == 0x80


def _text(line: LogLine) -> tuple[str, bool]:
    if not line.tail:
        return line.head.decode("utf-8", "replace"), False
    # Of a progress bar with a thousand steps only the end matters.
    _, was_over, last = line.tail.rstrip(b"\r").partition(b"\r")
    if was_over:
        return last.decode("utf-8", "replace"), False
    return line.head.decode("utf-8", "replace"), True


def _few(parts: Sequence[StyledText]) -> Sequence[StyledText]:
    if len(parts) <= MOST_PARTS:
        return parts
    rest = "".join(part.text for part in parts[MOST_PARTS - 1 :])
    return [*parts[: MOST_PARTS - 1], StyledText(rest)]


_LONGEST_SEARCH = 200
_MOST = 10**12


@dataclass(frozen=True, slots=True)
class OpenedLog:
    """The log of a cell's attempt."""

    run: Run
    cell: Cell
    logs: Sequence[AttemptLog]
    """Logs of all attempts."""
    log: AttemptLog | None
    """The shown log; None if the cell has no attempt yet."""
    reader: LogReader | None
    events: int
    """Number of the run's newest event, read just before the log."""

    @property
    def is_over(self) -> bool:
        """Whether the log is complete."""
        return self.cell.state is CellState.DONE if self.log is None else self.log.is_over

    @property
    def total(self) -> int:
        """The number of lines."""
        return 0 if self.reader is None else self.reader.total


@dataclass(frozen=True, slots=True)
class LogWindow:
    """The range of a log's lines that the page shows."""

    first: int
    """Number of the first line; 0 if the URL does not give it."""
    count: int


@dataclass(frozen=True, slots=True)
class JobLink:
    """A link to the line where a job begins in the log."""

    job: str
    href: str
    line: int
    word: str
    """Outcome of the job, or ``running``."""


_FAILED = frozenset(Outcome) - {Outcome.PASSED}


@dataclass(frozen=True, slots=True)
class LogQuery:
    """The query of a log's URL."""

    line: int
    """Number of the highlighted line; 0 without one."""
    window: LogWindow
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
    """Parse the page's query."""
    search = Search(find.partition("\n")[0], ignores_case=not case)
    return LogQuery(line, LogWindow(first, count), search, go)


QueryDep = Annotated[LogQuery, Depends(log_query)]


def opened_log(
    request: PageRequestDep,
    run: Annotated[str, Path()],
    cell: Annotated[str, Path()],
    attempt: Annotated[int, Query(ge=0, le=_MOST)] = 0,
) -> OpenedLog:
    """Return the log of the attempt in the URL, else of the last attempt.

    Raises PageMissingError.
    """
    found_run = run_of(request, run)
    found_cell = cell_of(request, found_run, cell)
    stores = request.context.stores
    # Read before the log, so that lines written in between are fetched twice, not lost.
    events = stores.run_events.last(found_run.id)
    logs = stores.logs.of_cell(found_cell.id)
    log = _chosen(logs, attempt)
    if attempt and log is None:
        numbers = ", ".join(str(one.number) for one in logs) or "none yet"
        raise PageMissingError(f"{cell} has no attempt {attempt}; it has {numbers}")
    reader = None
    if log is not None:
        reader = open_log(stores.logs, request.context.log_indexes.of(log.attempt_id), log)
    return OpenedLog(found_run, found_cell, logs, log, reader, events)


OpenedDep = Annotated[OpenedLog, Depends(opened_log)]


def window_of(window: LogWindow, line: int, total: int) -> LogWindow:
    """Return the window of lines: the requested one, around a line, or at the end."""
    count = window.count
    first = window.first or (line - count // 2 if line else total - count + 1)
    return LogWindow(max(1, first), count)


def find_text(query: LogQuery, opened: OpenedLog) -> LogSearchResult | None:
    """Return the result of a search; None without a search."""
    if opened.reader is None or not query.search.text or not query.go:
        return None
    if query.go == "previous":
        return opened.reader.find_before(query.search, before=query.line or opened.total + 1)
    return opened.reader.find(query.search, after=query.line)


def _chosen(logs: Sequence[AttemptLog], number: int) -> AttemptLog | None:
    if not number:
        return logs[-1] if logs else None
    return next((log for log in logs if log.number == number), None)


PART_BYTES = 64_000
"""Maximum bytes of one line on a separate page."""
_UTF8_BYTES = 4

router = APIRouter()


@router.get(urls.LOG)
def show_log(request: PageRequestDep, opened: OpenedDep, query: QueryDep) -> Response:
    """Show a range of the log's lines; with JavaScript, a scrolling window over all of them."""
    found = find_text(query, opened)
    line = found.line if found is not None and found.line is not None else query.line
    window = window_of(query.window, line, opened.total)
    read = [] if opened.reader is None else opened.reader.lines(window.first, window.count)
    lines = [shown_line(one) for one in read]
    data = _data(opened, lines, found)
    if request.wanted is not Format.HTML:
        return request.answer(Page(template=_TEMPLATE, title="Log", data=data))
    facts = {
        **_facts(opened),
        **_jobs(request, opened),
        "lines": for_page(lines),
        "line": line,
        "query": query,
        "said": _sentence_of(found, query),
        "goes_on": _going_on(request, found),
        **_links(request, opened, window, lines),
    }
    title = f"Log of {opened.cell.name}"
    return request.answer(Page(template=_TEMPLATE, title=title, facts=facts, section=urls.RUNS))


@router.get(urls.LOG_LINE)
def show_line(
    request: PageRequestDep,
    opened: OpenedDep,
    line: Annotated[int, Path(ge=1, le=10**12)],
    at: Annotated[int, Query(ge=0, le=10**12)] = 0,
) -> Response:
    """Show one line of any length, in parts."""
    read: Sequence[LogLine] = [] if opened.reader is None else opened.reader.lines(line, 1)
    if not read or at > read[0].size_bytes or opened.reader is None:
        raise PageMissingError(f"this log has {plural(opened.total, 'line')}")
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
        "before": request.here(at=str(max(0, at - PART_BYTES))) if at else "",
        "after": request.here(at=str(at + limit)) if at + limit < whole else "",
    }
    title = f"Line {line:,} of the log of {opened.cell.name}"
    data = {"line": line, "at": at, "size_bytes": whole, "text": text}
    page = Page(template=_LINE, title=title, facts=facts, data=data, section=urls.RUNS)
    return request.answer(page)


@router.get(urls.LOG_RAW)
def save_log(request: PageRequestDep, opened: OpenedDep) -> Response:
    """Respond with the log's raw bytes as a file."""
    if opened.log is None:
        raise PageMissingError("nothing was written yet")
    if opened.reader is not None:
        opened.reader.read(0, 1)  # raises for a pruned log, before the response begins
    name = quote(f"{opened.cell.name}-{opened.log.number}.log", safe="")
    saved = {"Content-Disposition": f"attachment; filename*=UTF-8''{name}"}
    pieces = raw_pieces(request.context.stores.logs, opened.log)
    return StreamingResponse(pieces, headers=saved, media_type="application/octet-stream")


_TEMPLATE = "log.html.j2"
_LINE = "log_line.html.j2"


def _data(
    opened: OpenedLog, lines: Sequence[ShownLine], search: LogSearchResult | None
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
        "sections": _sections(opened),
        "lines": [line.plain() for line in lines],
    }
    if search is not None:
        searched = {"line": search.line, "reached": search.reached, "is_over": search.is_over}
        told["found"] = searched
    return told


def _sections(opened: OpenedLog) -> list[Mapping[str, object]]:
    found = opened.reader.sections if opened.reader is not None else ()
    return [asdict(one) for one in found]


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
        "sections": _sections(opened),
        "attempt": number,
        "is_live": is_live,
        "size": size(log.size_bytes) if log is not None else "",
        "here": urls.log_url(run.id, cell.name),
        "raw": urls.with_query(urls.log_raw_url(run.id, cell.name), attempt=number),
        "stream": urls.with_query(urls.events_url(run.id), after=str(opened.events)),
    }


def _jobs(request: PageRequest, opened: OpenedLog) -> Mapping[str, object]:
    """Return links to the beginning of each job, and to the first failure."""
    if opened.reader is None or not opened.reader.sections:
        return {"jobs": [], "first_failure": ""}
    stores, run = request.context.stores, opened.run
    record = describe_cell(stores, opened.cell, stores.runs.spec(run.id), at=request.now)
    outcomes = {job.id: job.outcome for job in record.jobs}
    failed = {job for job, outcome in outcomes.items() if outcome in _FAILED}
    line = opened.reader.index.marks.first_failure(opened.total, failed)

    def link(to: int) -> str:
        return request.here(**{"line": str(to), "from": "", "go": ""})

    jobs = [
        JobLink(one.job, link(one.first), one.first, outcomes.get(one.job) or "running")
        for one in opened.reader.sections
    ]
    return {"jobs": jobs, "first_failure": link(line) if line else "", "failure_line": line or ""}


def _going_on(request: PageRequest, search: LogSearchResult | None) -> str:
    """Return the URL that continues an unfinished search."""
    if search is None or search.line is not None or search.is_over:
        return ""
    return request.here(line=str(search.reached))


def _sentence_of(search: LogSearchResult | None, query: LogQuery) -> str:
    if search is None or search.line is not None:
        return ""
    if not search.is_over:
        return f"Not found as far as line {search.reached:,}."
    if not query.line:
        return "Not in this log."
    return f"None {'before' if query.go == 'previous' else 'after'} line {query.line:,}."


def _links(
    request: PageRequest, opened: OpenedLog, window: LogWindow, lines: Sequence[ShownLine]
) -> Mapping[str, str]:
    """Return links to the previous and next lines, for paging without scripts."""
    last = lines[-1].number if lines else 0

    def link(first: int) -> str:
        return request.here(**{"from": str(first), "line": "", "go": ""})

    return {
        "earlier": link(max(1, window.first - window.count)) if window.first > 1 else "",
        "later": link(last + 1) if last and last < opened.total else "",
        "begin": link(1) if window.first > 1 else "",
        "end": request.here(**{"from": "", "line": "", "go": ""}) if last < opened.total else "",
    }
