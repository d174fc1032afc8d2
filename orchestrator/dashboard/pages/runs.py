"""Every run, newest first."""

from __future__ import annotations

from fastapi import APIRouter, Response

from orchestrator.application.list_runs import ListedRun, list_runs
from orchestrator.dashboard import urls
from orchestrator.dashboard.answer import Asked, AskedDep, Page
from orchestrator.dashboard.table import Badge, Column, Moment, Row, Span, Table, Tally, Text, Usd

PAGE_SIZE = 50
_COLUMNS = (
    Column("run", "Run"),
    Column("outcome", "Outcome"),
    Column("subject", "Subject"),
    Column("matrix", "Matrix"),
    Column("tests", "Tests"),
    Column("duration_s", "Took", is_number=True),
    Column("cost_usd", "Cost", is_number=True),
    Column("launched_at", "Launched"),
)

router = APIRouter()


@router.get(urls.RUNS)
def show_runs(asked: AskedDep, before: str = "") -> Response:
    """A page of them."""
    runs, following = list_runs(
        asked.context.stores, limit=PAGE_SIZE, before=before or None, at=asked.now
    )
    table = Table(
        id="runs",
        caption="Runs, newest first",
        columns=_COLUMNS,
        rows=[_row(asked, run) for run in runs],
        empty="No run has been launched yet.",
        command="seatrial run matrices/local.yaml",
        next=asked.here(before=following) if following else "",
        is_caption_hidden=True,
    )
    return asked.answer(
        Page(template="runs.html.j2", title="Runs", tables=(table,), section=urls.RUNS)
    )


def _row(asked: Asked, listed: ListedRun) -> Row:
    run = listed.run
    href = urls.run_url(run.id)
    took = (run.finished_at or asked.now) - run.created_at
    return Row(
        (
            Text(run.id, href, is_code=True),
            Badge(run.outcome or run.state, href),
            Text(run.subject_name, note=run.subject_version),
            Text(run.matrix_name),
            Tally(listed.counts, href),
            Span(took.total_seconds()),
            Usd(listed.cost_usd),
            Moment(run.created_at),
        )
    )
