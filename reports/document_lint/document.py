"""A Markdown report as tables, lists, blocks and sentences with line numbers; rules on it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from orchestrator.domain.lint_findings import Level
from orchestrator.domain.run_record import Evidence

Path = tuple[str, ...]
"""Titles of the enclosing headings, outermost first."""

TOTAL = re.compile(r"(?i)^\W*(?:grand\s+)?total\b")


@dataclass(frozen=True, slots=True)
class Line:
    """A line of text with its position."""

    number: int
    """From 1."""
    text: str
    """Text without Markdown's marks."""
    path: Path = ()


@dataclass(frozen=True, slots=True)
class MarkdownRow:
    """A row of a table."""

    line: int
    cells: tuple[str, ...]
    is_strong: bool = False
    """Whether its label and another cell are bold."""
    is_total: bool = False
    """Whether it sums up the rows above it."""

    @property
    def label(self) -> str:
        """Return its first cell."""
        return self.cells[0] if self.cells else ""


@dataclass(frozen=True, slots=True)
class MarkdownTable:
    """A table of a Markdown document."""

    line: int
    path: Path
    header: tuple[str, ...]
    rows: tuple[MarkdownRow, ...]

    @property
    def body(self) -> tuple[MarkdownRow, ...]:
        """Return rows that are no totals."""
        return tuple(row for row in self.rows if not row.is_total)

    @property
    def totals(self) -> tuple[MarkdownRow, ...]:
        """Return rows that are totals."""
        return tuple(row for row in self.rows if row.is_total)

    def column(self, pattern: str) -> int | None:
        """Return the first column whose heading matches."""
        found = (i for i, name in enumerate(self.header) if re.search(pattern, name, re.IGNORECASE))
        return next(found, None)


@dataclass(frozen=True, slots=True)
class Pair:
    """``**Key**: value``, a row of a two-column table, or ``Key: value`` in a block."""

    line: int
    path: Path
    key: str
    value: str


@dataclass(frozen=True, slots=True)
class FencedBlock:
    """A fenced block of a Markdown document."""

    line: int
    path: Path
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class Heading:
    """A heading of a Markdown document."""

    line: int
    level: int
    title: str
    path: Path


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed Markdown report."""

    name: str
    replaced: int
    """Number of bytes that were not UTF-8."""
    garbled: tuple[int, ...]
    """Lines that were decoded wrongly, corrected here."""
    headings: tuple[Heading, ...] = ()
    tables: tuple[MarkdownTable, ...] = ()
    items: tuple[Line, ...] = ()
    """List entries, one per line."""
    prose: tuple[Line, ...] = ()
    """Lines of paragraphs."""
    blocks: tuple[FencedBlock, ...] = ()
    pairs: tuple[Pair, ...] = ()
    words: str = field(default="", repr=False)
    """The whole text in lower case."""

    @property
    def title(self) -> str:
        """Return the first heading."""
        return self.headings[0].title if self.headings else self.name

    @property
    def texts(self) -> tuple[Line, ...]:
        """Return sentences of paragraphs and list entries, in document order."""
        return tuple(sorted((*self.prose, *self.items), key=lambda line: line.number))

    @property
    def everything(self) -> Iterator[Line]:
        """Return every non-empty line, tables and blocks included."""
        yield from self.texts
        for heading in self.headings:
            yield Line(heading.line, heading.title, heading.path)
        for table in self.tables:
            for row in table.rows:
                yield Line(row.line, " | ".join(row.cells), table.path)
        for block in self.blocks:
            yield from block.lines


@dataclass(frozen=True, slots=True)
class Mark:
    """The finding of a rule at a line."""

    level: Level
    line: int
    message: str


Check = TypeVar("Check", bound=Callable[..., Iterable[object]])


# Without slots: with them, Python 3.11 cannot make a frozen generic by the name of its kind.
@dataclass(frozen=True)
class Rule(Generic[Check]):
    """A rule on reports."""

    id: str
    says: str
    """Description of its findings."""
    advice: str
    """What to do about a finding."""
    check: Check


DocumentRule = Rule[Callable[[Document], Iterable[Mark]]]
"""A rule on one document."""
AcrossRule = Rule[Callable[[Sequence[Document]], Iterable[tuple[Document, Mark]]]]
"""A rule on several documents together."""
EvidenceRule = Rule[Callable[[Document, Evidence], Iterable[Mark]]]
"""A rule on a document and the results of a run."""
