"""The trend of one benchmark: its page and its plot."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from fastapi import APIRouter, Response

from orchestrator.application.benchmarks import (
    BenchmarkTrend,
    Level,
    Step,
    samples_of,
    trend_of,
)
from orchestrator.dashboard import urls
from orchestrator.dashboard.charts import Picture, Shape
from orchestrator.dashboard.labels import cut, visible
from orchestrator.dashboard.measurement_text import (
    MedianText,
    RelativeChange,
    direction_of,
    honest,
    params_of,
    percent,
    unit_of,
)
from orchestrator.dashboard.responses import (
    Format,
    Page,
    PageMissingError,
    PageRequest,
    PageRequestDep,
    chosen_product,
)
from orchestrator.dashboard.table import Column, Moment, Number, Row, Table, Text
from orchestrator.domain.units import plural
from orchestrator.store.benchmarks import Benchmark

WIDTH = 960
HEIGHT = 260
_EDGE = 6
_PAD = 0.06
"""Margin above and below the values, as a fraction of their range."""
_FAR = 1.5
"""Samples beyond this multiple of the medians' range are not drawn."""
_MOST_MARKS = 12
_NUMBERS = re.compile(r"\d+(\.\d+)*")


@dataclass(frozen=True, slots=True)
class Scale:
    """The values at the edges of a picture."""

    low: float
    high: float
    first_s: float
    """Time of the first point in seconds since the epoch; `last_s` is that of the last one."""
    last_s: float
    outside: int
    """Number of samples beyond the edges."""


def scale_of(trend: BenchmarkTrend, samples: Mapping[int, Sequence[float]]) -> Scale:
    """Return the scale of the values, which need not contain zero."""
    low = min((point.low for point in trend.points), default=0.0)
    high = max((point.high for point in trend.points), default=1.0)
    far = _FAR * (high - low)
    every = [sample for some in samples.values() for sample in some]
    near = [sample for sample in every if low - far <= sample <= high + far]
    low, high = min([low, *near]), max([high, *near])
    pad = _PAD * (high - low) or abs(high) * _PAD or 1.0
    times = [trend.cell(at).at.timestamp() for at in range(len(trend.points))]
    first, last = min(times, default=0.0), max(times, default=1.0)
    return Scale(low - pad, high + pad, first, last, len(every) - len(near))


def marks_of(trend: BenchmarkTrend) -> Sequence[tuple[int, str]]:
    """Return the first points of versions; of releases or release lines if there are many."""
    versions = [trend.cell(at).version for at in range(len(trend.points))]
    for shorter in (str, _release, _line):
        named = [shorter(version) for version in versions]
        steps = enumerate(pairwise(named), start=1)
        found = [(at, new) for at, (old, new) in steps if new and new != old]
        if len(found) <= _MOST_MARKS:
            return found
    return []


def _release(version: str) -> str:
    """Return the release of a version: ``2.7.0`` of ``2.7.0rc1`` and ``2.7.0.dev3``."""
    found = _NUMBERS.match(version)
    return found[0] if found else ""


def _line(version: str) -> str:
    """Return the release line of a version: ``2.7`` of ``2.7.1``."""
    return ".".join(_release(version).split(".")[:2])


def data_of(
    trend: BenchmarkTrend, scale: Scale, samples: Mapping[int, Sequence[float]], unit: str
) -> dict[str, object]:
    """Return the data from which the browser draws the chart."""
    return {
        "unit": unit,
        "y": [scale.low, scale.high],
        "points": _points(trend, samples, unit),
        "levels": [
            {"first": one.first, "last": one.last, "low": one.low, "high": one.high}
            for one in trend.levels
        ],
        "changes": [
            {
                "index": step.change.index,
                "change": step.change.change,
                "p": step.change.p,
                "said": percent(step.change.change),
                "tone": {True: "bad", False: "good", None: "busy"}[step.is_worse],
            }
            for step in trend.steps
        ],
        "versions": [{"index": at, "version": version} for at, version in marks_of(trend)],
    }


def _points(
    trend: BenchmarkTrend, samples: Mapping[int, Sequence[float]], unit: str
) -> Sequence[Mapping[str, object]]:
    numbers: dict[str, int] = {}
    found = []
    for at, point in enumerate(trend.points):
        cell = trend.cell(at)
        told = {
            "run": cell.run,
            "version": cell.version,
            "at": cell.at.timestamp(),
            "value": point.value,
            "low": point.low,
            "high": point.high,
            "n": point.samples,
            "environment": numbers.setdefault(cell.environment, len(numbers)),
            "said": f"{honest(point.value, point.high - point.low)} {unit}".rstrip(),
            "samples": samples.get(point.cell, ()),
        }
        found.append(told)
    return found


def still(trend: BenchmarkTrend, scale: Scale) -> Picture:
    """Return the chart without scripts: bands, lines within an environment, and level steps."""
    draw = _Still(trend, scale)
    shapes = (*draw.bands(), *draw.marks(), *draw.lines(), *draw.steps())
    return Picture(WIDTH, HEIGHT, tuple(shapes), "plot")


class _Still:
    """Converts the points of a trend to SVG shapes."""

    def __init__(self, trend: BenchmarkTrend, scale: Scale) -> None:
        self._trend, self._scale = trend, scale

    def _x(self, at: int) -> float:
        scale = self._scale
        span = scale.last_s - scale.first_s
        share = (self._trend.cell(at).at.timestamp() - scale.first_s) / span if span else 0.5
        return _EDGE + (WIDTH - 2 * _EDGE) * share

    def _y(self, value: float) -> float:
        scale = self._scale
        return HEIGHT * (1 - (value - scale.low) / (scale.high - scale.low))

    def bands(self) -> Iterator[Shape]:
        """Yield the bands that hold 90 % of a level's values."""
        return map(self._band, self._trend.levels)

    def _band(self, level: Level) -> Shape:
        left, right = self._x(level.first), self._x(level.last)
        top, bottom = self._y(level.high), self._y(level.low)
        sizes = {"x": left, "y": top, "width": max(right - left, 2), "height": bottom - top}
        return Shape("rect", "band", _written(sizes))

    def marks(self) -> Iterator[Shape]:
        """Yield marks of the first points of versions."""
        for at, _ in marks_of(self._trend):
            yield self._upright(at, "axis")

    def lines(self) -> Iterator[Shape]:
        """Return the line segments; each stays within one environment."""
        some: list[int] = []
        for at in range(len(self._trend.points)):
            if self._trend.is_apart(at):
                yield from self._line(some)
                some = []
            some.append(at)
        yield from self._line(some)

    def _line(self, some: Sequence[int]) -> Iterator[Shape]:
        places = [(self._x(at), self._y(self._trend.points[at].value)) for at in some]
        if len(places) > 1:
            path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
            yield Shape("polyline", "line", (("points", path),))
        for x, y in places if len(places) == 1 else ():
            yield Shape("circle", "line", _written({"cx": x, "cy": y, "r": 2.0}))

    def steps(self) -> Iterator[Shape]:
        """Yield marks of changed levels."""
        for step in self._trend.steps:
            tone = {True: "step bad", False: "step good", None: "step"}[step.is_worse]
            yield self._upright(step.change.index, tone)

    def _upright(self, at: int, tone: str) -> Shape:
        x = self._x(at)
        return Shape("line", tone, _written({"x1": x, "y1": 0.0, "x2": x, "y2": HEIGHT}))


def _written(sizes: Mapping[str, float]) -> tuple[tuple[str, str], ...]:
    return tuple((name, f"{size:.1f}") for name, size in sizes.items())


RANGES = (60, 200, 1_000)
"""Choices for the number of newest runs."""
RANGE = 200
PAGE_SIZE = 50
_SHORT = 8
"""Digits of a fingerprint shown to distinguish environments."""
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
class TrendTab:
    """A choice of this page."""

    title: str
    href: str
    is_now: bool


@dataclass(frozen=True, slots=True)
class Shown:
    """The benchmark, platform and scale that the page shows."""

    asked: PageRequest
    product: str
    benchmark: Benchmark
    platform: str
    trend: BenchmarkTrend
    scale: Scale

    @property
    def unit(self) -> str:
        """Return the unit as it is displayed."""
        return unit_of(self.benchmark)


@router.get(f"{urls.BENCHMARKS}/{{job}}/{{metric:path}}")
def show_trend(
    request: PageRequestDep,
    job: str,
    metric: str,
    platform: str = "",
    variant: str = "",
    runs: str = "",
    skip: int = 0,
) -> Response:
    """Show a benchmark's chart, its change points, and a table of its points."""
    product = chosen_product(request)
    store = request.context.stores.benchmarks
    variants = store.variants(product, job, metric)
    benchmark = _variant(variants, variant, f"{job}/{metric}")
    platforms = store.platforms(benchmark.number)
    if platform and platform not in platforms:
        named = ", ".join(platforms) or "none"
        raise PageMissingError(f"no run on {platform!r} has measured it; there is: {named}")
    name = platform or next(iter(platforms), "")
    many = int(runs) if runs in map(str, RANGES) else RANGE
    trend = trend_of(request.context, benchmark, platform=name, runs=many)
    is_data = request.wanted is Format.JSON
    samples = samples_of(request.context, trend) if is_data else {}
    shown = Shown(request, product, benchmark, name, trend, scale_of(trend, samples))
    chart = data_of(trend, shown.scale, samples, shown.unit) if is_data else {}
    return request.answer(
        Page(
            template="trend.html.j2",
            title=metric,
            tables=(_steps(shown), _point_rows(shown, max(skip, 0))),
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
        "measured": plural(len(trend.points), "run"),
        "older": plural(trend.track.older, "older run"),
        "direction": direction_of(benchmark),
        "params": visible(cut(params_of(benchmark.params), 300)),
        "picture": still(trend, shown.scale),
        "low": honest(shown.scale.low, shown.scale.high - shown.scale.low),
        "high": honest(shown.scale.high, shown.scale.high - shown.scale.low),
        "platforms": [
            TrendTab(name, asked.here(platform=name, skip=""), name == shown.platform)
            for name in platforms
        ],
        "variants": [
            TrendTab(
                _differing(one), asked.here(variant=str(one.number), skip=""), one is benchmark
            )
            for one in variants
        ],
        "ranges": [
            TrendTab(f"{one:,} runs", asked.here(runs=str(one), skip=""), one == many)
            for one in RANGES
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
        "measured": MedianText(shown.trend.points[at], shown.unit),
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
        verb = "is" if len(trend.points) == 1 else "are"
        return f"There {verb} {plural(len(trend.points), 'run')}: a step can be seen in 8 or more."
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
            RelativeChange(word, change.change),
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


def _point_rows(shown: Shown, skip: int) -> Table:
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
            MedianText(shown.trend.points[at], shown.unit),
            Text(
                environment,
                note="another one than before" if shown.trend.is_apart(at) else "",
                is_code=bool(cell.environment),
            ),
        ),
        tone="warn" if steps else "",
    )
