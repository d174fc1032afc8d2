"""Rules about the compare report: groups that part all names, and deltas of shown figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from decimal import Decimal

from reports.model.compare import CellPair, Changes, CompareReport, MetricDelta
from reports.model.metrics import MetricFigure
from reports.model.values import Absent, Tally
from reports.rules.blocks import Said, close, differs


def compare_rules(report: CompareReport) -> Iterator[Said]:
    """What the parts of a comparison say of each other."""
    for pair in report.pairs:
        yield from _pair(pair)
    for name, said in report.totals:
        found = sum(
            group.count for p in report.pairs for group in p.tests.groups if group.category == name
        )
        yield from differs("total", f"{name} of all cells", said, found)
    same = sum(count for pair in report.pairs for _, count in pair.tests.same)
    yield from differs("total", "unchanged tests", report.unchanged, same)
    verdicts = Counter(_verdict(delta) for pair in report.pairs for delta in pair.metrics)
    yield from differs("comparison", "better metrics", report.better, verdicts["better"])
    yield from differs("comparison", "worse metrics", report.worse, verdicts["worse"])
    yield from _money(report.base.cost_usd, report.head.cost_usd, report.usd_difference)
    for side, alone, which in (
        (report.base, report.base_only, "base"),
        (report.head, report.head_only, "head"),
    ):
        found = len(report.pairs) + len(alone)
        yield from differs("total", f"cells of the {which}", side.cells, found)


def compare_figures(report: CompareReport) -> Mapping[str, tuple[int, ...]]:
    """The figures that a conclusion may name."""
    return {
        f"tests.{name}": (sum(_count(pair.tests, name) for pair in report.pairs),)
        for name, _ in report.totals
    }


def _count(changes: Changes, name: str) -> int:
    return next((group.count for group in changes.groups if group.category == name), 0)


def _pair(pair: CellPair) -> Iterator[Said]:
    where = pair.head_cell
    for what, changes in (("tests", pair.tests), ("checks", pair.checks)):
        yield from _changes(f"{where}: {what}", changes)
    for tally, named, unnamed, which in (
        (pair.base_tally, pair.tests.base, pair.unnamed_base, "base"),
        (pair.head_tally, pair.tests.head, pair.unnamed_head, "head"),
    ):
        if isinstance(tally, Tally):
            said = named + unnamed
            yield from differs("recount", f"{where}: tests of the {which}", said, tally.collected)
    same = pair.base_stack == pair.head_stack
    yield from differs("stack", f"{where}: same stack", pair.same_stack, same)
    for delta in pair.metrics:
        yield from _delta(delta)
    yield from _money(pair.base_usd, pair.head_usd, pair.usd_difference)


def _changes(where: str, changes: Changes) -> Iterator[Said]:
    for group in changes.groups:
        listed = len(group.shown) + group.hidden
        yield from differs("listed", f"{where}: {group.category}", group.count, listed)
        if group.hidden < 0:
            yield "error", "listed", f"{where}: more are listed than counted"
    everything = sum(group.count for group in changes.groups) + sum(n for _, n in changes.same)
    union = changes.base + changes.came
    yield from differs("total", f"{where}: names of both sides", everything, union)
    yield from differs("total", f"{where}: came and went", changes.head, union - changes.went)
    yield from differs("total", f"{where}: gone", changes.went, _went(changes))


def _went(changes: Changes) -> int:
    """Tests that the head does not have, for whatever cause."""
    return sum(group.count for group in changes.groups if group.category in ("gone", "hidden"))


def _delta(delta: MetricDelta) -> Iterator[Said]:
    name = f"{delta.job}: {delta.metric}"
    base, head = delta.base.median, delta.head.median
    if isinstance(base, Absent) or isinstance(head, Absent) or not base:
        both = isinstance(delta.percent, Absent)
        yield from differs("comparison", f"{name}: a share of nothing", both, True)
        return
    if isinstance(delta.percent, Absent) or not close(delta.percent, (head - base) * 100 / base):
        yield "error", "comparison", f"{name}: percent is {delta.percent}"
    if not isinstance(delta.relative, Absent):
        found = head / base if delta.direction == "higher" else base / head
        if not close(delta.relative, found):
            yield "error", "comparison", f"{name} is {delta.relative}x, recomputed {found}x"
    touches = _low(delta.base) <= _high(delta.head) and _low(delta.head) <= _high(delta.base)
    yield from differs("comparison", f"{name}: overlap", delta.overlaps, touches)


def _verdict(delta: MetricDelta) -> str:
    apart = max(_low(delta.base), _low(delta.head)) > min(_high(delta.base), _high(delta.head))
    if min(len(delta.base.samples), len(delta.head.samples)) < 2 or not apart:
        return ""
    if isinstance(delta.relative, Absent):
        return ""
    return "better" if delta.relative > 1 else "worse"


def _low(figure: MetricFigure) -> float:
    return 0.0 if isinstance(figure.low, Absent) else figure.low


def _high(figure: MetricFigure) -> float:
    return 0.0 if isinstance(figure.high, Absent) else figure.high


def _money(
    base: Decimal | Absent, head: Decimal | Absent, said: Decimal | Absent
) -> Iterator[Said]:
    if isinstance(base, Absent) or isinstance(head, Absent):
        both = isinstance(said, Absent)
        yield from differs("cost", "a difference to an unknown cost", both, True)
        return
    yield from differs("cost", "the difference", said, head - base)
