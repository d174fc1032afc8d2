"""Plots of two runs: what became of the tests, and the ratio of each metric."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from orchestrator.domain.grouping import grouped
from reports import compare_text
from reports import format as fmt
from reports.grouping import split_name, telling
from reports.model.blocks import Plot
from reports.model.comparison import CompareReport, MetricDelta, PairedCell
from reports.model.metrics import MetricFigure
from reports.model.values import Absent
from reports.plots import svg
from reports.plots.bars import RangeRow, Segment, StackedRow, stacked
from reports.plots.svg import BAR, LEFT, RIGHT, ROW, TOP

_REACHES = (1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 100.0, 1000.0)
"""How far the scale goes on either side of one: the first that holds every value."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RatioRow(RangeRow):
    """The ratio of two values; above one, the newer value is better."""

    ratio: float
    kind: str
    """Class of the style."""


def ratios(name: str, title: str, text: str, rows: Sequence[RatioRow], *, note: str) -> Plot:
    """Draw ratios with whiskers on a logarithmic scale; better is to the right."""
    values = [v for row in rows for v in (row.low, row.ratio, row.high)]
    values = [v for v in values if v > 0 and math.isfinite(v)]
    furthest = max((max(v, 1 / v) for v in values), default=1.0)
    reach = next((reach for reach in _REACHES if furthest <= reach), furthest)
    body: list[str] = []
    y, group = float(TOP + 4), ""
    for row in rows:
        if row.group != group:
            group = row.group
            body.append(svg.text(12, y + 12, group, kind="note", limit=100))
            y += ROW - 6
        body += _ratio_bar(row, y, reach)
        y += ROW
    ticks = _axis(reach, y)
    body.append(svg.text(12, y + 36, note, kind="note", limit=115))
    return svg.figure(name, title, text, [*ticks, *body], height=round(y) + 48)


def _x(value: float, reach: float) -> float:
    share = math.log(value) / math.log(reach) if value > 0 else -1.0
    return (LEFT + RIGHT) / 2 + (RIGHT - LEFT) / 2 * max(-1.0, min(1.0, share))


def _ratio_bar(row: RatioRow, y: float, reach: float) -> list[str]:
    middle = y + BAR / 2
    parts = [svg.label(y, row.label), svg.value(y, row.printed)]
    if row.high > row.low:
        ends = _x(row.low, reach), _x(row.high, reach)
        parts.append(svg.line(ends[0], middle, ends[1], middle, "whisker"))
    return [*parts, svg.mark(_x(row.ratio, reach), middle, row.kind)]


def _axis(reach: float, y: float) -> list[str]:
    parts = [
        svg.text((LEFT + RIGHT) / 2 - 12, TOP - 8, "← worse", kind="note", anchor="end"),
        svg.text((LEFT + RIGHT) / 2 + 12, TOP - 8, "better →", kind="note"),
    ]
    for value in (1 / reach, 1.0, reach):
        x = _x(value, reach)
        parts.append(svg.line(x, TOP - 2, x, y + 2, "axis" if value == 1 else "grid"))
        parts.append(svg.text(x, y + 16, fmt.ratio(value), kind="note", anchor="middle"))
    return parts


PAIRS_SHOWN, METRICS_SHOWN = 24, 24
_KEYS = 3
_STYLES = {
    "new_failure": "failed", "still_failing": "error", "missing": "missing", "hidden": "other",
    "newly_skipped": "skipped", "changed": "other", "fixed": "s0", "new": "s2", "gone": "s3",
}  # fmt: skip


def changes_plot(report: CompareReport) -> Plot | None:
    """Return the plot of changed tests by pair of cells; None without changes."""
    if not any(number for _, number in report.totals):
        return None
    rows = [
        StackedRow(pair.heading, tuple(_segments(pair)), fmt.plural(_names(pair), "test"))
        for pair in report.pairs[:PAIRS_SHOWN]
    ]
    said = [f"{compare_text.category_name(name)}: {fmt.count(n)}" for name, n in report.totals if n]
    text = f"{'; '.join(said)}; the same: {fmt.count(report.unchanged)}"
    return stacked("changes", "What became of the tests", text, rows, shared_scale=False)


def _names(pair: PairedCell) -> int:
    """Return the number of tests of both cells together."""
    return pair.tests.unchanged + sum(group.count for group in pair.tests.groups)


def _segments(pair: PairedCell) -> Iterator[Segment]:
    for name, kind in _STYLES.items():
        number = pair.tests.of(name).count
        if name == "hidden" and not number:
            continue
        yield Segment(kind, compare_text.category_name(name).lower(), number, fmt.count(number))
    same = pair.tests.unchanged
    yield Segment("passed", "the same", same, fmt.count(same))


def metrics_plot(report: CompareReport) -> Plot | None:
    """Return the plot of each listed figure's change, with its uncertainty."""
    rows = [row for pair in report.pairs for row in _of_pair(pair)][:METRICS_SHOWN]
    if not rows:
        return None
    text = "; ".join(f"{row.group}, {row.label}: {row.printed}" for row in rows[:8])
    note = "Base = 1; whiskers: how far the spreads of both let it be; grey: single samples."
    if not all(pair.same_stack for pair in report.pairs):
        note += " The software differs too."
    return ratios("metrics", "Figures that moved", text, rows, note=note)


def _of_pair(pair: PairedCell) -> Iterator[RatioRow]:
    """Yield rows grouped by job, the worst job first."""
    jobs = grouped((delta.job, delta) for delta in pair.metrics)
    for deltas in jobs.values():
        for delta in deltas:
            if not isinstance(delta.relative, Absent) and delta.relative > 0:
                alike = [one for one in deltas if one.metric == delta.metric]
                yield _row(pair, delta, delta.relative, _differing(alike))


def _differing(deltas: Sequence[MetricDelta]) -> tuple[str, ...]:
    """Return the fewest parameters that distinguish the rows."""
    said = [dict(delta.params) for delta in deltas]
    names = dict.fromkeys(key for params in said for key in params)
    keys = [key for key in names if len({params.get(key) for params in said}) > 1]
    return telling([delta.params for delta in deltas], keys)


def _row(pair: PairedCell, delta: MetricDelta, ratio: float, keys: tuple[str, ...]) -> RatioRow:
    params = dict(delta.params)
    own = [f"{key}={params[key]}" for key in keys[:_KEYS] if key in params]
    is_known = delta.base.n > 1 and delta.head.n > 1
    low, high = _reach(delta) if is_known else (ratio, ratio)
    kind = "other" if not is_known or delta.overlaps else "passed" if ratio > 1 else "failed"
    return RatioRow(
        label=", ".join([split_name(delta.metric)[1], *own]),
        group=f"{pair.heading}: {delta.title}",
        ratio=ratio,
        low=min(low, ratio),
        high=max(high, ratio),
        kind=kind,
        printed=f"{fmt.ratio(ratio)}{'' if is_known else ' (n=1)'}",
    )


def _reach(delta: MetricDelta) -> tuple[float, float]:
    """Return the smallest and largest ratio that both spreads allow."""
    better, worse = (delta.head, delta.base)
    if delta.direction == "lower":
        better, worse = worse, better
    return _share(_low(better), _high(worse)), _share(_high(better), _low(worse))


def _share(part: float, whole: float) -> float:
    return part / whole if part > 0 and whole > 0 else float("inf")


def _low(figure: MetricFigure) -> float:
    return 0.0 if isinstance(figure.low, Absent) else figure.low


def _high(figure: MetricFigure) -> float:
    return 0.0 if isinstance(figure.high, Absent) else figure.high
