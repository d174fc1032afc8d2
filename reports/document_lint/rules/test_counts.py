"""Rules on counts, against the listed tests."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from reports.document_lint.document import (
    Document,
    DocumentRule,
    Heading,
    Line,
    Mark,
    MarkdownTable,
    Path,
)
from reports.document_lint.parsing import fractions, whole

_LISTED = re.compile(
    r"^(?P<name>[\w./:\[\]<>=, -]*\btest_\w[^\s]*)\s+[-–—:]\s+"
    r"(?P<outcome>PASSED|FAILED|SKIPPED|ERROR|XFAIL\w*|XPASS\w*|MISSING|NOT RUN)\b(?P<rest>.*)$"
)
_IN_TITLE = re.compile(r"\((\d[\d,]*) tests?\)")


@dataclass(frozen=True, slots=True)
class ListedTest:
    """One test in a list of them."""

    line: int
    name: str
    outcome: str
    reason: str
    group: str
    """The enclosing heading."""


def listed(document: Document) -> tuple[ListedTest, ...]:
    """Return every listed test with an outcome."""
    return tuple(test for item in document.items if (test := _test(item)) is not None)


def _test(item: Line) -> ListedTest | None:
    found = _LISTED.match(item.text)
    if found is None:
        return None
    group = item.path[-1] if item.path else ""
    reason = found["rest"].strip(" ()")
    return ListedTest(item.number, found["name"].strip(), found["outcome"], reason, group)


def class_table(document: Document, path: Path | None = None) -> MarkdownTable | None:
    """Return a section's table of test classes and counts."""
    for table in document.tables:
        if path is not None and table.path != path:
            continue
        first = table.header[0] if table.header else ""
        if re.search(r"(?i)class|suite|module", first) and table.column(r"^tests$") is not None:
            return table
    return None


def check_counts(document: Document) -> Iterator[Mark]:
    """Check stated numbers of tests and classes against the table and the list."""
    tests = listed(document)
    by_group = Counter(test.group for test in tests)
    for heading in document.headings:
        yield from _heading(heading, by_group)
    table = class_table(document)
    if table is not None:
        yield from _classes(table, by_group)
    for pair in document.pairs:
        stated = whole(pair.value)
        if stated is None:
            continue
        key = pair.key.lower()
        table = class_table(document, pair.path) or class_table(document)
        if key == "total tests":
            yield from _total(pair.line, stated, len(tests), "the list has")
            summed = _sum(table) if table is not None else None
            yield from _total(pair.line, stated, summed, "the table's rows come to")
        elif key == "test classes" and table is not None and len(table.body) != stated:
            message = f"{stated} test classes: the table has {len(table.body)}"
            yield Mark("error", pair.line, message)


def _heading(heading: Heading, by_group: Counter[str]) -> Iterator[Mark]:
    found = _IN_TITLE.search(heading.title)
    if found and heading.title in by_group:
        stated = int(found[1].replace(",", ""))
        if stated != by_group[heading.title]:
            message = f"{heading.title}: {by_group[heading.title]} are listed"
            yield Mark("error", heading.line, message)


def _classes(table: MarkdownTable, by_group: Counter[str]) -> Iterator[Mark]:
    column = table.column(r"^tests$")
    for row in table.body:
        stated = whole(row.cells[column]) if column is not None else None
        group = next((g for g in by_group if g.split(" (")[0] == row.label), None)
        if stated is not None and group is not None and by_group[group] != stated:
            message = f"{row.label} has {stated} tests, and {by_group[group]} are listed"
            yield Mark("error", row.line, message)


def _sum(table: MarkdownTable) -> int | None:
    column = table.column(r"^tests$")
    found = [whole(row.cells[column]) for row in table.body] if column is not None else []
    return sum(n for n in found if n is not None) if found and None not in found else None


def _total(line: int, stated: int, count: int | None, words: str) -> Iterator[Mark]:
    if count and stated != count:
        yield Mark("error", line, f"{stated} tests in all: {words} {count}")


def check_skips(document: Document) -> Iterator[Mark]:
    """Find skipped tests that are counted as passed."""
    tests = listed(document)
    not_passed = [test for test in tests if test.outcome != "PASSED"]
    if not not_passed:
        return
    passed = len(tests) - len(not_passed)
    names = ", ".join(f"{test.name} is {test.outcome}" for test in not_passed[:3])
    for table in document.tables:
        for row in table.rows:
            for share in fractions(" ".join(row.cells)):
                if share.part == share.whole == len(tests):
                    message = f"{share} passed: {passed} are listed as passed, and {names}"
                    yield Mark("error", row.line, message)
    yield from _classes_with(document, not_passed)
    for text in document.texts:
        if re.search(rf"(?i)\ball {len(tests)} tests? pass", text.text):
            yield Mark("error", text.number, f"'all {len(tests)} tests pass' is false: {names}")


def _classes_with(document: Document, not_passed: list[ListedTest]) -> Iterator[Mark]:
    table = class_table(document)
    for row in table.body if table is not None else ():
        inside = [t for t in not_passed if t.group.split(" (")[0] == row.label]
        if inside and any(re.fullmatch(r"\W*PASS(ED)?", cell) for cell in row.cells):
            said = ", ".join(f"{t.name} is {t.outcome}" for t in inside[:3])
            yield Mark("error", row.line, f"{row.label} is PASSED throughout, and {said}")


def check_one_list(document: Document) -> Iterator[Mark]:
    """Find two platforms with identical outcome lists."""
    tests, table = listed(document), class_table(document)
    if not tests or table is None:
        return
    columns = [name for name in table.header if re.search(r"(?i)\bstatus$", name)]
    names = Counter((test.group, test.name) for test in tests)
    if len(columns) > 1 and max(names.values()) < len(columns):
        said = " and ".join(columns)
        message = f"{said} stand for {len(tests)} tests that are listed once: which platform's?"
        yield Mark("error", table.line, message)


RULES = (
    DocumentRule("count", "a stated count that the document's own tables or lists do not give",
         "Count again, or list what is left out.", check_counts),
    DocumentRule("skip", "a skipped test inside a count or a claim of passed ones",
         "Count it beside the passed tests, never among them.", check_skips),
    DocumentRule("one-list", "one list of outcomes for several platforms",
         "Give each platform its own results, or its own report.", check_one_list),
)  # fmt: skip
