"""The page of a cell, and the one of a single result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from orchestrator.application.describe_run import describe_cell
from orchestrator.application.ports.read_models import TestLine, TestsAsked
from orchestrator.application.reused_results import by_source
from orchestrator.dashboard import urls
from orchestrator.dashboard.labels import visible
from orchestrator.dashboard.pages.cell import evidence
from orchestrator.dashboard.pages.cell.results import PAGE_SIZE, test_table
from orchestrator.dashboard.pages.run.cells import shown_counts
from orchestrator.dashboard.pages.run.content import EXPORTS
from orchestrator.dashboard.pages.run.jobs import cell_jobs
from orchestrator.dashboard.path_lookup import cell_of, run_of
from orchestrator.dashboard.responses import Asked, AskedDep, Format, Page, PageMissingError
from orchestrator.dashboard.table import Tally
from orchestrator.domain.cell import Cell, CellState, Run
from orchestrator.domain.outcome import TestOutcome
from orchestrator.domain.run_record import CellRecord
from orchestrator.domain.vocabulary import term

_EVENTS = "cell evidence run end"
_LONGEST_TEXT = 200_000
"""Characters of a traceback; the JUnit export has all of them."""
_ORDER = (
    *(TestOutcome.FAILED, TestOutcome.ERROR, TestOutcome.MISSING, TestOutcome.NOT_RUN),
    *(TestOutcome.PASSED, TestOutcome.SKIPPED, TestOutcome.XFAILED, TestOutcome.XPASSED),
)
_OUTCOMES = {one.word: one for one in _ORDER}

router = APIRouter()


@dataclass(frozen=True, slots=True)
class Choice:
    """Which tests are looked at, as the form shows it again."""

    outcome: str = ""
    job: str = ""
    contains: str = ""

    @property
    def asked(self) -> TestsAsked:
        """As the store takes it."""
        outcome = _OUTCOMES.get(self.outcome)
        return TestsAsked(outcome=outcome, job=self.job, contains=self.contains)


@router.get(urls.RUNS + "/{run}/cells/{cell}")
def show_cell(
    asked: AskedDep,
    run: str,
    cell: str,
    outcome: str = "",
    job: str = "",
    contains: Annotated[str, Query(max_length=500)] = "",
    after: str = "",
) -> Response:
    """Its tests, the worst first, and what else is known of it."""
    found_run = run_of(asked, run)
    found = cell_of(asked, found_run, cell)
    if found_run.id != run and asked.wanted is Format.HTML:
        return asked.go(urls.with_query(urls.cell_url(found_run.id, cell), **asked.query))
    chosen = Choice(outcome.strip(), job.strip(), contains.strip())
    return asked.answer(_page(asked, found_run, found, chosen, after))


def _page(asked: Asked, run: Run, cell: Cell, chosen: Choice, after: str) -> Page:
    stores = asked.context.stores
    seen = stores.feed.last(run.id)
    record = describe_cell(stores, cell, stores.runs.spec(run.id), at=asked.now)
    lines = stores.results.worst_first(
        cell.id, _lent(asked, cell), chosen.asked, limit=PAGE_SIZE, after=after
    )
    whole = asked.wanted is not Format.HTML
    tables = (
        test_table(asked, run, cell, lines, is_filtered=chosen != Choice()),
        cell_jobs(run, record, asked.now),
        evidence.check_table(record),
        evidence.metric_table(record, whole=whole),
        evidence.artifact_table(run.id, record),
        evidence.fact_table(record),
        evidence.package_table(record),
    )
    facts = {
        "run": run,
        "cell": record,
        "is_over": record.state is CellState.DONE,
        "tally": Tally(shown_counts(record)),
        "chosen": chosen,
        "is_filtered": chosen != Choice(),
        "outcomes": [(one.word, term(one.word).word) for one in _ORDER],
        "tables": {table.id: table for table in tables},
        "said": evidence.said_of(record),
        "why": _why(record),
        "events": urls.with_query(urls.events_url(run.id), after=str(seen)),
        "event_kinds": _EVENTS,
        "exports": [(name, urls.export_url(run.id, name, cell.name)) for name in EXPORTS],
        "report": urls.report_url(run.id, "platform", cell.name),
        "log": urls.log_url(run.id, cell.name),
    }
    title = f"{cell.name} · {run.subject_name} {run.subject_version}"
    return Page(template="cell.html.j2", title=title, tables=tables, facts=facts, section=urls.RUNS)


@router.get(urls.RUNS + "/{run}/cells/{cell}/tests/{test}")
def show_result(
    asked: AskedDep, run: str, cell: str, test: Annotated[int, Path(ge=0, le=2**31 - 1)]
) -> Response:
    """How one test went there, with its whole text."""
    found_run = run_of(asked, run)
    found = cell_of(asked, found_run, cell)
    told = asked.context.stores.results.line(found.id, _lent(asked, found), test)
    if told is None:
        raise PageMissingError(f"cell {cell!r} of run {found_run.id} has no test {test}")
    line, text = told
    shown = visible(text[:_LONGEST_TEXT])
    facts = {
        "run": found_run,
        "cell": found,
        "line": line,
        "shown": shown,
        "hidden": max(0, len(text) - _LONGEST_TEXT),
        "earlier": [outcome.word for outcome in line.earlier],
    }
    page = Page(
        template="result.html.j2",
        title=line.nodeid,
        facts=facts,
        data=_data(line, text, shown),
        section=urls.RUNS,
    )
    return asked.answer(page)


def _data(line: TestLine, text: str, shown: str) -> dict[str, object]:
    return {
        "test": line.test_id,
        "job": line.job,
        "nodeid": line.nodeid,
        "outcome": line.outcome.word,
        "earlier": [outcome.word for outcome in line.earlier],
        "duration_s": line.duration_s,
        "reason": line.reason,
        "message": line.message,
        "signature": line.signature,
        "text": text,
        "shown": shown,
    }


def _lent(asked: Asked, cell: Cell) -> dict[str, tuple[str, ...]]:
    return by_source(asked.context.stores.proofs.decided(cell.id))


def _why(record: CellRecord) -> str:
    word = record.reason.replace("_", " ")
    return ": ".join(part for part in (word, record.detail) if part)
