"""Rules on totals: the sums of their rows."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from reports.document_lint.document import Document, DocumentRule, Mark, MarkdownRow, MarkdownTable
from reports.document_lint.parsing import Fraction, Printed, fraction, fractions, only, percents

_PASS = re.compile(r"\bPASS(?:ED)?\b")
_STATUS = re.compile(
    r"\b(?:PASS(?:ED)?|FAIL(?:ED)?|ERRORED|TIMED OUT|CANCELLED|NOT (?:AVAILABLE|RUN)|RUNNING|QUEUED"
    r"|PARTIAL)\b"
)
_NOT_SUMMED = re.compile(
    r"(?i)rate|%|price|\bper\b|/h\b|hour|percent|speed|ratio|status|\bversion\b|compute cap"
)
_ON_THE_CPU = re.compile(r"†|\bCPU\b")


def check(document: Document) -> Iterator[Mark]:
    """Check the sums of every table with a total."""
    for table in document.tables:
        for total in table.totals:
            for column in range(1, len(total.cells)):
                yield from _column(table, total, column)


def _rows(table: MarkdownTable, total: MarkdownRow) -> list[MarkdownRow]:
    """Return the rows of a total; of accelerators without processors."""
    rows = [row for row in table.body if row.line < total.line] or list(table.body)
    if "accelerator" in total.label.lower():
        rows = [row for row in rows if not _ON_THE_CPU.search(" ".join(row.cells))]
    return rows


def _column(table: MarkdownTable, total: MarkdownRow, column: int) -> Iterator[Mark]:
    name = table.header[column] if column < len(table.header) else ""
    cells = [row.cells[column] for row in _rows(table, total) if column < len(row.cells)]
    said = total.cells[column]
    stated = fraction(said)
    if stated is not None:
        yield from _of_fractions(total, stated, cells, name)
    elif not _NOT_SUMMED.search(name):
        yield from _of_numbers(total, only(said), cells, name)


def _of_fractions(
    total: MarkdownRow, stated: Fraction, cells: Sequence[str], name: str
) -> Iterator[Mark]:
    judged = [cell for cell in cells if _STATUS.search(cell)]
    found = [part for cell in cells if (part := fraction(cell)) is not None]
    if judged and len(judged) == stated.whole:
        passed = [cell for cell in judged if _PASS.search(cell)]
        summed = Fraction(len(passed), len(judged))
        source = f"{len(passed)} of {len(judged)} rows say PASS"
    elif found:
        summed = Fraction(sum(f.part for f in found), sum(f.whole for f in found))
        terms = " + ".join(str(part) for part in found[:6])
        source = terms if len(found) < 7 else f"{len(found)} rows"
    else:
        return
    if summed != stated:
        yield Mark("error", total.line, f"the total of {name!r} is {stated}: {source} is {summed}")


def _of_numbers(
    total: MarkdownRow, stated: Printed | None, cells: Sequence[str], name: str
) -> Iterator[Mark]:
    parts = [only(cell) for cell in cells if any(character.isdigit() for character in cell)]
    found = [part for part in parts if part is not None]
    if stated is None or not found or len(found) != len(parts):
        return
    if any((part.unit, part.is_money) != (stated.unit, stated.is_money) for part in found):
        return
    summed = sum(part.value for part in found)
    slack = stated.half + sum(part.half for part in found if not part.value.is_integer())
    if abs(summed - stated.value) > slack * (1 + 1e-9):
        message = f"the total of {name!r} is {stated.text}: its rows come to {summed:,.10g}"
        yield Mark("error", total.line, message)


def check_percents(document: Document) -> Iterator[Mark]:
    """Recompute every percentage that follows a fraction."""
    for table in document.tables:
        for row in table.rows:
            yield from _row_percents(table, row)
    for text in document.texts:
        for part in re.split(r"[;|]|\.\s", text.text):
            yield from _pairs(text.number, part)


def _row_percents(table: MarkdownTable, row: MarkdownRow) -> Iterator[Mark]:
    with_both = [c for c in row.cells if fraction(c) and list(percents(c))]
    for cell in with_both:
        yield from _pairs(row.line, cell)
    if with_both:
        return
    shares = _shares(table, row)
    stated = [p for cell in row.cells for p in percents(cell)]
    if len(shares) == 1 and len(stated) == 1:
        yield from _compare(row.line, shares[0], stated[0])


def _shares(table: MarkdownTable, row: MarkdownRow) -> list[Fraction]:
    """Return the share of a row: ``x/y``, or its Passed with Failed and Error, or Total columns."""
    columns = {name.lower(): cell for name, cell in zip(table.header, row.cells, strict=False)}
    passed = only(columns.get("passed", ""))
    if passed is not None:
        judged = [only(columns.get(name, "")) for name in ("failed", "error")]
        total = only(columns.get("total", ""))
        if all(judged):
            others = sum(part.value for part in judged if part is not None)
            return [Fraction(int(passed.value), int(passed.value + others))]
        return [Fraction(int(passed.value), int(total.value))] if total is not None else []
    named = zip(table.header, row.cells, strict=False)
    wholes = (fraction(cell) for name, cell in named if name.lower() not in ("n", "samples"))
    return [share for share in wholes if share is not None and share.whole]


def _pairs(line: int, text: str) -> Iterator[Mark]:
    shares, stated = list(fractions(text)), list(percents(text))
    if len(shares) == 1 and len(stated) == 1 and shares[0].whole:
        yield from _compare(line, shares[0], stated[0])


def _compare(line: int, share: Fraction, stated: Printed) -> Iterator[Mark]:
    if not stated.contains(share.percent):
        message = f"{share} is {share.percent:.4g}%, not {stated.text}"
        yield Mark("error", line, message)
    elif share.part != share.whole and stated.value == 100:
        yield Mark("error", line, f"{share} is rounded up to {stated.text}")


def check_fractions(document: Document) -> Iterable[Mark]:
    """Find parts larger than their whole."""
    lines = [(text.number, text.text) for text in document.texts]
    for table in document.tables:
        for row in table.rows:
            cells = zip(table.header, row.cells, strict=False)
            lines.append((row.line, " | ".join(cell for name, cell in cells if "/" not in name)))
    for number, said in lines:
        if not re.search(r"(?i)pass|test|demo|check|succe|%", said):
            continue
        for share in fractions(said):
            if share.part > share.whole and share.whole:
                yield Mark("error", number, f"{share}: more than there are")


def check_rows(document: Document) -> Iterator[Mark]:
    """Check that a row's outcomes add up to the collected tests."""
    names = ("passed", "failed", "error", "skipped")
    for table in document.tables:
        header = [name.lower() for name in table.header]
        if "collected" not in header or not set(names) <= set(header):
            continue
        for row in table.rows:
            cells = dict(zip(header, row.cells, strict=False))
            yield from _collected(row, cells, names)


def _collected(row: MarkdownRow, cells: dict[str, str], names: Sequence[str]) -> Iterator[Mark]:
    stated = only(cells["collected"])
    parts = [only(cells[name]) for name in names]
    if stated is None or None in parts:
        return
    found = sum(part.value for part in parts if part is not None)
    for name, cell in cells.items():
        pair = fraction(cell) if "/" in name else None
        found += pair.part + pair.whole if pair is not None else 0
    if found != stated.value:
        message = f"{row.label}: {stated.value:g} collected, and its outcomes come to {found:g}"
        yield Mark("error", row.line, message)


RULES = (
    DocumentRule(
        "total", "a total that is not the sum of its rows", "Add the rows up again.", check
    ),
    DocumentRule(
        "percent", "a percentage that is not its fraction", "Recompute it.", check_percents
    ),
    DocumentRule(
        "fraction", "a part that is larger than its whole", "Count again.", check_fractions
    ),
    DocumentRule(
        "collected",
        "outcomes that do not come to what was collected",
        "Count the tests again; skipped, missing and not run have their own columns.",
        check_rows,
    ),
)
