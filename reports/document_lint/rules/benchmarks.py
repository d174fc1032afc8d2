"""Rules that compare benchmark figures with each other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from statistics import median

from reports.document_lint.document import Document, DocumentRule, Mark, MarkdownRow, MarkdownTable
from reports.document_lint.parsing import (
    Measurement,
    Printed,
    fractions,
    measurements,
    only,
    quantities,
)

_OUTLIER = 50
"""Factor over the median of its siblings that marks an outlier."""
_TOLERANCE = 0.01
_BATCH, _SEQUENCE = r"^batch", r"^seq"
_TIME, _RATE = r"time|latency|^ms", r"throughput|tok/s|tokens|samples"


def check_throughput(document: Document) -> Iterator[Mark]:
    """Check throughput: batch times sequence over time, or batch over latency."""
    for table in document.tables:
        columns = [table.column(p) for p in (_BATCH, _SEQUENCE, _TIME, _RATE)]
        batch, sequence, time, rate = columns
        if batch is None or time is None or rate is None or batch == time:
            continue
        for row in table.body:
            yield from _throughput(table, row, (batch, sequence, time, rate))


def _throughput(
    table: MarkdownTable, row: MarkdownRow, columns: tuple[int, int | None, int, int]
) -> Iterator[Mark]:
    batch, sequence, time, rate = columns
    count, took, stated = only(row.cells[batch]), _first(row, time), _first(row, rate)
    length = only(row.cells[sequence]) if sequence is not None else None
    if count is None or took is None or stated is None or not (sequence is None or length):
        return
    scale = took.seconds or _scale(table.header[time])
    if scale is None or took.low <= 0:
        return
    items = count.value * (length.value if length is not None else 1.0)
    low, high = items / (took.high * scale), items / (took.low * scale)
    if stated.low > high * (1 + _TOLERANCE) or stated.high < low * (1 - _TOLERANCE):
        found = items / took.value / scale
        message = f"{stated.text}: {items:,.0f} items in {took.text} are {found:,.6g}/s"
        yield Mark("error", row.line, message)


def _first(row: MarkdownRow, column: int) -> Printed | None:
    return next(quantities(row.cells[column]), None) if column < len(row.cells) else None


def _scale(header: str) -> float | None:
    found = re.search(r"\((ms|s|us|µs|ns)\b", header)
    return {"ms": 1e-3, "s": 1.0, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}[found[1]] if found else None


def _groups(document: Document) -> dict[tuple[int, str, str], list[Measurement]]:
    """Group measurements by title and unit."""
    found: dict[tuple[int, str, str], list[Measurement]] = {}
    for made in measurements(document):
        found.setdefault((made.block, made.group, made.value.unit), []).append(made)
    return found


def check_cold(document: Document) -> Iterator[Mark]:
    """Find an outlier among measurements: the first one included warm-up."""
    for group in _groups(document).values():
        made = max(group, key=lambda measured: measured.value.value)
        others = [o.value.value for o in group if o is not made and o.value.value > 0]
        if len(others) >= 3 and made.value.value > _OUTLIER * median(others):
            told = f"{min(others):g} to {max(others):g}"
            message = (
                f"{made.label}: {made.value.text} among siblings of {told} {made.value.unit}: "
                "a cold start told as a steady state"
            )
            yield Mark("warning", made.line, message)


def check_derived(document: Document) -> Iterator[Mark]:
    """Find rates that were computed from the time: rate x time is the same in every row."""
    for group in _groups(document).values():
        pairs = [(made, *pair) for made in group if (pair := _time_and_rate(made)) is not None]
        products = [time * rate for _, time, rate in pairs]
        if len(products) >= 3 and max(products) <= 1.005 * min(products):
            message = (
                f"time x rate is {products[0]:,.0f} in each of {len(pairs)} lines: the rates are "
                "derived from the times with a batch that is not stated"
            )
            yield Mark("note", pairs[0][0].line, message)


def _time_and_rate(made: Measurement) -> tuple[float, float] | None:
    times = [q.value * q.seconds for q in made.values if q.seconds is not None]
    rates = [q.value for q in made.values if q.is_rate]
    return (times[0], rates[0]) if times and rates else None


def check_units(document: Document) -> Iterator[Mark]:
    """Check the number of benchmarks against the printed ones."""
    printed: dict[tuple[str, ...], int] = {}
    for made in measurements(document):
        if made.value.seconds is not None or made.value.is_rate:
            printed[made.path] = printed.get(made.path, 0) + 1
    most = max(printed.values(), default=0)
    if not most:
        return
    for table in document.tables:
        for row in table.body:
            share = next(fractions(" ".join(row.cells[1:])), None)
            if share is None or not re.search(r"(?i)benchmark", row.label):
                continue
            if share.whole > 3 * most:
                message = (
                    f"{share} benchmarks, and at most {most} are printed for a platform: what one "
                    "benchmark is, is not defined"
                )
                yield Mark("warning", row.line, message)


_DIFFERENCE = re.compile(
    r"(?i)\b(?:max[ _]?)?diff(?:erence)?\b\s{0,3}[=:]\s{0,3}"
    r"(\d{1,9}(?:\.\d{1,9})?e[-+]?\d{1,3}|\d{0,9}\.\d{1,9})"
)


def check_tolerance(document: Document) -> Iterator[Mark]:
    """Find accepted differences without a stated tolerance."""
    if re.search(r"toleran|\batol\b|\brtol\b|threshold|allowed", document.words):
        return
    found = [
        (line.number, match[0])
        for line in document.everything
        for match in _DIFFERENCE.finditer(line.text)
        if not re.fullmatch(r"0(?:\.0+)?", match[1])
    ]
    if found:
        told = ", ".join(text for _, text in found[:4])
        message = f"{told}: no tolerance is stated that it was held against"
        yield Mark("warning", found[0][0], message)


RULES = (
    DocumentRule("throughput", "a throughput that batch, sequence and time do not give",
         "Recompute it, or say what was measured.", check_throughput),
    DocumentRule("cold-start", "a first measurement among steady ones",
         "Warm up, or report the first one by itself.", check_cold),
    DocumentRule("derived-rate", "rates that repeat the times",
         "State the batch; one of the two is enough.", check_derived),
    DocumentRule("unit-of-count", "a count of benchmarks that nobody can recount",
         "Say what is counted: metrics, iterations or programs.", check_units),
    DocumentRule("tolerance", "differences without a tolerance",
         "Print the tolerance beside the difference.", check_tolerance),
)  # fmt: skip
