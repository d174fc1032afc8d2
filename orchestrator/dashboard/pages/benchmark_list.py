"""The list of a product's benchmarks, the largest worsening first."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import APIRouter, Response

from orchestrator.application.benchmarks import (
    BenchmarkFilter as Wanted,
)
from orchestrator.application.benchmarks import (
    BenchmarkPage,
    BenchmarkStatus,
    LevelChange,
    list_benchmarks,
)
from orchestrator.dashboard import urls
from orchestrator.dashboard.charts import Picture, sparkline
from orchestrator.dashboard.labels import cut, visible
from orchestrator.dashboard.measurement_text import (
    MedianText,
    RelativeChange,
    direction_of,
    honest,
    params_of,
    unit_of,
)
from orchestrator.dashboard.responses import (
    Page,
    PageMissingError,
    PageRequest,
    PageRequestDep,
    of_products,
    products,
)
from orchestrator.dashboard.table import (
    Column,
    Moment,
    PictureCell,
    Row,
    Tab,
    Table,
    TableCell,
    Text,
)
from orchestrator.domain.units import plural
from orchestrator.domain.vocabulary import term

RUNS = 30
"""Number of newest runs that the list covers."""
PAGE_SIZE = 50
_LEAST_SPAN = 0.04
"""Minimum height of a sparkline as a fraction of its values, so that noise stays small."""
_COLUMNS = (
    Column("benchmark", "Benchmark"),
    Column("platform", "Platform"),
    Column("newest", "Newest", is_number=True),
    Column("change", "Level"),
    Column("runs", f"Last {RUNS} runs"),
    Column("measured_at", "Measured"),
)

router = APIRouter()


@router.get(urls.BENCHMARKS)
def show_benchmarks(
    request: PageRequestDep,
    job: str = "",
    q: str = "",
    platform: str = "",
    moved: str = "",
    skip: int = 0,
) -> Response:
    """Show a page of the product's benchmarks."""
    if moved and moved not in list(LevelChange):
        raise PageMissingError(f"benchmarks are {', '.join(LevelChange)}; none is {moved!r}")
    known = products(request)
    product = of_products(request, known)
    wanted = Wanted(job=job, contains=q.strip(), platform=platform, moved=moved)
    first = max(skip, 0)
    listed = list_benchmarks(
        request.context, product, wanted, runs=RUNS, limit=PAGE_SIZE, skip=first
    )
    facts = {
        "product": product,
        "products": known,
        "jobs": request.context.stores.benchmarks.jobs(product),
        "platforms": listed.platforms,
        "wanted": wanted,
        "tabs": _tabs(request, listed, moved),
        "runs": RUNS,
    }
    return request.answer(
        Page(
            template="benchmarks.html.j2",
            title="Benchmarks",
            tables=(_table(request, listed, product, first),),
            facts=facts,
            section=urls.BENCHMARKS,
        )
    )


def _tabs(request: PageRequest, listed: BenchmarkPage, moved: str) -> Sequence[Tab]:
    whole = Tab("All", sum(listed.counts.values()), request.here(moved="", skip=""), not moved)
    shown = [
        kind for kind in LevelChange if listed.counts[kind] or kind in (LevelChange.WORSE, moved)
    ]
    return [
        whole,
        *(
            Tab(
                term(kind).word.capitalize(),
                listed.counts[kind],
                request.here(moved=kind, skip=""),
                kind == moved,
                term(kind).tone if listed.counts[kind] else "",
            )
            for kind in shown
        ),
    ]


def _table(request: PageRequest, listed: BenchmarkPage, product: str, skip: int) -> Table:
    more = skip + len(listed.items) < listed.total
    return Table(
        id="benchmarks",
        caption="Benchmarks, what got worse by most first",
        columns=_COLUMNS,
        rows=[_row(listed, at, product) for at in range(len(listed.items))],
        empty=_empty(request),
        command="" if product or _is_narrowed(request) else _FIRST_RUN,
        next=request.here(skip=str(skip + PAGE_SIZE)) if more else "",
        total=listed.total,
        is_caption_hidden=True,
    )


_FIRST_RUN = "seatrial init && seatrial run seatrial.yaml"


def _is_narrowed(request: PageRequest) -> bool:
    return any(request.query.get(name) for name in ("job", "q", "platform", "moved", "skip"))


def _empty(request: PageRequest) -> str:
    if _is_narrowed(request):
        return "No benchmark is like that: take a word or a choice away."
    return (
        "No run on a real machine that is done has measured anything. A job states a metric"
        " in a line of $SEATRIAL_EVENTS."
    )


def _row(listed: BenchmarkPage, at: int, product: str) -> Row:
    going = listed.items[at]
    benchmark, newest = going.benchmark, listed.cells[going.cells[-1]]
    href = urls.with_query(
        urls.benchmark_url(benchmark.job, benchmark.name),
        product=product,
        platform=going.platform,
        variant=str(benchmark.number),
    )
    params = params_of(benchmark.params) if benchmark.name in listed.several else ""
    told = (benchmark.job, params, direction_of(benchmark))
    return Row(
        (
            Text(benchmark.name, href, " · ".join(word for word in told if word)),
            Text(going.platform),
            MedianText(listed.newest[at], unit_of(benchmark)),
            _change(listed, going),
            _line(listed, going),
            Moment(newest.at),
        ),
        tone="bad" if going.moved is LevelChange.WORSE else "",
    )


def _change(listed: BenchmarkPage, going: BenchmarkStatus) -> TableCell:
    if going.change is None:
        return RelativeChange(going.moved.value, None)
    since = listed.cells[going.cells[going.change.index]]
    aside = f"since {visible(cut(since.version, 40))}"
    if going.change.environment_changed:
        aside += ", with another environment"
    return RelativeChange(going.moved.value, going.change.change, aside)


def _line(listed: BenchmarkPage, going: BenchmarkStatus) -> PictureCell:
    low, high = min(going.values), max(going.values)
    lack = max(0.0, _LEAST_SPAN * abs(going.values[-1]) - (high - low)) / 2
    unit = unit_of(going.benchmark)
    spread = high - low
    return PictureCell(
        _picture(listed, going, low - lack, high + lack),
        going.values,
        f"{plural(len(going.values), 'run')}, "
        f"{honest(low, spread)} to {honest(high, spread)} {unit}",
    )


def _picture(listed: BenchmarkPage, going: BenchmarkStatus, low: float, high: float) -> Picture:
    """Draw a sparkline; points of different environments are not connected."""
    values: list[float | None] = []
    before = None
    for cell, value in zip(going.cells, going.values, strict=True):
        environment = listed.cells[cell].environment
        if before not in (None, environment):
            values.append(None)
        values.append(value)
        before = environment
    return sparkline(values, low=low, high=high)
