"""What two runs measured: medians with their spreads, and whether these touch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from itertools import islice

from orchestrator.application.compare_benchmarks import Delta, Verdict
from orchestrator.dashboard import urls
from orchestrator.dashboard.measurement_text import (
    Change,
    Measured,
    direction_of,
    params_of,
    unit_of,
)
from orchestrator.dashboard.pages.compare.summary import Contrast
from orchestrator.dashboard.responses import Asked
from orchestrator.dashboard.table import Column, Row, Table, Text

PERFORMANCE = "performance"
SHOWN = 25
PAGE_SIZE = 100
_COLUMNS = (
    Column("benchmark", "Benchmark"),
    Column("platform", "Platform"),
    Column("a", "A", is_number=True),
    Column("b", "B", is_number=True),
    Column("change", "Change"),
)


@dataclass(frozen=True, slots=True)
class Speeds:
    """The benchmarks of two runs."""

    many: int
    """That both sides have measured."""
    counts: Counter[str]
    """By verdict."""
    marked: bool
    """Some of the shown were measured with another stack."""
    table: Table


def speeds_of(asked: Asked, contrast: Contrast, *, what: str, skip: int) -> Speeds:
    """What differs, what got worse by most first; all of it where that is asked for."""
    whole = bool(asked.query.get("all"))
    counts: Counter[str] = Counter(one.verdict.value for one in contrast.deltas)
    listed = [one for one in contrast.deltas if whole or one.verdict is not Verdict.ALIKE]
    alone = what == PERFORMANCE
    known = {one.benchmark.number: one.benchmark.name for one in contrast.deltas}
    several = {name for name, many in Counter(known.values()).items() if many > 1}
    first, size = (skip, PAGE_SIZE) if alone else (0, SHOWN)
    shown = [] if what and not alone else list(islice(listed, first, first + size))
    more = len(listed) > first + len(shown) and bool(shown)
    further = asked.here(what=PERFORMANCE, skip=str(first + size) if alone else "")
    table = Table(
        id=PERFORMANCE,
        caption="Benchmarks that both have measured",
        columns=_COLUMNS,
        rows=[_row(contrast, one, several) for one in shown],
        empty=_empty(contrast, listed=bool(listed)),
        next=further if more else "",
        total=len(listed),
        is_caption_hidden=True,
    )
    marked = any(contrast.cell(one.pair).name in contrast.other_stack for one in shown)
    return Speeds(len(contrast.deltas), counts, marked, table)


def _empty(contrast: Contrast, *, listed: bool) -> str:
    if not contrast.deltas:
        return "No benchmark was measured by both; cells that are not done count for nothing yet."
    return "" if listed else "The spreads of every benchmark touch: none differs."


def _row(contrast: Contrast, one: Delta, several: Collection[str]) -> Row:
    benchmark, unit = one.benchmark, unit_of(one.benchmark)
    platform = contrast.cell(one.pair).name
    other = "† another stack" if platform in contrast.other_stack else ""
    after = contrast.cell(one.pair).after
    cell = after.name if after is not None else ""
    href = urls.with_query(
        urls.benchmark_url(benchmark.job, benchmark.name),
        product=contrast.product,
        platform=cell,
        variant=str(benchmark.number),
    )
    params = params_of(benchmark.params) if benchmark.name in several else ""
    told = (benchmark.job, params, direction_of(benchmark))
    return Row(
        (
            Text(benchmark.name, href, " · ".join(word for word in told if word)),
            Text(platform),
            Measured(one.before, unit),
            Measured(one.after, unit),
            Change(one.verdict.value, one.change, other),
        )
    )
