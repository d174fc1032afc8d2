"""Rules on statuses: none is better than its parts."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from reports.document_lint.document import Document, DocumentRule, Mark, MarkdownRow, Pair
from reports.document_lint.parsing import FRACTION, Fraction, fractions

_GOOD = re.compile(
    r"(?i)\ball pass|\bcomplete\b|\bPASS(?:ED)?\b|production.ready|\bsuccess|✅|fully validated"
)
_PASS = re.compile(r"\bPASS(?:ED)?\b|✅")
_BAD = re.compile(r"(?i)\bpartial\b|\blimited\b|\bnot available\b|\bfail(?:s|ed|ing|ure)?\b|⚠|❌")
_MISSING = frozenset({"--", "-", "—", "–", "n/a", "tbd", "?"})
_PLATFORM = re.compile(r"(?i)\b(?:aws|gcp|azure|local|cpu|gpu|tpu|A10G|L4|T4|[AHV]\d00|MI\d+X)\b")
"""Headings of columns with one platform each."""
_NO_COUNT = re.compile(r"(?i)[a-z]/[a-z]|XFailed|Missing|\d{4}/\d|kB|/s\b|/h\b")


def overall(document: Document) -> tuple[Pair, ...]:
    """Return the document's own verdicts of full success."""
    found = []
    for pair in document.pairs:
        good = pair.key.lower() in ("status", "outcome", "result") and len(pair.path) <= 1
        if good and _GOOD.search(pair.value) and not re.search(r"(?i)fail|partial", pair.value):
            found.append(pair)
    return tuple(found)


def _full(document: Document) -> tuple[int, str] | None:
    """Return where the document claims full success, and how."""
    for pair in overall(document):
        return pair.line, f"{pair.key}: {pair.value}"
    for text in document.prose:
        if re.search(r"\bCOMPLETE\b|(?i:fully validated)", text.text):
            return text.number, text.text[:90]
    return None


def check(document: Document) -> Iterator[Mark]:
    """Find statuses in the document that are worse than its verdict."""
    verdict = _full(document)
    if verdict is None:
        return
    _, said = verdict
    for line, why in worse(document):
        yield Mark("error", line, f"under {said!r}: {why}")


def worse(document: Document) -> Iterator[tuple[int, str]]:
    """Yield (line, text) of everything that is not a full success."""
    for table in document.tables:
        for row in table.body if "Outcome" not in table.header else ():
            text = " | ".join(row.cells)
            short = _short(text)
            if _BAD.search(text):
                yield row.line, f"{text}"
            elif short is not None:
                yield row.line, f"{row.label} is {short}"
    for item in document.items:
        short = _short(item.text)
        if short is not None:
            yield item.number, f"{item.text}"


def _short(text: str) -> Fraction | None:
    """Return a share that is not whole."""
    if _NO_COUNT.search(FRACTION.sub("", text)):
        return None
    return next((f for f in fractions(text) if f.part < f.whole), None)


def check_rows(document: Document) -> Iterator[Mark]:
    """Find rows with PASS and a count that is not full."""
    for table in document.tables:
        for row in table.body:
            if not _PASS.search(" ".join(row.cells)):
                continue
            short = _short(" | ".join(row.cells)) or _columns(table.header, row)
            if short is not None and "judged" not in " ".join(row.cells):
                yield Mark("error", row.line, f"{row.label} is PASS with {short}")


def _columns(header: Sequence[str], row: MarkdownRow) -> Fraction | None:
    cells = dict(zip((name.lower() for name in header), row.cells, strict=False))
    passed, total = cells.get("passed", ""), cells.get("total", "")
    if passed.isdigit() and total.isdigit() and int(passed) < int(total):
        return Fraction(int(passed), int(total))
    failed = [cells.get(name, "0") for name in ("failed", "error")]
    bad = sum(int(cell) for cell in failed if cell.isdigit())
    return Fraction(int(passed), int(passed) + bad) if bad and passed.isdigit() else None


def check_missing(document: Document) -> Iterator[Mark]:
    """Find empty cells without a reason under a full verdict."""
    verdicts = overall(document)
    for table in document.tables:
        empty = [
            (row, name)
            for row in table.body
            for name, cell in zip(table.header[1:], row.cells[1:], strict=False)
            if cell.lower() in _MISSING and _PLATFORM.search(name) and _others(row)
        ]
        if not empty or not verdicts:
            continue
        names = ", ".join(f"{row.label} of {name}" for row, name in empty[:4])
        message = f"not measured, and no word why, under {verdicts[0].value!r}: {names}"
        yield Mark("warning", empty[0][0].line, message)


def _others(row: MarkdownRow) -> bool:
    return any(any(ch.isdigit() for ch in cell) for cell in row.cells[1:])


RULES = (
    DocumentRule("status", "a verdict over parts that are not as good",
         "A verdict is its worst part's, or names what it leaves out.", check),
    DocumentRule("row-status", "a row that says PASS over a count that is not full",
         "The row is partial, or failed.", check_rows),
    DocumentRule("missing", "cells without a value under a full verdict",
         "Say of each empty cell why it is empty.", check_missing),
)  # fmt: skip
