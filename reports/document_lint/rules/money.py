"""Rules on costs, against durations and prices of all documents."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from reports.document_lint.document import (
    AcrossRule,
    Document,
    DocumentRule,
    Mark,
    MarkdownRow,
    MarkdownTable,
)
from reports.document_lint.parsing import Printed, quantities
from reports.document_lint.rules.hardware import boards_in

_PRICE = re.compile(r"~?\$\s?\d+(?:\.\d+)?\s?(?:/|per |an )\s?(?:h|hr|hour)\b")
_DATED = re.compile(r"(?i)\b20\d\d-\d\d|\bas of\b|price list|fetched|on[- ]demand|spot")


@dataclass(frozen=True, slots=True)
class CostRow:
    """A row with a duration and a cost."""

    row: MarkdownRow
    took: Printed
    cost: Printed
    price: Printed | None
    """Price per hour, where the row states it."""
    column: str
    """Heading of the cost's column, in lower case."""

    @property
    def hours(self) -> float:
        """Return the duration in hours."""
        return self.took.value * (self.took.seconds or 0.0) / 3600

    @property
    def implied(self) -> float:
        """Return the price per hour that the cost implies."""
        return self.cost.value / self.hours


def cost_rows(document: Document) -> Iterator[CostRow]:
    """Return table rows with a duration and a cost."""
    for table in document.tables:
        took = table.column(r"billed")
        took = table.column(r"duration") if took is None else took
        cost = _machine_column(table)
        cost = table.column(r"cost") if cost is None or took is None else cost
        if took is None or cost is None or took == cost:
            continue
        price = table.column(r"price|rate|/h")
        for row in table.body:
            made = _row(table, row, (took, cost, price))
            if made is not None:
                yield made


def _machine_column(table: MarkdownTable) -> int | None:
    """Return the column with the machine's part of each cost."""
    named = [at for at, name in enumerate(table.header) if name.lower() == "machine"]
    paid = (at for at in named if any("$" in row.cells[at] for row in table.rows))
    return next(paid, None)


def _row(
    table: MarkdownTable, row: MarkdownRow, columns: tuple[int, int, int | None]
) -> CostRow | None:
    took, cost, price = columns
    if max(took, cost) >= len(row.cells):
        return None
    time = next((q for q in quantities(row.cells[took]) if q.seconds), None)
    money = next((q for q in quantities(row.cells[cost]) if q.is_money), None)
    if time is None or money is None or not time.value:
        return None
    hourly = next((q for q in quantities(row.cells[price]) if q.is_money), None) if price else None
    return CostRow(row, time, money, hourly, table.header[cost].lower())


def check_cost(document: Document) -> Iterator[Mark]:
    """Check duration times the row's own price."""
    rows = list(cost_rows(document))
    beside = "disk" in document.words
    for made in rows:
        if made.price is not None and not (beside and _is_above(made, made.price)):
            yield from _product(made, made.price, "")
    yield from _equal(rows)
    about = [made for made in rows if made.took.is_about]
    if about:
        message = (
            f"{about[0].took.text}: a rounded duration under a cost; whether starting and "
            "stopping, which is billed too, is in it, is not said"
        )
        yield Mark("warning", about[0].row.line, message)


def _product(made: CostRow, price: Printed, source: str) -> Iterator[Mark]:
    found = made.hours * price.value
    slack = made.cost.half + made.hours * price.half + made.took.half * _hourly(made, price)
    slack += _BEGUN_S / 3600 * price.value * (not made.took.is_about)
    if abs(found - made.cost.value) > slack:
        message = (
            f"{made.row.label}: {made.took.text} x {price.text}{source} = ${found:.3f}, "
            f"not {made.cost.text}"
        )
        yield Mark("error", made.row.line, message)


def _is_above(made: CostRow, price: Printed) -> bool:
    """Whether the cost exceeds the machine's part, as with disks and addresses."""
    return made.cost.value > made.hours * price.value and "machine" not in made.column


def _hourly(made: CostRow, price: Printed) -> float:
    """Return the cost of half a step of the duration; 0 for approximate ones."""
    return 0.0 if made.took.is_about else (made.took.seconds or 0.0) / 3600 * price.value


_BEGUN_S = 1.0
"""Billing granularity of machines, in seconds."""


def _equal(rows: Sequence[CostRow]) -> Iterator[Mark]:
    """Find different machines with the same price."""
    if len(rows) > 1 and all(made.price is None for made in rows):
        implied = {f"{made.implied:.2f}" for made in rows}
        labels = {made.row.label for made in rows}
        if len(implied) == 1 and len(labels) == len(rows):
            message = (
                f"{' and '.join(sorted(labels))} both come to ${implied.pop()} an hour: "
                "no price is stated, and different machines cost differently"
            )
            yield Mark("warning", rows[-1].row.line, message)


def check_prices(document: Document) -> Iterator[Mark]:
    """Find hourly prices without day, region and market."""
    for line in document.texts:
        found = [match[0] for match in _PRICE.finditer(line.text)]
        if found and not (_DATED.search(line.text) or "prices:" in document.words):
            told = " and ".join(found)
            message = f"{told}: no date, no region and no market (on-demand or spot) is stated"
            yield Mark("warning", line.number, message)


def check_across(documents: Sequence[Document]) -> Iterator[tuple[Document, Mark]]:
    """Check a cost against a price that another document states for the board."""
    prices = {
        board: (price, other)
        for other in documents
        for board, price in _prices(other)
    }  # fmt: skip
    for document in documents:
        for made in cost_rows(document):
            for board in boards_in(" ".join(made.row.cells)):
                price, other = prices.get(board.name, (None, None))
                if made.price is None and price is not None and other is not None:
                    source = f" (the price of {other.name})" if other is not document else ""
                    for mark in _product(made, price, source):
                        yield document, mark


def _prices(document: Document) -> Iterator[tuple[str, Printed]]:
    """Return prices stated for a board; of two, the first is the subject's."""
    for line in document.texts:
        stated = [q for m in _PRICE.finditer(line.text) for q in quantities(m[0]) if q.is_money]
        boards = boards_in(line.text)
        if stated and len(boards) == 1:
            yield boards[0].name, stated[0]


RULES = (
    DocumentRule("cost", "a cost that duration and price do not give",
         "Bill the seconds from launch until the machine is gone at the price of that day.",
         check_cost),
    DocumentRule("price", "a price without date, region or market",
         "Say when, where and for which market it was read.", check_prices),
)  # fmt: skip
ACROSS = (
    AcrossRule("cost", "a cost against a price stated elsewhere",
               "Bill the seconds from launch until the machine is gone at the price of that day.",
               check_across),
)  # fmt: skip
