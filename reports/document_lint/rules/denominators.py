"""Rules on totals: what they include, leave out, or count twice."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from reports.document_lint.document import (
    Document,
    DocumentRule,
    Line,
    Mark,
    MarkdownRow,
    MarkdownTable,
)
from reports.document_lint.parsing import Fraction, fraction, fractions

_ABSENT = re.compile(r"(?i)\bN/A\b|not available|not run")
_CPU = re.compile(r"(?i)\bCPU\b|\blocal(?:ly|host)?\b|mac\s?os|laptop")
_TOTAL = re.compile(r"(?i)total|overall|altogether|validated")
_OUTSIDE = re.compile(r"(?i)outside|not in the|leaves? out|without|excluding|accelerators? only")


def platform_table(document: Document) -> MarkdownTable | None:
    """Return the table of platforms with their passed tests."""
    for table in document.tables:
        if not re.search(r"(?i)platform|target", table.header[0] if table.header else ""):
            continue
        column = table.column(r"tests|passed")
        if column is not None and any(fraction(row.cells[column]) for row in table.body):
            return table
    return None


def shares(table: MarkdownTable) -> list[tuple[MarkdownRow, Fraction | None]]:
    """Return each platform's test counts."""
    column = table.column(r"tests|passed") or 0
    return [(row, fraction(row.cells[column])) for row in table.body]


def _stated(document: Document, table: MarkdownTable) -> Iterator[tuple[int, Fraction, str]]:
    """Return stated totals over platforms, in the table and below it."""
    for row in table.totals:
        if (share := fraction(" ".join(row.cells[1:]))) is not None:
            yield row.line, share, row.label
    for text in document.texts:
        share = fraction(text.text)
        if share is not None and _TOTAL.search(text.text) and text.path == table.path:
            yield text.number, share, text.text


def check(document: Document) -> Iterator[Mark]:
    """Check which platforms each total includes."""
    table = platform_table(document)
    if table is None:
        return
    rows = shares(table)
    whole = _sum(share for _, share in rows if share is not None)
    beside = any("accelerator" in row.label.lower() for row in table.totals)
    told = beside or any(_OUTSIDE.search(text.text) for text in document.texts)
    for line, stated, _ in _stated(document, table):
        if "accelerator" in _label(table, line):
            continue
        if stated != whole:
            yield from _not_the_sum(line, stated, rows, whole)
        elif not told:
            yield from _unsaid(line, stated, rows)


def _label(table: MarkdownTable, line: int) -> str:
    return next((row.label.lower() for row in table.totals if row.line == line), "")


def _sum(values: Iterator[Fraction] | Sequence[Fraction]) -> Fraction:
    kept = list(values)
    return Fraction(sum(f.part for f in kept), sum(f.whole for f in kept))


def _not_the_sum(
    line: int,
    stated: Fraction,
    rows: Sequence[tuple[MarkdownRow, Fraction | None]],
    whole: Fraction,
) -> Iterator[Mark]:
    terms = " + ".join(str(share) for _, share in rows if share is not None)
    yield Mark("error", line, f"the total is {stated}: {terms} is {whole}")


def _unsaid(
    line: int, stated: Fraction, rows: Sequence[tuple[MarkdownRow, Fraction | None]]
) -> Iterator[Mark]:
    counted = [(row, share) for row, share in rows if share is not None]
    on_cpu = [(row, share) for row, share in counted if _CPU.search(" ".join(row.cells))]
    outside = [row for row, share in rows if share is None and _ABSENT.search(" ".join(row.cells))]
    if on_cpu and len(on_cpu) < len(counted):
        rest = _sum([share for row, share in counted if (row, share) not in on_cpu])
        names = ", ".join(f"{row.label} ({row.cells[2]})" for row, _ in on_cpu)
        message = (
            f"{stated} ({stated.percent:.1f}%) counts {names}, no accelerator: "
            f"accelerators alone are {rest} = {rest.percent:.1f}%"
        )
        yield Mark("error", line, message)
    if outside:
        names = ", ".join(" ".join(row.cells[:3]) for row in outside)
        yield Mark("warning", line, f"silently outside the denominator of {stated}: {names}")
    if len(counted) > 1:
        terms = " + ".join(f"{share.whole:,}" for _, share in counted)
        message = (
            f"{stated.whole:,} = {terms} adds the platforms' tests up: the same test counts again "
            "on each platform, and nothing says how many distinct tests there are"
        )
        yield Mark("warning", line, message)


def check_stand_in(document: Document) -> Iterator[Mark]:
    """Find results of another platform in the section of an unavailable one."""
    absent = [line for line in document.texts if re.search(r"(?i)not available", line.text)]
    for away in absent:
        for line in document.texts:
            if line.path != away.path or line is away or not list(fractions(line.text)):
                continue
            if re.search(r"(?i)local|alternative|instead|emulat|simulat|cpu", line.text):
                where = away.path[-1] if away.path else "the platform"
                share = fraction(line.text)
                message = f"{share} from elsewhere is no evidence for {where}, which was not run"
                yield Mark("warning", line.number, message)


def check_skips_stated(document: Document) -> Iterator[Mark]:
    """Check that a report with full passes states its skips."""
    if "skip" in document.words:
        return
    full = [
        (row.line, share)
        for table in document.tables
        if table.column(r"^passed$|tests") is not None
        for row in table.rows
        for share in _passed(table, row)
        if share.part == share.whole > 1
    ]
    if full:
        line, share = max(full, key=lambda found: found[1].whole)
        message = f"{share} passed, and no word of skipped tests: it cannot be told from a count"
        yield Mark("note", line, f"{message} that leaves them out")


def _passed(table: MarkdownTable, row: MarkdownRow) -> list[Fraction]:
    cells = dict(zip((name.lower() for name in table.header), row.cells, strict=False))
    passed, total = cells.get("passed", ""), cells.get("total", "")
    if passed.isdigit() and total.isdigit():
        return [Fraction(int(passed), int(total))]
    return [share for cell in row.cells[1:] if (share := fraction(cell)) is not None]


def check_same_set(document: Document) -> Iterator[Mark]:
    """Find different totals for the same tests on several platforms."""
    found: dict[str, list[tuple[Line, Fraction]]] = {}
    for item in document.items:
        key, _, value = item.text.partition(":")
        share = fraction(value)
        if share is not None and key.lower() in ("demos", "demonstrations", "use cases"):
            found.setdefault(key, []).append((item, share))
    for key, lines in found.items():
        if len({share.whole for _, share in lines}) > 1 and "not run" not in document.words:
            most = max(share.whole for _, share in lines)
            line, share = min(lines, key=lambda entry: entry[1].whole)
            message = (
                f"{key}: {share} here and of {most} elsewhere are not the same set; "
                f"{most - share.whole} were not run here, and nothing says so"
            )
            yield Mark("warning", line.number, message)


RULES = (
    DocumentRule("denominator", "a total that does not say what it is of",
         "Name the platforms inside and outside, give accelerators a total of their own, and "
         "count distinct tests.", check),
    DocumentRule("stand-in", "a result from elsewhere in place of one that is not there",
         "Report it as what it is; the platform stays not available.", check_stand_in),
    DocumentRule("skips-unsaid", "full counts in a document that never speaks of skipped tests",
         "Print the skipped tests beside the passed ones, a zero too.", check_skips_stated),
    DocumentRule("same-set", "one measure over different sets on different platforms",
         "Say on each platform what was not run, and why.", check_same_set),
)  # fmt: skip
