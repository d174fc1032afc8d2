"""Rules on ratios and speed-ups, recomputed from the most exact figures."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from reports.document_lint.document import Document, DocumentRule, Mark, MarkdownRow, MarkdownTable
from reports.document_lint.parsing import Measurement, Printed, measurements, quantities, words

_FASTER = re.compile(
    r"(?i)(?<!\d)(?P<percent>\d{1,4}(?:\.\d{1,4})?)\s?%\s{0,3}(?:faster|slower|higher|lower)"
)
_SIMILAR = re.compile(r"(?i)\b(similar|same|comparable|equal|on par)\b")
_RATIO = re.compile(r"(?<![\w.])(~?\d{1,6}(?:\.\d{1,6})?)\s?[x×](?!\w)")
_SPREAD = re.compile(
    r"(?i)\bn\s?=\s?\d|±|\bIQR\b|\bsamples?\b each|min – max|"
    r"\(\d[\d.,]* – \d|\bstd\b|confidence|% CI\b"
)
_SIMILAR_BELOW = 5.0
"""Percent that counts as noise, where a document does not say."""


@dataclass(frozen=True, slots=True)
class RatioOfRow:
    """A row that compares two figures."""

    row: MarkdownRow
    names: tuple[str, str]
    printed: tuple[Printed, Printed]
    exact: tuple[Printed, Printed] | None
    """The same figures elsewhere in the document, less rounded."""
    verdict: str


def comparisons(document: Document) -> Iterator[RatioOfRow]:
    """Return rows whose last cell compares the two before it."""
    found = measurements(document)
    for table in document.tables:
        if len(table.header) != 4 or not re.search(r"(?i)diff|faster|compar", table.header[3]):
            continue
        for row in table.body:
            made = _compared(table, row, found)
            if made is not None:
                yield made


def _compared(
    table: MarkdownTable, row: MarkdownRow, measurements: Sequence[Measurement]
) -> RatioOfRow | None:
    if len(row.cells) < 4:
        return None
    pair = [next(quantities(cell), None) for cell in row.cells[1:3]]
    if pair[0] is None or pair[1] is None or not pair[0].value or not pair[1].value:
        return None
    names = (table.header[1], table.header[2])
    exact = [_elsewhere(measurements, row.label, names[i], p) for i, p in enumerate(pair) if p]
    both = (exact[0], exact[1]) if exact[0] is not None and exact[1] is not None else None
    return RatioOfRow(row, names, (pair[0], pair[1]), both, row.cells[3])


def _elsewhere(
    measurements: Sequence[Measurement], label: str, column: str, printed: Printed
) -> Printed | None:
    """Return the label's figure under a heading that names the column, if it rounds to this one."""
    for measured in measurements:
        under = measured.path[-1] if measured.path else ""
        same = words(measured.label) == words(label) or words(label) - words(measured.label) == {
            "balanc"
        }
        if same and words(column) <= words(under) and printed.contains(measured.value.value):
            return measured.value
    return None


def _difference(pair: tuple[Printed, Printed]) -> float:
    """Return by how many percent the smaller is below the larger."""
    low, high = sorted(p.value for p in pair)
    return 100 * (1 - low / high)


def check_differences(document: Document) -> Iterator[Mark]:
    """Recompute each percentage of a comparison."""
    for made in comparisons(document):
        said = _FASTER.search(made.verdict)
        if said is None:
            continue
        stated = Printed(said[0], float(said["percent"]), 0.5, "%")
        figures = made.exact or made.printed
        found = _difference(figures)
        other = 100 * (max(p.value for p in figures) / min(p.value for p in figures) - 1)
        if not stated.contains(found) and not stated.contains(other):
            source = f"{figures[0].value:g} and {figures[1].value:g}"
            where = "as they stand unrounded in this document" if made.exact else "as printed"
            message = f"{made.row.label}: {made.verdict!r}: {source} {where} give {found:.1f}%"
            yield Mark("error", made.row.line, message)
        yield from _winner(made)


def _winner(made: RatioOfRow) -> Iterator[Mark]:
    smaller = made.names[0 if made.printed[0].value < made.printed[1].value else 1]
    said = made.verdict.split(" ")[0]
    timed = made.printed[0].seconds is not None and "faster" in made.verdict
    if timed and any(said in name for name in made.names) and said not in smaller:
        yield Mark("error", made.row.line, f"{made.row.label}: {smaller} is the faster one")


def check_similar(document: Document) -> Iterator[Mark]:
    """Check that one threshold decides what counts as similar."""
    every = list(comparisons(document))
    similar = [made for made in every if _SIMILAR.search(made.verdict)]
    if not similar or re.search(r"similar[^.|]{0,40}[<≤]|within \d", document.words):
        return
    judged = [made for made in every if made not in similar]
    least = min((_difference(made.printed) for made in judged), default=100.0)
    for made in similar:
        printed = _difference(made.printed)
        exact = f", {_difference(made.exact):.1f}% unrounded" if made.exact else ""
        message = (
            f"{made.row.label}: {made.verdict!r} at {printed:.0f}% as printed{exact}; what counts "
            f"as similar is not stated, and {least:.0f}% is called faster"
        )
        level = printed >= least or printed > _SIMILAR_BELOW
        yield Mark("error" if level else "note", made.row.line, message)


def check_ratios(document: Document) -> Iterator[Mark]:
    """Recompute each ``1.79x`` from the two figures before it."""
    for table in document.tables:
        for row in table.body:
            if _reference_column(table) is None:
                yield from _in_row(row)
            else:
                yield from _against_first(table, row)


def _in_row(row: MarkdownRow) -> Iterator[Mark]:
    for at, cell in enumerate(row.cells):
        stated = _stated(cell)
        before = [next(quantities(c), None) for c in row.cells[max(0, at - 2) : at]]
        if stated is None or len(before) != 2 or at < 3:
            continue
        a, b = before
        if a is None or b is None or a.unit != b.unit or not (a.value and b.value):
            continue
        if not any(_may_be(stated, top, bottom) for top, bottom in ((a, b), (b, a))):
            message = f"{row.label}: {cell} of {a.text} and {b.text}: it is {a.value / b.value:.3g}"
            yield Mark("error", row.line, message)


def _stated(cell: str) -> Printed | None:
    found = re.fullmatch(r"~?(\d+(?:\.\d+)?)\s?[x×]", cell.strip())
    if found is None:
        return None
    decimals = len(found[1].partition(".")[2])
    return Printed(found[0], float(found[1]), 10.0**-decimals / 2, "x")


def _may_be(stated: Printed, top: Printed, bottom: Printed) -> bool:
    if bottom.low <= 0:
        return True
    return top.low / bottom.high <= stated.high and stated.low <= top.high / bottom.low


def _against_first(table: MarkdownTable, row: MarkdownRow) -> Iterator[Mark]:
    """Check a column that compares each row with the one at 1.0x."""
    column = _reference_column(table)
    if column is None or column >= len(row.cells):
        return
    stated = _stated(row.cells[column])
    reference = [r for r in table.body if _stated(r.cells[column]) and _one(r.cells[column])]
    if stated is None or not reference or row is reference[0]:
        return
    wrong = []
    for at in range(1, column):
        a, b = (next(quantities(r.cells[at]), None) for r in (row, reference[0]))
        if a is not None and b is not None and b.value and not _may_be(stated, a, b):
            wrong.append(f"{a.value / b.value:.2f} for {table.header[at]}")
    if wrong:
        message = f"{row.label}: one figure, {stated.text}, for all of them: it is {wrong[0]}"
        yield Mark("warning", row.line, message)


def _reference_column(table: MarkdownTable) -> int | None:
    return table.column(r"^vs\b|speed-?up vs")


def _one(cell: str) -> bool:
    stated = _stated(cell)
    return stated is not None and stated.value == 1


def check_spread(document: Document) -> Iterator[Mark]:
    """Find speed-ups without the number and spread of samples."""
    counted = any(name.lower() in ("n", "samples") for t in document.tables for name in t.header)
    if counted or _SPREAD.search("\n".join(line.text for line in document.everything)):
        return
    found = [
        (line.number, match[0])
        for line in document.everything
        for match in (*_RATIO.finditer(line.text), *_FASTER.finditer(line.text))
        if not _one(match[0])
    ]
    if found:
        told = ", ".join(f"{text} (line {line})" for line, text in sorted(found)[:6])
        message = f"ratios without a number of samples and a spread: {told}"
        yield Mark("warning", min(found)[0], message)


_BASE = re.compile(r"(?i)^(?:baseline|standard|reference|before|fp32|std)\b\s*(?P<what>.*)$")
_TELLS = re.compile(r"(?i)(?:lower|higher) is better")
"""Marks of tables that state which direction is better."""
_LOWER = re.compile(r"(?i)time|latency|loss|memory|size|duration")


def check_slower(document: Document) -> Iterator[Mark]:
    """Find features that should be better than the baseline, and are not."""
    for table in document.tables:
        for base in table.body:
            found = _BASE.match(base.label)
            if found is None or not _LOWER.search(found["what"]) or _TELLS.search(base.label):
                continue
            for row in table.body:
                rest = row.label.lower()
                if row is not base and rest.endswith(found["what"].lower()):
                    yield from _slower(table, base, row)


def _slower(table: MarkdownTable, base: MarkdownRow, row: MarkdownRow) -> Iterator[Mark]:
    for name, a, b in zip(table.header[1:], base.cells[1:], row.cells[1:], strict=False):
        before, after = next(quantities(a), None), next(quantities(b), None)
        if before is None or after is None or not before.value or before.unit != after.unit:
            continue
        change = 100 * (after.value / before.value - 1)
        if after.low > before.high:
            message = (
                f"{row.label} of {name} is {after.text}, {base.label} {before.text}: "
                f"+{change:.1f}%, worse than the baseline"
            )
            yield Mark("warning", row.line, message)


RULES = (
    DocumentRule("ratio", "a ratio that its figures do not give",
         "Recompute it for each configuration.", check_ratios),
    DocumentRule("difference", "a percentage from rounded figures",
         "Compare unrounded figures.", check_differences),
    DocumentRule("similar", "no rule, or no single one, for what counts as similar",
         "State the rule, and apply it to unrounded figures.", check_similar),
    DocumentRule("spread", "speed-ups without samples and spread",
         "Print n and the spread beside each ratio.", check_spread),
    DocumentRule("slower", "what should be better than its baseline, and is worse",
         "Say that it is slower; a pass of something else does not cover it.", check_slower),
)  # fmt: skip
