"""Rules that compare a document with the results of a run."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median

from orchestrator.domain.event_facts import MetricFact, TestFact
from orchestrator.domain.outcome import Counts
from orchestrator.domain.run_record import CellRecord, Evidence, JobRecord
from reports.document_lint.document import (
    Document,
    EvidenceRule,
    Line,
    Mark,
    MarkdownRow,
    MarkdownTable,
)
from reports.document_lint.parsing import Fraction, Printed, fraction, only, quantities, words
from reports.document_lint.rules.hardware import boards_in
from reports.document_lint.rules.test_counts import listed

_STOP = frozenset({"test", "tests", "demo", "demos", "suite", "benchm", "total"})
_ALL_WELL = re.compile(r"(?i)\ball\b|\bfully\b|functional|working|✅|\bPASS\b|\bpassed\b")


def cells_about(document: Document, evidence: Evidence) -> tuple[CellRecord, ...]:
    """Return the cells of a document: all of the run where its title names no board."""
    cells = evidence.record.cells
    named = {board.name for board in boards_in(document.title)}
    return tuple(cell for cell in cells if not named or _board(cell) in ("", *named))


def _board(cell: CellRecord) -> str:
    wanted = cell.platform.accelerator
    boards = boards_in(f"{wanted.name if wanted else ''} {cell.id.upper()}")
    return boards[0].name if boards else ""


def key(title: str) -> frozenset[str]:
    """Return the key of a title."""
    return words(title) - _STOP


@dataclass(frozen=True, slots=True)
class DocumentRow:
    """A row of a document with its job."""

    row: MarkdownRow
    table: MarkdownTable
    cell: CellRecord
    job: JobRecord


def rows(document: Document, evidence: Evidence, *kinds: str) -> Iterator[DocumentRow]:
    """Return table rows for which a job of these kinds is found."""
    cells = cells_about(document, evidence)
    if len(cells) != 1:
        return
    for table in document.tables:
        if not re.search(r"(?i)suite|class|demo|benchmark|use case|job", table.header[0]):
            continue
        about_demos = re.search(r"(?i)demo", table.header[0]) is not None
        for row in table.body:
            for job in cells[0].jobs:
                fits = (job.kind == "demo") is about_demos
                if job.kind in kinds and fits and key(job.title or job.id) == key(row.label):
                    yield DocumentRow(row, table, cells[0], job)


def check_counts(document: Document, evidence: Evidence) -> Iterator[Mark]:
    """Check passed and total counts per suite."""
    for told in rows(document, evidence, "suite"):
        said = stated(told.table, told.row)
        if said is not None:
            spoken = _speaks_of_skips(told.table, told.row)
            counts = told.job.counts
            yield from _count(told.row.line, told.row.label, said, counts, is_stated=spoken)
    cells = cells_about(document, evidence)
    if len(cells) != 1:
        return
    for table in document.tables:
        said = next((s for row in table.totals if (s := stated(table, row)) is not None), None)
        of_tests = re.search(r"(?i)suite|class", table.header[0]) is not None
        if said is not None and of_tests and said.whole != len(table.body):
            row = table.totals[0]
            spoken = _speaks_of_skips(table, row)
            yield from _count(row.line, "the total", said, cells[0].counts, is_stated=spoken)


def _speaks_of_skips(table: MarkdownTable, row: MarkdownRow) -> bool:
    return re.search(r"(?i)skip|missing", " ".join((*table.header, *row.cells))) is not None


def stated(table: MarkdownTable, row: MarkdownRow) -> Fraction | None:
    """Return (passed, total) as a row states them."""
    cells = {name.lower(): cell for name, cell in zip(table.header, row.cells, strict=False)}
    passed = only(cells.get("passed", ""))
    total = only(cells.get("total", cells.get("collected", "")))
    if passed is not None and total is not None:
        return Fraction(int(passed.value), int(total.value))
    return fraction(" ".join(row.cells[1:]))


def _count(
    line: int, label: str, stated: Fraction, counts: Counts, *, is_stated: bool
) -> Iterator[Mark]:
    judged = counts.passed + counts.failed + counts.error
    if stated.part != counts.passed:
        message = f"{label}: {stated.part} passed, by the results {counts.passed}"
        yield Mark("error", line, message)
    if stated.whole not in (counts.collected, judged):
        message = f"{label}: of {stated.whole}, by the results {counts.collected} were collected"
        yield Mark("error", line, message)
    elif stated.part == stated.whole and counts.skipped + counts.missing and not is_stated:
        message = f"{label}: {counts.skipped} skipped and {counts.missing} missing beside {stated}"
        yield Mark("warning", line, message)


def check_tests(document: Document, evidence: Evidence) -> Iterator[Mark]:
    """Check each listed test against its result."""
    tests = listed(document)
    facts = [f for cell in cells_about(document, evidence) for f in evidence.tests.get(cell.id, ())]
    if not tests or not facts:
        return
    known = {_short(fact): fact for fact in facts}
    told = {(test.group.split(" (")[0], test.name) for test in tests}
    for test in tests:
        fact = known.get((test.group.split(" (")[0], test.name))
        if fact is None:
            yield Mark("warning", test.line, f"{test.name}: the results know no such test")
        elif fact.outcome.word.upper() != test.outcome:
            word = fact.outcome.word.upper()
            message = f"{test.name} is {test.outcome} here, and {word} in the results"
            yield Mark("error", test.line, message)
    groups = {group for group, _ in told}
    for short, fact in known.items():
        if short[0] in groups and short not in told:
            yield Mark("warning", tests[0].line, f"{fact.nodeid} ran, and is not listed")


def _short(fact: TestFact) -> tuple[str, str]:
    parts = fact.nodeid.split("::")
    return (parts[-2] if len(parts) > 2 else "", parts[-1])


def check_demos(document: Document, evidence: Evidence) -> Iterator[Mark]:
    """Check the passed checks per demo."""
    for told in rows(document, evidence, "demo", "use-case", "benchmark"):
        said = fraction(" ".join(told.row.cells[1:]))
        passed = len([c for c in told.job.checks if c.outcome == "passed"])
        judged = len([c for c in told.job.checks if c.outcome != "skipped"])
        if said is not None and told.job.checks and said != Fraction(passed, judged):
            message = f"{told.row.label}: {said} here, {passed}/{judged} in the results"
            yield Mark("error", told.row.line, message)


def check_degraded(document: Document, evidence: Evidence) -> Iterator[Mark]:
    """Find degraded jobs that are reported as normal."""
    for cell in cells_about(document, evidence):
        for job in cell.jobs:
            if job.degraded is not None:
                yield from _unmarked(document, job)


def _unmarked(document: Document, job: JobRecord) -> Iterator[Mark]:
    about = key(job.title or job.id)
    for table in document.tables:
        for row in table.body:
            said = " ".join(row.cells)
            if key(row.label) == about and _ALL_WELL.search(said) and "degraded" not in said:
                message = f"{row.label} is told as passed, and ran degraded: {job.degraded}"
                yield Mark("error", row.line, message)
    for text in document.texts if "degraded" not in document.words else ():
        if about <= words(text.text) and _ALL_WELL.search(text.text):
            message = f"{text.text[:80]!r}: it ran degraded: {job.degraded}"
            yield Mark("error", text.number, message)


_TIMES = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}


def check_metrics(document: Document, evidence: Evidence) -> Iterator[Mark]:
    """Check times and rates against the medians of equal parameters."""
    cells = cells_about(document, evidence)
    if len(cells) != 1:
        return
    facts = [fact for job in cells[0].jobs for fact in job.metrics if fact.samples]
    for table in document.tables:
        column = table.column(r"hidden")
        if column is None or not facts:
            continue
        for row in table.body:
            yield from _figures(table, row, row.cells[column], facts)


def _figures(
    table: MarkdownTable, row: MarkdownRow, hidden: str, facts: Sequence[MetricFact]
) -> Iterator[Mark]:
    here = [f for f in facts if str(_param(f, "hidden")) == hidden]
    for name, cell in zip(table.header, row.cells, strict=False):
        printed = _with_unit(name, cell)
        if printed is None or not (printed.seconds or printed.is_rate):
            continue
        said = printed.value * (printed.seconds or 1.0)
        slack = printed.half * (printed.seconds or 1.0)
        timed = printed.seconds is not None
        same = [
            _value(fact)
            for fact in here
            if (fact.unit in _TIMES if timed else fact.unit.endswith(("/s", "/sec")))
        ]
        if same and not any(abs(v - said) <= slack * 1.001 for v in same):
            message = f"{name} at {hidden}: {printed.text} here, {same[0]:.6g} in the results"
            yield Mark("error", row.line, message)


def _with_unit(heading: str, cell: str) -> Printed | None:
    """Return the first figure of a cell, with its column's unit by default."""
    printed = next(quantities(cell), None)
    unit = re.search(r"\(([^\s,)]+)", heading)
    if printed is None or printed.unit or unit is None:
        return printed
    return replace(printed, unit=unit[1])


def _param(fact: MetricFact, name: str) -> object:
    return next((v for k, v in fact.params.items() if k.startswith(name)), None)


def _value(fact: MetricFact) -> float:
    return median(fact.samples) * _TIMES.get(fact.unit, 1.0)


def check_slow(document: Document, evidence: Evidence) -> Iterator[Mark]:
    """Find praised features whose measured speed-up is below one."""
    for cell in cells_about(document, evidence):
        for job in cell.jobs:
            worst = _slowest(job)
            line = _praised(document, job) if worst is not None else None
            if worst is not None and line is not None and "slower" not in document.words:
                fact, value = worst
                params = ", ".join(f"{k}={v}" for k, v in fact.params.items())
                message = (
                    f"{job.title or job.id} is told as passed: {fact.name} ({params}) is "
                    f"{value:g}x, {1 / value:.1f} times slower, and the document does not say so"
                )
                yield Mark("warning", line, message)


def _slowest(job: JobRecord) -> tuple[MetricFact, float] | None:
    ratios = [
        (f, value)
        for f in job.metrics
        if f.unit in ("x", "×") and f.samples and 0 < (value := _value(f)) < 0.9
    ]
    return min(ratios, key=lambda found: found[1], default=None)


def _praised(document: Document, job: JobRecord) -> int | None:
    about = words(job.title or job.id)
    lines = [Line(row.line, " ".join(row.cells)) for t in document.tables for row in t.body]
    found = (n.number for n in lines if about <= words(n.text) and _ALL_WELL.search(n.text))
    return next(found, None)


def check_stamps(document: Document, evidence: Evidence) -> Iterator[Mark]:
    """Check printed versions against the document's."""
    version = re.search(r"v(\d+\.\d+\.\d+)", document.title)
    if version is None:
        return
    for cell in cells_about(document, evidence):
        for source in cell.ingested.sources if cell.ingested is not None else ():
            for stamp in source.stamps:
                if not stamp.endswith(version[1]) and stamp.lower() not in document.words:
                    message = (
                        f"the document is of v{version[1]}: {source.name} says {stamp} of itself, "
                        "so that what was under test is not proven"
                    )
                    yield Mark("error", 1, message)


def check_sources(document: Document, evidence: Evidence) -> Iterator[Mark]:
    """Find inconsistent artifacts, and listed ones that the run lacks."""
    for cell in cells_about(document, evidence):
        if cell.ingested is None:
            continue
        for source in cell.ingested.sources:
            if source.state.value == "inconsistent":
                line = _mention(document, source.name.rsplit("/", 1)[-1])
                figures = f"announced {source.announced}, named {source.named}"
                message = f"{source.name} is inconsistent: {figures}, summed {source.summed}"
                yield Mark("warning", line, message)


def _mention(document: Document, name: str) -> int:
    return next((item.number for item in document.items if name in item.text), 1)


def check_environment(document: Document, evidence: Evidence) -> Iterator[Mark]:
    """Check PyTorch, CUDA and compute capability against the probe."""
    cells = cells_about(document, evidence)
    if len(cells) != 1:
        return
    probed = cells[0].probed
    for pair in document.pairs:
        name = {"pytorch version": "torch", "pytorch": "torch", "cuda": "cuda",
                "python": "python"}.get(pair.key.lower())  # fmt: skip
        known = probed.get(name) if name else None
        if isinstance(known, str) and known and known != pair.value.split(" ")[0]:
            message = f"{pair.key} is {pair.value} here, {known} in the results"
            yield Mark("error", pair.line, message)


RULES = (
    EvidenceRule("evidence-count", "suites' counts that the results do not have",
                 "Take the counts from the results.", check_counts),
    EvidenceRule("evidence-test", "listed tests that the results tell differently, or not at all",
                 "List what ran, as it went.", check_tests),
    EvidenceRule("evidence-demo", "demos' counts that the results do not have",
                 "Take the counts from the results.", check_demos),
    EvidenceRule("degraded", "what fell back, told as if it had not",
                 "Mark it degraded, with the reason.", check_degraded),
    EvidenceRule("evidence-metric", "figures that were not measured so",
                 "Take the figures from the results.", check_metrics),
    EvidenceRule("evidence-slower", "a pass of what is slower than its baseline",
                 "Print the ratio.", check_slow),
    EvidenceRule("version-stamp", "artifacts that name another version than the document",
                 "Prove what was under test: print the version that was imported.", check_stamps),
    EvidenceRule("source", "artifacts that contradict themselves",
                 "Look at the raw file: its lines, what it announced and its sum.", check_sources),
    EvidenceRule("environment", "software that was not the probed one",
                 "Take it from the probe.", check_environment),
)  # fmt: skip
