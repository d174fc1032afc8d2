"""The tests of a cell as a table."""

from __future__ import annotations

from orchestrator.application.ports.read_models import TestLine, TestLines
from orchestrator.dashboard import urls
from orchestrator.dashboard.responses import Asked
from orchestrator.dashboard.table import Badge, Column, Row, Span, Table, Text, Trace
from orchestrator.domain.cell import Cell, CellState, Run
from orchestrator.domain.outcome import TestOutcome
from orchestrator.domain.vocabulary import term

PAGE_SIZE = 100
_COLUMNS = (
    Column("test", "Test"),
    Column("outcome", "Outcome"),
    Column("message", "Message"),
    Column("signature", "Failure"),
    Column("duration_s", "Took", is_number=True),
)
_BAD = (TestOutcome.FAILED, TestOutcome.ERROR)


def test_table(asked: Asked, run: Run, cell: Cell, lines: TestLines, *, is_filtered: bool) -> Table:
    """A page of them, the worst first."""
    empty = "No test of the cell is like that." if is_filtered else "No test was collected so far."
    return Table(
        id="tests",
        caption="Tests, the worst first",
        columns=_COLUMNS,
        rows=[_row(run, cell, line) for line in lines.lines],
        next=asked.here(after=lines.next) if lines.next else "",
        empty=empty,
        is_caption_hidden=True,
    )


test_table.__test__ = False  # type: ignore[attr-defined]


def _row(run: Run, cell: Cell, line: TestLine) -> Row:
    here = urls.result_url(run.id, cell.name, line.test_id)
    first = line.message.partition("\n")[0]
    said_words = ": ".join(part for part in (line.reason.replace("_", " "), first) if part)
    message = (
        Trace(said_words or "traceback", here, f"{here}.json")
        if line.has_text
        else Text(said_words)
    )
    failure = urls.signature_url(line.signature) if line.signature else ""
    return Row(
        (
            Text(line.nodeid, urls.test_url(line.test_id), note=line.job, is_code=True),
            Badge(_word(line, cell), here, note=_earlier(line)),
            message,
            Text(line.signature, failure, is_code=bool(line.signature)),
            Span(line.duration_s if line.outcome is not TestOutcome.NOT_RUN else None),
        ),
        tone="bad" if line.outcome in _BAD else "",
    )


def _word(line: TestLine, cell: Cell) -> str:
    """While the cell is at work, a test without a report is awaited, and not missing."""
    is_awaited = line.outcome is TestOutcome.MISSING and cell.state is not CellState.DONE
    return "queued" if is_awaited else line.outcome.word


def _earlier(line: TestLine) -> str:
    if not line.earlier:
        return ""
    return f"before: {', '.join(term(one.word).word for one in line.earlier)}"
