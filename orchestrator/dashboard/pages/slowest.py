"""The slowest tests of a run, compared with their earlier durations."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import APIRouter, Response

from orchestrator.dashboard import urls
from orchestrator.dashboard.charts import sparkline
from orchestrator.dashboard.measurement_text import percent
from orchestrator.dashboard.responses import Page, PageRequestDep, run_of
from orchestrator.dashboard.table import (
    Badge,
    Column,
    PictureCell,
    Row,
    Span,
    Table,
    TableCell,
    Text,
    named_test,
)
from orchestrator.domain.compare_tests import TestDuration
from orchestrator.domain.units import duration

SHOWN = 50
_COLUMNS = (
    Column("test", "Test"),
    Column("cell", "Cell"),
    Column("outcome", "Outcome"),
    Column("took_s", "Duration", is_number=True),
    Column("usual_s", "Usually", is_number=True),
    Column("change", "Change", is_number=True),
    Column("trend_s", "Over time"),
)

router = APIRouter()


@router.get(urls.RUNS + "/{run}/slowest")
def show_slowest(request: PageRequestDep, run: str) -> Response:
    """Show the slowest tests of the run."""
    found = run_of(request, run)
    tests = request.context.stores.durations.slowest(found.id, limit=SHOWN)
    table = Table(
        id="slowest",
        caption="Slowest tests",
        columns=_COLUMNS,
        rows=[_row(found.id, one) for one in tests],
        empty="No test of the run has a duration.",
        command=f"seatrial slowest {found.id}",
        is_caption_hidden=True,
    )
    page = Page(
        template="slowest.html.j2",
        title="Slowest tests",
        tables=(table,),
        facts={"run": found},
        section=urls.RUNS,
    )
    return request.answer(page)


def _row(run: str, one: TestDuration) -> Row:
    usual, change = one.usual_s, one.change
    return Row(
        (
            named_test(one.nodeid, one.job, urls.test_url(one.test_id)),
            Text(one.cell, urls.cell_url(run, one.cell)),
            Badge(one.outcome, urls.result_url(run, one.cell, one.test_id)),
            Span(one.duration_s),
            Span(usual),
            Text(percent(change) if change is not None else ""),
            _trend(one.cell, (*one.earlier_s, one.duration_s)),
        ),
        tone="warn" if one.is_much_slower else "",
    )


def _trend(cell: str, took: Sequence[float]) -> TableCell:
    if len(took) < 2:
        return Text("–")
    label = f"{cell}: from {duration(min(took))} to {duration(max(took))}"
    picture = sparkline(took, low=0, high=max(took) or 1.0, height=20)
    return PictureCell(picture, list(took), label)
