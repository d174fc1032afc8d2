"""The page of all products: decisions of their gates, and outcomes by platform and day."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, timedelta

from fastapi import APIRouter, Response

from orchestrator.application.gate_status import GateStatus, gate_statuses
from orchestrator.dashboard import urls
from orchestrator.dashboard.pages.release_board_tables import some_jobs
from orchestrator.dashboard.responses import Page, PageRequestDep
from orchestrator.dashboard.table import (
    NOTED,
    Badge,
    CellList,
    Column,
    OutcomeMark,
    Row,
    Table,
    TableCell,
    Text,
)
from orchestrator.domain.vocabulary import term
from orchestrator.store.release_board import DayOutcome, NewestRun

RANGES = (14, 30)

router = APIRouter()


@router.get(urls.PRODUCTS)
def show_products(request: PageRequestDep) -> Response:
    """Show every product with its gates, and the outcomes by platform and day."""
    named = request.query.get("days", "")
    many = int(named) if named in map(str, RANGES) else RANGES[0]
    days = [request.now.date() - timedelta(days=back) for back in range(many)]
    releases = request.context.stores.releases
    newest = releases.newest_runs()
    outcomes = releases.days(since=request.now - timedelta(days=many))
    lacking = _lacking(outcomes)
    tables = (
        _products(newest, gate_statuses(request.context)),
        _days(newest, lacking, days),
    )
    words = dict.fromkeys(one.word for one in outcomes)
    noted = ["fewer jobs than the run before"] if any(lacking.values()) else []
    noted += ["ingested"] if any(one.origin for one in outcomes) else []
    facts = {
        "days": many,
        "ranges": RANGES,
        "signs": " · ".join(
            (
                *(f"{term(word).glyph} {term(word).word}" for word in words),
                *([f"{NOTED} {' or '.join(noted)}"] if noted else ()),
            )
        ),
    }
    page = Page(
        template="all_products.html.j2",
        title="Products",
        tables=tables,
        facts=facts,
        section=urls.PRODUCTS,
    )
    return request.answer(page)


def _products(newest: Sequence[NewestRun], statuses: Sequence[GateStatus]) -> Table:
    return Table(
        id="products",
        caption="Products",
        columns=(
            Column("product", "Product"),
            Column("gates", "Gates"),
            Column("newest", "Newest run"),
        ),
        rows=[_product(one, statuses) for one in newest],
        empty="Nothing has been launched yet.",
        command="seatrial init && seatrial run seatrial.yaml",
        is_caption_hidden=True,
    )


def _product(one: NewestRun, statuses: Sequence[GateStatus]) -> Row:
    board = urls.with_query(urls.BOARD, product=one.product)
    mine = [status for status in statuses if status.stored.product == one.product]
    notes = (some_jobs(one.jobs, one.jobs_before - one.jobs), "ingested" * one.is_ingested)
    gates: TableCell = CellList([_gate(status) for status in mine]) if mine else Text("–")
    return Row(
        (
            Text(one.product, board),
            gates,
            CellList(
                [
                    Badge(
                        one.word,
                        urls.run_url(one.run),
                        note=", ".join(filter(None, notes)),
                    ),
                    Text(one.version, note=one.matrix),
                ]
            ),
        )
    )


def _gate(status: GateStatus) -> TableCell:
    gate = status.stored.gate
    if not status.lines:
        return Text(gate, urls.gate_url(gate), note="no verdict yet")
    newest = status.lines[0].head.newest
    return Badge(newest.decision, urls.verdict_url(newest.id), note=gate)


def _days(
    newest: Sequence[NewestRun],
    lacking: Mapping[DayOutcome, frozenset[str]],
    days: Sequence[date],
) -> Table:
    by_place = {(one.product, one.cell, one.day): one for one in lacking}
    order = {one.product: place for place, one in enumerate(newest)}
    rows = sorted(
        dict.fromkeys((one.product, one.cell) for one in lacking),
        key=lambda place: (order.get(place[0], len(order)), place[1]),
    )
    return Table(
        id="grid",
        caption="The newest outcome of each platform and day (UTC), the worst of several matrices",
        columns=[
            Column("platform", "Platform"),
            *(Column(f"day.{day}", f"{day:%d %b}") for day in days),
        ],
        rows=[
            Row(
                (
                    Text(
                        cell, urls.with_query(urls.GRID, product=product, cell=cell), note=product
                    ),
                    *(_mark(by_place.get((product, cell, day)), lacking) for day in days),
                )
            )
            for product, cell in rows
        ],
        empty="No run of these days is over.",
        is_caption_hidden=True,
        is_grid=True,
    )


def _lacking(outcomes: Sequence[DayOutcome]) -> Mapping[DayOutcome, frozenset[str]]:
    """Return for each outcome the jobs that are missing compared with the matrix's day before."""
    before: dict[tuple[str, str, str], frozenset[str]] = {}
    lacking = {}
    for one in sorted(outcomes, key=lambda one: one.day):
        place = (one.product, one.cell, one.matrix)
        lacking[one] = before.get(place, frozenset()) - one.jobs
        before[place] = one.jobs
    return lacking


def _mark(
    day_outcome: DayOutcome | None, lacking: Mapping[DayOutcome, frozenset[str]]
) -> TableCell:
    if day_outcome is None:
        return OutcomeMark("")
    notes = (some_jobs(day_outcome.jobs, lacking[day_outcome]), day_outcome.origin)
    return OutcomeMark(
        day_outcome.word,
        href=urls.cell_url(day_outcome.run, day_outcome.cell),
        note=", ".join(filter(None, notes)),
    )
