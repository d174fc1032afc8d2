"""One benchmark over time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fastapi import APIRouter, Response

from orchestrator.application.benchmark_trend import BenchmarkTrend, Step, samples_of, trend_of
from orchestrator.dashboard import urls
from orchestrator.dashboard.labels import cut, visible
from orchestrator.dashboard.measurement_text import (
    Change,
    Measured,
    direction_of,
    honest,
    params_of,
    unit_of,
)
from orchestrator.dashboard.pages.benchmarks.plot import Scale, data_of, scale_of, still
from orchestrator.dashboard.products import chosen_product
from orchestrator.dashboard.responses import Asked, AskedDep, Format, Page, PageMissingError
from orchestrator.dashboard.table import Column, Moment, Number, Row, Table, Text
from orchestrator.store.benchmarks import Benchmark

RANGES = (60, 200, 1_000)
"""Newest runs that can be looked at."""
RANGE = 200
PAGE_SIZE = 50
_SHORT = 8
"""Digits of a fingerprint that tell environments of one page apart."""
_DIFFERENCES = 12
_STEPS = (
    Column("run", "Since"),
    Column("at", "When"),
    Column("before", "Level before", is_number=True),
    Column("after", "Level since", is_number=True),
    Column("change", "Change"),
    Column("p", "p", is_number=True),
    Column("environment", "Environment"),
)
_POINTS = (
    Column("run", "Run"),
    Column("at", "When"),
    Column("median", "Median", is_number=True),
    Column("environment", "Environment"),
)

router = APIRouter()


@dataclass(frozen=True, slots=True)
class Tab:
    """A choice of this page."""

    title: str
    href: str
    is_now: bool


@dataclass(frozen=True, slots=True)
class Shown:
    """What the page is of."""

    asked: Asked
    product: str
    benchmark: Benchmark
    platform: str
    trend: BenchmarkTrend
    scale: Scale

    @property
    def unit(self) -> str:
        """As it may be shown."""
        return unit_of(self.benchmark)


@router.get(f"{urls.BENCHMARKS}/{{job}}/{{metric:path}}")
def show_trend(
    asked: AskedDep,
    job: str,
    metric: str,
    platform: str = "",
    variant: str = "",
    runs: str = "",
    skip: int = 0,
) -> Response:
    """The chart, its change points, and every point in a table."""
    product = chosen_product(asked)
    store = asked.context.stores.benchmarks
    variants = store.variants(product, job, metric)
    benchmark = _variant(variants, variant, f"{job}/{metric}")
    platforms = store.platforms(benchmark.number)
    if platform and platform not in platforms:
        named = ", ".join(platforms) or "none"
        raise PageMissingError(f"no run on {platform!r} has measured it; there is: {named}")
    name = platform or next(iter(platforms), "")
    many = int(runs) if runs in map(str, RANGES) else RANGE
    trend = trend_of(asked.context, benchmark, platform=name, runs=many)
    is_data = asked.wanted is Format.JSON
    samples = samples_of(asked.context, trend) if is_data else {}
    shown = Shown(asked, product, benchmark, name, trend, scale_of(trend, samples))
    chart = data_of(trend, shown.scale, samples, shown.unit) if is_data else {}
    return asked.answer(
        Page(
            template="trend.html.j2",
            title=metric,
            tables=(_steps(shown), _points(shown, max(skip, 0))),
            facts=_facts(shown, platforms, variants, many),
            data={"chart": chart},
            section=urls.BENCHMARKS,
        )
    )


def _variant(variants: Sequence[Benchmark], named: str, name: str) -> Benchmark:
    for one in variants:
        if named in ("", str(one.number)):
            return one
    raise PageMissingError(
        f"no run of this product on a real machine has measured {name!r} so;"
        " /benchmarks lists what there is"
    )


def _facts(
    shown: Shown, platforms: Sequence[str], variants: Sequence[Benchmark], many: int
) -> dict[str, object]:
    asked, trend, benchmark = shown.asked, shown.trend, shown.benchmark
    return {
        "shown": shown,
        "trend": trend,
        "direction": direction_of(benchmark),
        "params": visible(cut(params_of(benchmark.params), 300)),
        "picture": still(trend, shown.scale),
        "low": honest(shown.scale.low, shown.scale.high - shown.scale.low),
        "high": honest(shown.scale.high, shown.scale.high - shown.scale.low),
        "platforms": [
            Tab(name, asked.here(platform=name, skip=""), name == shown.platform)
            for name in platforms
        ],
        "variants": [
            Tab(_differing(one), asked.here(variant=str(one.number), skip=""), one is benchmark)
            for one in variants
        ],
        "ranges": [
            Tab(f"{one:,} runs", asked.here(runs=str(one), skip=""), one == many) for one in RANGES
        ],
        "newest": _newest(shown),
        "environments": len({trend.cell(at).environment for at in range(len(trend.points))}),
    }


def _differing(one: Benchmark) -> str:
    told = (unit_of(one), one.direction, params_of(one.params))
    return visible(cut(" · ".join(word for word in told if word), 80)) or "without a unit"


def _newest(shown: Shown) -> dict[str, object] | None:
    if not shown.trend.points:
        return None
    at = len(shown.trend.points) - 1
    return {
        "measured": Measured(shown.trend.points[at], shown.unit),
        "cell": shown.trend.cell(at),
        "moment": Moment(shown.trend.cell(at).at),
        "level": shown.trend.levels[-1] if shown.trend.levels else None,
    }


def _steps(shown: Shown) -> Table:
    return Table(
        id="changes",
        caption="Change points, the newest first",
        columns=_STEPS,
        rows=[_step(shown, step) for step in reversed(shown.trend.steps)],
        empty=_steady(shown.trend),
        is_caption_hidden=True,
    )


def _steady(trend: BenchmarkTrend) -> str:
    if len(trend.points) < _SHORT:
        return f"There are {len(trend.points)} runs: a step can be seen in 8 or more."
    return "The level has not moved: no step of 2% or more stands out of the noise."


def _step(shown: Shown, step: Step) -> Row:
    change, trend = step.change, shown.trend
    cell, before = trend.cell(change.index), trend.cell(change.index - 1)
    href = urls.with_query(
        urls.COMPARE, a=before.run, b=cell.run, cell_a=before.cell, cell_b=cell.cell
    )
    spread = abs(change.after - change.before)
    word = {True: "worse", False: "better", None: "differs"}[step.is_worse]
    return Row(
        (
            Text(cell.version, href, "compare with the run before"),
            Moment(cell.at),
            Text(f"{honest(change.before, spread)} {shown.unit}"),
            Text(f"{honest(change.after, spread)} {shown.unit}"),
            Change(word, change.change),
            Number(float(f"{change.p:.1g}")),
            _environment(step),
        ),
        id=f"change-{change.index}",
    )


def _environment(step: Step) -> Text:
    if step.environment:
        shown = [f"{what} {old} → {new}" for what, old, new in step.environment[:_DIFFERENCES]]
        more = len(step.environment) - len(shown)
        return Text("; ".join([*shown, *([f"and {more} more"] if more > 0 else [])]))
    if step.change.environment_changed:
        return Text("another one; what differs was not told")
    return Text("the same" if step.is_known else "not known")


def _points(shown: Shown, skip: int) -> Table:
    trend, asked = shown.trend, shown.asked
    newest_first = range(len(trend.points) - 1, -1, -1)
    places = newest_first[skip : skip + PAGE_SIZE]
    more = skip + len(places) < len(trend.points)
    return Table(
        id="points",
        caption="Every run, the newest first",
        columns=_POINTS,
        rows=[_point(shown, at) for at in places],
        empty="No run that is done has measured it.",
        next=f"{asked.here(skip=str(skip + PAGE_SIZE))}#points" if more else "",
        total=len(trend.points),
        is_caption_hidden=True,
    )


def _point(shown: Shown, at: int) -> Row:
    cell = shown.trend.cell(at)
    steps = [step for step in shown.trend.steps if step.change.index == at]
    environment = cell.environment[:_SHORT] or "not known"
    return Row(
        (
            Text(cell.version, urls.cell_url(cell.run, cell.cell), cell.run),
            Moment(cell.at),
            Measured(shown.trend.points[at], shown.unit),
            Text(
                environment,
                note="another one than before" if shown.trend.is_apart(at) else "",
                is_code=bool(cell.environment),
            ),
        ),
        tone="warn" if steps else "",
    )
