"""Every run, newest first."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from fastapi import APIRouter, Response

from orchestrator.application.describe_run import ListedRun, list_runs
from orchestrator.dashboard import urls
from orchestrator.dashboard.responses import Page, PageRequest, PageRequestDep, cursor_of
from orchestrator.dashboard.table import (
    Badge,
    Column,
    Moment,
    Row,
    Span,
    Table,
    TestCounts,
    Text,
    Usd,
)
from orchestrator.domain.cell import Cell, CellState, Run, RunState
from orchestrator.domain.outcome import Counts, Outcome
from orchestrator.domain.run_record import note_of_run
from orchestrator.domain.vocabulary import term
from orchestrator.store.runs import RunsAsked

PAGE_SIZE = 50
_MOST_CELLS = 2
_SHORT = 13
"""Shown characters of a run's id: enough to distinguish the runs of a night."""
_SHORT_COMMIT = 7
_CURSOR = re.compile(r"[!-~]{1,200}")
_COLUMNS = (
    Column("run", "Run"),
    Column("launched_at", "Launched"),
    Column("outcome", "Outcome"),
    Column("subject", "Subject"),
    Column("matrix", "Matrix"),
    Column("tests", "Tests"),
    Column("duration_s", "Duration", is_number=True),
    Column("cost_usd", "Cost", is_number=True),
    Column("cells_passed", "Cells passed"),
)
_OUTCOMES = (
    RunState.RUNNING,
    *(one for one in Outcome if one is not Outcome.NOT_RUN),
)
_LOUD = {Outcome.FAILED: "bad", Outcome.TIMED_OUT: "bad", Outcome.ERRORED: "bad"}

router = APIRouter()


@router.get(urls.RUNS)
def show_runs(
    request: PageRequestDep,
    outcome: str = "",
    subject: str = "",
    version: str = "",
    matrix: str = "",
    commit: str = "",
    branch: str = "",
    author: str = "",
) -> Response:
    """Show a page of runs."""
    wanted = outcome.strip()
    chosen = RunsAsked(
        outcome=next((one for one in Outcome if one.value == wanted), None),
        state=next((one for one in RunState if one.value == wanted), None),
        subject=subject.strip(),
        version=version.strip(),
        matrix=matrix.strip(),
        commit=commit.strip(),
        branch=branch.strip(),
        author=author.strip(),
    )
    stores, now = request.context.stores, request.now
    cursor = cursor_of(request, _CURSOR)
    runs, following = list_runs(stores, limit=PAGE_SIZE, before=cursor, at=now, filters=chosen)
    facts = {
        "chosen": chosen,
        "is_filtered": chosen != RunsAsked(),
        "names": stores.runs.names(),
        "outcomes": [(one.value, term(one.value).word) for one in _OUTCOMES],
        "has_changes": any(one.run.commit.is_dirty for one in runs),
    }
    table = _table(request, chosen, runs, following)
    page = Page(
        template="runs.html.j2", title="Runs", tables=(table,), facts=facts, section=urls.RUNS
    )
    return request.answer(page)


def _table(
    request: PageRequest, chosen: RunsAsked, runs: Sequence[ListedRun], following: str | None
) -> Table:
    empty, command = "No run has been launched yet.", "seatrial init && seatrial run seatrial.yaml"
    if chosen != RunsAsked():
        empty, command = "No run is like that. Ask for less, or for all of them.", ""
    return Table(
        id="runs",
        caption="Runs, newest first",
        columns=_COLUMNS,
        rows=[_row(request, run) for run in runs],
        empty=empty,
        command=command,
        next=request.here(before=following) if following else "",
        is_caption_hidden=True,
    )


def _row(request: PageRequest, listed: ListedRun) -> Row:
    run = listed.run
    href = urls.run_url(run.id)
    return Row(
        (
            Text(run.id, href, _commit(run), is_code=True, short=f"{run.id[:_SHORT]}…"),
            Moment(run.created_at),
            Badge(run.outcome or run.state, note=_note(listed)),
            Text(run.subject_name, note=run.subject_version),
            Text(run.matrix_name),
            TestCounts(so_far(listed.counts, run), is_partial=run.outcome is Outcome.ERRORED),
            Span(listed.seconds),
            Usd.of(listed.cost),
            _cells(listed.cells),
        ),
        tone=_LOUD.get(run.outcome, "") if run.outcome else "",
    )


def _commit(run: Run) -> str:
    """Return the short commit and the branch: ``b981933 topic``."""
    commit = run.commit
    short = commit.sha[:_SHORT_COMMIT] + ("+" if commit.sha and commit.is_dirty else "")
    return " ".join(word for word in (short, commit.branch) if word)


def so_far(counts: Counts, run: Run) -> Counts:
    """Return the counts; in an unfinished run, missing tests are not counted as missing."""
    return counts if run.state is RunState.FINISHED else replace(counts, missing=0)


def _note(listed: ListedRun) -> str:
    run = listed.run
    if run.state is not RunState.FINISHED and run.cancel_requested_at is not None:
        return "cancelling"
    return note_of_run(run, listed.counts)


def _cells(cells: Sequence[Cell]) -> Text:
    """Return the number of cells, and those that did not pass."""
    done = [cell for cell in cells if cell.state is CellState.DONE]
    passed = sum(cell.outcome is Outcome.PASSED for cell in done)
    other = [cell for cell in done if cell.outcome not in (Outcome.PASSED, None)]
    worst = sorted(other, key=lambda cell: list(Outcome).index(cell.outcome or Outcome.PASSED))
    told = [f"{cell.name} {term(cell.outcome or '').word}" for cell in reversed(worst)]
    if len(told) > _MOST_CELLS:
        told = [*told[:_MOST_CELLS], f"{len(told) - _MOST_CELLS} more"]
    if len(done) < len(cells):
        told.insert(0, f"{len(cells) - len(done)} under way")
    return Text(f"{passed} of {len(cells)}", note=", ".join(told))
