"""Rules about the backend report: classes from their tests, differences from their figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from orchestrator.domain.event_facts import TestFact
from orchestrator.domain.outcome import TestOutcome
from orchestrator.domain.run_record import CellRecord, Evidence
from reports.model.backend import (
    BackendPlatform,
    BackendReport,
    BackendSuite,
    BenchmarkBlock,
    ClassCell,
    ClassRow,
    MetricComparison,
    ReferenceDifference,
    SuiteColumn,
)
from reports.model.metrics import MetricFigure
from reports.model.values import Absent, Tally
from reports.rules.blocks import (
    ARCHITECTURE_OF,
    OUTCOMES,
    RuleFinding,
    close,
    differs,
    tally_figures,
    total_is,
)

_SIMILAR_UP_TO = 5.0
_UNSETTLED = ("running", "queued")


def class_rule(part: ClassRow) -> Iterator[RuleFinding]:
    """Check that tests are listed or counted, and that tallies match the tests."""
    yield from differs("class", f"{part.name}: tests", part.tests, len(part.rows) + part.hidden)
    if part.hidden < 0:
        yield "error", "class", f"{part.name} lists more tests than it has"
    for column, cell in enumerate(part.cells):
        listed = [row.cells[column] for row in part.rows]
        said = Counter(test.outcome for test in listed if test is not None)
        if cell is None:
            yield from differs("class", f"{part.name}: tests of no platform", sum(said.values()), 0)
        else:
            yield from _class_cell(part, cell, column, said)


def _class_cell(
    part: ClassRow, cell: ClassCell, column: int, counts: Counter[str]
) -> Iterator[RuleFinding]:
    if not part.hidden:
        for name in OUTCOMES:
            found = counts[name]
            yield from differs("class", f"{part.name}: {name}", getattr(cell.tally, name), found)
    skips = tuple(r.name for r in part.rows if (t := r.cells[column]) and t.outcome == "skipped")
    yield from differs("class", f"{part.name}: skipped tests", cell.skipped, skips)
    yield from differs("class", f"{part.name}: status", cell.code, _word(cell))


def _word(cell: ClassCell) -> str:
    tally = cell.tally
    if tally.failed or tally.error:
        return "failed"
    if tally.missing or tally.not_run:
        return "running" if cell.code == "running" else "failed"
    return "passed" if tally.passed + tally.xfailed + tally.xpassed else "skipped"


def suite_columns_rule(part: BackendSuite) -> Iterator[RuleFinding]:
    """Check that a suite's values are the sums of its classes and unnamed tests."""
    yield from differs("total", f"{part.id}: tests", part.tests, sum(c.tests for c in part.classes))
    for index, column in enumerate(part.columns):
        cells = [row.cells[index] for row in part.classes]
        named = [cell for cell in cells if cell is not None]
        if column is None:
            yield from differs("total", f"{part.id}: classes of no suite", len(named), 0)
        else:
            yield from _column(part.id, column, named)


def _column(suite: str, column: SuiteColumn, named: Sequence[ClassCell]) -> Iterator[RuleFinding]:
    extra = [column.unnamed] if column.unnamed is not None else []
    tallies: list[Tally | Absent] = [cell.tally for cell in named]
    if not isinstance(column.tally, Absent) or named or extra:
        yield from total_is(column.tally, [*tallies, *extra])
    code, over = column.status.code, column.status.code not in _UNSETTLED
    if code == "passed" and (isinstance(column.tally, Absent) or column.tally.bad):
        yield "error", "outcome", f"{suite} passed, and not all of its tests did"
    if over and any(cell.code == "running" for cell in named):
        yield "error", "outcome", f"{suite} is over, and a class of it runs"


def contrast_rule(part: MetricComparison) -> Iterator[RuleFinding]:
    """Check that each platform but the reference has a difference."""
    measured = sum(figure is not None for figure in part.figures)
    yield from differs("comparison", "differences", len(part.differences), measured - 1)
    if any(difference.cell == part.reference for difference in part.differences):
        yield "error", "comparison", f"{part.name}: the reference is set against itself"


def backend_rules(report: BackendReport) -> Iterator[RuleFinding]:
    """Check sums of platforms, and recompute differences."""
    for index, platform in enumerate(report.platforms):
        columns = [suite.columns[index] for suite in report.suites]
        tallies = [column.tally for column in columns if column is not None]
        yield from total_is(platform.tally, tallies)
        yield from _measured(platform, [b for b in report.blocks if b.cell == platform.cell])
        yield from _not_better(platform, [c.status.code for c in columns if c is not None])
        yield from _architecture(platform, [b for b in report.blocks if b.cell == platform.cell])
    for contrast in report.contrasts:
        yield from _differences(contrast, report.platforms)


def _architecture(
    platform: BackendPlatform, blocks: Sequence[BenchmarkBlock]
) -> Iterator[RuleFinding]:
    """Check that no benchmark names the architecture of another device."""
    devices = platform.hardware.devices
    mine = [device.compute_capability for device in devices]
    if platform.catalogued is not None:
        mine.append(platform.catalogued.compute_capability)
    known = {
        ARCHITECTURE_OF[one] for one in mine if isinstance(one, str) and one in ARCHITECTURE_OF
    }
    families = {family.split()[0].lower(): family for family in ARCHITECTURE_OF.values()}
    for block in blocks:
        for check in block.checks:
            said = families.get(check.value.lower())
            if known and said is not None and said not in known:
                yield (
                    "warning",
                    "architecture",
                    (
                        f"{check.name} of {block.job} on {platform.cell} says {check.value}; "
                        f"{platform.hardware.accelerator} is {', '.join(sorted(known))}"
                    ),
                )


def _measured(platform: BackendPlatform, blocks: Sequence[BenchmarkBlock]) -> Iterator[RuleFinding]:
    count = platform.benchmarks
    entries = [e for block in blocks for section in block.sections for e in section.entries]
    if isinstance(count, Absent):
        yield from differs("total", f"{platform.cell}: metrics of no benchmark", len(entries), 0)
    elif not any(block.hidden for block in blocks):
        yield from differs("total", f"{platform.cell}: metrics", count.metrics, len(entries))
        samples = sum(entry.figure.n for entry in entries)
        yield from differs("total", f"{platform.cell}: samples", count.samples, samples)
    said = [block for block in blocks if block.status.code == "passed"]
    if not isinstance(count, Absent):
        jobs = count.jobs
        if jobs.part < len(said) or jobs.whole - jobs.part < len(blocks) - len(said):
            yield "error", "total", f"{platform.cell}: {jobs.part} of {jobs.whole} benchmarks"


def _not_better(platform: BackendPlatform, codes: Sequence[str]) -> Iterator[RuleFinding]:
    if platform.status.code == "passed" and any(code != "passed" for code in codes):
        yield "error", "outcome", f"{platform.cell} passed, and a suite of it did not"


def _differences(
    part: MetricComparison, platforms: Sequence[BackendPlatform]
) -> Iterator[RuleFinding]:
    by_cell = {p.cell: (p, f) for p, f in zip(platforms, part.figures, strict=True)}
    first, reference = by_cell[part.reference]
    for said in part.differences:
        platform, figure = by_cell[said.cell]
        if figure is None or reference is None:
            yield "error", "comparison", f"{part.name} of {said.cell} was not measured"
            continue
        same = platform.hardware.stack == first.hardware.stack
        yield from differs("comparison", f"{said.cell}: same stack", said.same_stack, same)
        yield from _difference(part, said, figure, reference)


def _difference(
    part: MetricComparison,
    difference: ReferenceDifference,
    figure: MetricFigure,
    reference: MetricFigure,
) -> Iterator[RuleFinding]:
    mine, other = figure.median, reference.median
    if (
        isinstance(mine, Absent)
        or isinstance(other, Absent)
        or isinstance(difference.percent, Absent)
    ):
        return
    found = abs(mine - other) / max(mine, other) * 100
    if not close(difference.percent, found):
        yield (
            "error",
            "comparison",
            f"{part.name} differs by {difference.percent}, recomputed {found}",
        )
    wins = {"lower": mine < other, "higher": mine > other}.get(part.direction)
    better = "" if wins is None or mine == other else difference.cell if wins else part.reference
    yield from differs("comparison", f"{part.name}: better", difference.better, better)
    near = found <= _SIMILAR_UP_TO or _touch(figure, reference)
    yield from differs("comparison", f"{part.name}: similar", difference.similar, near)


def _touch(one: MetricFigure, other: MetricFigure) -> bool:
    bounds = (one.low, one.high, other.low, other.high)
    if min(one.n, other.n) < 2 or any(isinstance(bound, Absent) for bound in bounds):
        return False
    a, b, c, d = (0.0 if isinstance(bound, Absent) else bound for bound in bounds)
    return max(a, c) <= min(b, d)


def backend_evidence(report: BackendReport, evidence: Evidence) -> Iterator[RuleFinding]:
    """Check that the report has exactly the tests and values of the evidence."""
    cells = {cell.id: cell for cell in evidence.record.cells}
    for index, platform in enumerate(report.platforms):
        cell, tests = cells[platform.cell], evidence.tests.get(platform.cell, ())
        for suite in report.suites:
            yield from _tests(suite, index, [test for test in tests if test.job == suite.id])
        for block in report.blocks:
            if block.cell == platform.cell:
                yield from _figures(block, cell)


def _tests(suite: BackendSuite, column: int, tests: Sequence[TestFact]) -> Iterator[RuleFinding]:
    known = {_module_and_rest(test.nodeid): test for test in tests}
    counted = 0
    for row in suite.classes:
        cell = row.cells[column]
        counted += cell.tally.collected if cell is not None else 0
        for test in row.rows:
            said, fact = test.cells[column], known.get(_module_and_rest(test.nodeid))
            found = _outcome(fact) if fact is not None else None
            if (said.outcome if said is not None else None) != found:
                yield "error", "reported", f"{test.nodeid}: said to be {said}, and is {found}"
    yield from differs("recount", f"{suite.id}: named tests", counted, len(known))


def _module_and_rest(nodeid: str) -> tuple[str, str]:
    module, _, rest = nodeid.partition("::")
    return module, rest


def _outcome(fact: TestFact) -> str:
    settled = fact.final or fact.outcome is TestOutcome.NOT_RUN
    return (fact.outcome if settled else TestOutcome.MISSING).word


def _figures(block: BenchmarkBlock, cell: CellRecord) -> Iterator[RuleFinding]:
    facts = [fact for job in cell.jobs if job.id == block.job for fact in job.metrics]
    known = {(f.unit, f.direction, tuple(map(repr, f.samples))): f.name for f in facts}
    for section in block.sections:
        for entry in section.entries:
            samples = tuple(map(repr, entry.figure.samples))
            if (entry.unit, entry.direction, samples) not in known:
                yield "error", "reported", f"{entry.name} of {block.job} was not reported so"


def backend_figures(report: BackendReport) -> dict[str, tuple[int, ...]]:
    """Return the numbers of each platform's tests, of degraded jobs and of the run."""
    codes = [p.status.code for p in report.platforms] + [s.code for _, s, _ in report.not_started]
    tests = {
        f"tests.{platform.cell}": tally_figures(platform.tally) for platform in report.platforms
    }
    degraded = sum(len(platform.degraded) for platform in report.platforms)
    return tests | {"degraded": (degraded,), "run": (codes.count("passed"), len(codes))}


BACKEND_PARTS: dict[type, Callable[[Any], Iterator[RuleFinding]]] = {
    ClassRow: class_rule,
    BackendSuite: suite_columns_rule,
    MetricComparison: contrast_rule,
}
"""By the type of the part."""
