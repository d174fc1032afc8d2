"""Parses a foreign report's text to a `Document`: tables, claims, measurements, signatures."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

import ftfy
from ftfy.badness import is_bad
from markdown_it import MarkdownIt
from markdown_it.token import Token

from orchestrator.domain.lint_findings import ForeignDocument
from reports.document_lint.document import (
    TOTAL,
    Document,
    FencedBlock,
    Heading,
    Line,
    MarkdownRow,
    MarkdownTable,
    Pair,
    Path,
)

_DIGITS = r"\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+(?:\.\d+)?(?:[eE][+-]?\d+)?"
_UNITS = (
    r"ms/iteration|ms/batch|samples/sec(?:ond)?|samples/s|tokens/sec(?:ond)?|tokens/s|tok/s|"
    r"GiB|MiB|KiB|GB|MB|kB|ms|µs|us|ns|min(?:utes?)?|m(?= \d\ds)|hours?|hrs?|h|sec(?:onds?)?|s|/s|"
    r"x"
)
_QUANTITY = re.compile(
    rf"(?P<about>[~≈]\s?)?(?P<money>\$)?(?<![\w.])(?P<number>{_DIGITS})(?P<scale>[KMG](?![A-Za-z]))?"
    rf"\s?(?P<unit>(?:{_UNITS})(?![\w]))?"
)
FRACTION = re.compile(r"(?<![\w.,/])(\d[\d,]{0,12})\s?/\s?(\d[\d,]{0,12})(?![\w/]|\.\d)")
PERCENT = re.compile(r"(?<![\w.])(\d{1,4}(?:\.\d{1,6})?)\s?%")
_LARGEST = 30
"""Maximum power of ten of a number."""
_SCALES = {"K": 1e3, "M": 1e6, "G": 1e9}
_SECONDS = {
    "s": 1.0, "sec": 1.0, "second": 1.0, "seconds": 1.0, "ms": 1e-3, "ms/iteration": 1e-3,
    "ms/batch": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9, "min": 60.0, "m": 60.0,
    "minute": 60.0, "minutes": 60.0, "h": 3600.0, "hr": 3600.0, "hrs": 3600.0, "hour": 3600.0,
    "hours": 3600.0,
}  # fmt: skip
_PER_SECOND = frozenset(
    {"/s", "tok/s", "tokens/s", "tokens/sec", "tokens/second", "samples/s", "samples/sec"}
)


@dataclass(frozen=True, slots=True)
class Printed:
    """A number as a document prints it."""

    text: str
    value: float
    half: float
    """Half a step of its last digit."""
    unit: str = ""
    is_money: bool = False
    is_about: bool = False
    """Whether it is marked with a tilde."""

    @property
    def low(self) -> float:
        """Return the smallest value that prints like this."""
        return self.value - self.half

    @property
    def high(self) -> float:
        """Return the largest value that prints like this."""
        return self.value + self.half

    @property
    def seconds(self) -> float | None:
        """Return one unit of a duration in seconds; else None."""
        return _SECONDS.get(self.unit)

    @property
    def is_rate(self) -> bool:
        """Whether its unit is per second."""
        return self.unit in _PER_SECOND

    def contains(self, value: float, *, slack: float = 1e-9) -> bool:
        """Whether a value may print like this."""
        return abs(value - self.value) <= self.half + slack * max(1.0, abs(value))


@dataclass(frozen=True, slots=True)
class Fraction:
    """A printed fraction: ``x/y``."""

    part: int
    whole: int

    def __str__(self) -> str:
        return f"{self.part:,}/{self.whole:,}"

    @property
    def percent(self) -> float:
        """Return the share in percent; zero for an empty whole."""
        return 100 * self.part / self.whole if self.whole else 0.0


def quantities(text: str) -> Iterator[Printed]:
    """Return every number of a text with its unit."""
    for found in _QUANTITY.finditer(text):
        printed = _printed(found)
        if printed is not None:
            yield printed


def only(text: str) -> Printed | None:
    """Return the single number of a text that holds nothing else but units and signs."""
    found = _QUANTITY.fullmatch(text.strip().strip("*").strip())
    return _printed(found) if found else None


def _printed(match: re.Match[str]) -> Printed | None:
    """Return a number, or None beyond the maximum."""
    exact = Decimal(match["number"].replace(",", ""))
    exponent = exact.as_tuple().exponent
    if not isinstance(exponent, int) or max(abs(exponent), abs(exact.adjusted())) > _LARGEST:
        return None
    scale = _SCALES.get(match["scale"] or "", 1.0)
    step = 10.0**exponent
    return Printed(
        match[0].strip(), float(exact) * scale, step * scale / 2, match["unit"] or "",
        bool(match["money"]), bool(match["about"]),
    )  # fmt: skip


def fractions(text: str) -> Iterator[Fraction]:
    """Return every ``x/y`` of a text."""
    for found in FRACTION.finditer(text):
        yield Fraction(*(int(side.replace(",", "") or 0) for side in found.groups()))


def fraction(text: str) -> Fraction | None:
    """Return the first ``x/y`` of a text."""
    return next(fractions(text), None)


def percents(text: str) -> Iterator[Printed]:
    """Return every percentage of a text."""
    for found in PERCENT.finditer(text):
        digits = found[1]
        decimals = len(digits.partition(".")[2])
        yield Printed(f"{digits}%", float(digits), 10.0**-decimals / 2, "%")


def whole(text: str) -> int | None:
    """Return a text that is one integer as a number."""
    said = text.strip().strip("*").replace(",", "")
    return int(said) if said.isdigit() and len(said) < 13 else None


_LINE = re.compile(r"^[\s\W]{0,8}(?P<label>[A-Za-z][^:|]{0,60}?)\s*:\s+(?P<value>~?\$?\d.*)$")
_RULE = re.compile(r"^\s*[=\-─_*#]{4,}\s*$")


@dataclass(frozen=True, slots=True)
class Measurement:
    """A line of measurements in a block."""

    line: int
    path: Path
    block: int
    """Line of the block."""
    group: str
    """Title above it within the block."""
    label: str
    values: tuple[Printed, ...]

    @property
    def value(self) -> Printed:
        """Return the first value."""
        return self.values[0]


def measurements(document: Document) -> tuple[Measurement, ...]:
    """Return every measurement in the document's blocks."""
    return tuple(m for block in document.blocks for m in _of(block))


def _of(block: FencedBlock) -> Iterator[Measurement]:
    group = ""
    for line in block.lines:
        found = _LINE.match(line.text)
        if found is None:
            if line.text.strip() and not _RULE.match(line.text) and ":" not in line.text:
                group = line.text.strip()
            continue
        values = tuple(q for q in quantities(found["value"]) if q.unit)
        if values:
            yield Measurement(
                line.number, line.path, block.line, group, found["label"].strip(), values
            )


def words(label: str) -> frozenset[str]:
    """Return the words of a label, regardless of order and inflection."""
    return frozenset(word[:6].lower() for word in re.findall(r"[A-Za-z]+\d*", label))


_OURS = re.compile(r"^Run \S+ · evidence sha256 .{1,200} · template \w+ \d+$")
_SIGNED = re.compile(r"^Written by .{1,200}, \d{4}-\d\d-\d\d\b")
_BESIDE = re.compile(r"\(.{1,200}, \d{4}-\d\d-\d\d\): |^(?:The results contradict|No result backs)")


def is_ours(prose: Iterable[Line]) -> bool:
    """Whether a report's last line marks it as rendered by Seatrial."""
    return any(_OURS.match(line.text) for line in prose)


def unsigned(
    lines: Sequence[Line], prose: Sequence[Line], boundaries: Sequence[int]
) -> tuple[Line, ...]:
    """Return the lines without signed annotations and their findings.

    Args:
        lines: Sentences or entries of lists.
        prose: Lines that may have signatures.
        boundaries: Lines of headings, tables, blocks and rules: a signed text goes back to one.
    """
    signed: set[int] = set()
    for line in prose:
        if _SIGNED.match(line.text):
            start = max((at for at in boundaries if at < line.number), default=0)
            signed.update(range(start, line.number + 1))
    return tuple(
        line for line in lines if line.number not in signed and not _BESIDE.search(line.text)
    )


LONGEST = 2_000
"""Maximum characters of a line that is read."""
_NOTE_OF_DASH = re.compile(r"(?<=—)[⁰¹²³⁴⁵⁶⁷⁸⁹]+$")
"""The footnote number behind a dash in Seatrial's reports."""
_BOLD_PAIR = re.compile(r"^\s*\*\*([^*]{1,80}?):?\*\*\s*:?\s*(\S.*)$")
_PLAIN_PAIR = re.compile(r"^\W{0,4}([A-Z][\w ./()-]{0,40}):\s+(\S.*)$")
_KEYS = frozenset({"property", "metric", "key", "name", "field", "setting"})


def read(source: ForeignDocument) -> Document:
    """Parse a document; wrongly decoded lines are corrected first."""
    lines = source.text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    bad = tuple(i for i, line in enumerate(lines, 1) if _is_garbled(line))
    for number in bad:
        lines[number - 1] = ftfy.fix_encoding(lines[number - 1])
    return _Reader(source, lines, bad).document()


def _is_garbled(line: str) -> bool:
    """Whether a line was decoded with the wrong encoding, reversibly."""
    if line.isascii():
        return False
    return is_bad(line) and ftfy.fix_encoding(line) != line


_BOUNDARIES = frozenset({"heading_open", "table_open", "fence", "hr"})


class _Reader:
    """Parser over a document's tokens."""

    def __init__(self, source: ForeignDocument, lines: Sequence[str], bad: tuple[int, ...]) -> None:
        self._name, self._replaced = source.name, source.replaced
        self._lines, self._bad = lines, bad
        self._boundaries: list[int] = []
        self._titles: list[tuple[int, str]] = []
        self._headings: list[Heading] = []
        self._tables: list[MarkdownTable] = []
        self._items: list[Line] = []
        self._prose: list[Line] = []
        self._blocks: list[FencedBlock] = []
        self._pairs: list[Pair] = []

    def document(self) -> Document:
        """Return the parsed document."""
        tokens = MarkdownIt("commonmark").enable("table").parse("\n".join(self._lines))
        depth = 0
        for at, token in enumerate(tokens):
            if token.type in _BOUNDARIES:
                self._boundaries.append(_first(token))
            depth += {"list_item_open": 1, "list_item_close": -1}.get(token.type, 0)
            if token.type == "heading_open":
                self._heading(token, tokens[at + 1])
            elif token.type == "paragraph_open":
                self._paragraph(tokens[at + 1], in_list=depth > 0)
            elif token.type == "table_open":
                self._table(tokens, at)
            elif token.type in ("fence", "code_block"):
                self._block(token)
        ours, prose = is_ours(self._prose), tuple(self._prose)
        if ours:
            self._items = list(unsigned(self._items, prose, self._boundaries))
            self._prose = list(unsigned(self._prose, prose, self._boundaries))
        return Document(
            name=self._name, replaced=self._replaced, garbled=self._bad,
            headings=tuple(self._headings), tables=tuple(self._tables),
            items=tuple(self._items), prose=tuple(self._prose), blocks=tuple(self._blocks),
            pairs=tuple(self._pairs), words="\n".join(self._lines).lower(),
        )  # fmt: skip

    @property
    def _path(self) -> Path:
        return tuple(title for _, title in self._titles)

    def _heading(self, token: Token, inline: Token) -> None:
        level = int(token.tag[1:])
        while self._titles and self._titles[-1][0] >= level:
            self._titles.pop()
        self._titles.append((level, _text(inline)))
        self._headings.append(Heading(_first(token), level, _text(inline), self._path))

    def _paragraph(self, inline: Token, *, in_list: bool) -> None:
        raw = inline.content.split("\n")
        said = _text(inline).split("\n")
        for offset, line in enumerate(said):
            number = _first(inline) + offset
            found = _BOLD_PAIR.match(raw[offset]) if offset < len(raw) else None
            if found:
                value = _text(MarkdownIt().parseInline(found[2])[0]).strip()
                self._pairs.append(Pair(number, self._path, found[1].strip(), value))
            kept = Line(number, line.strip()[:LONGEST], self._path)
            (self._items if in_list else self._prose).append(kept)

    def _table(self, tokens: Sequence[Token], start: int) -> None:
        rows: list[MarkdownRow] = []
        for at in range(start, len(tokens)):
            token = tokens[at]
            if token.type == "table_close":
                break
            if token.type == "tr_open":
                rows.append(MarkdownRow(_first(token), ()))
            elif token.type == "inline":
                rows[-1] = _with(rows[-1], token)
        if not rows:
            return
        made = MarkdownTable(rows[0].line, self._path, rows[0].cells, _totalled(rows[1:]))
        self._tables.append(made)
        if len(made.header) == 2 and made.header[0].lower() in _KEYS:
            self._pairs += [Pair(r.line, self._path, r.label, r.cells[1]) for r in made.rows]

    def _block(self, token: Token) -> None:
        start = _first(token) + (1 if token.type == "fence" else 0)
        said = token.content.rstrip("\n").split("\n")
        lines = tuple(Line(start + i, line[:LONGEST], self._path) for i, line in enumerate(said))
        self._blocks.append(FencedBlock(start - 1, self._path, lines))
        if not token.info.strip():
            self._pairs += _pairs_of(lines)


def _with(row: MarkdownRow, inline: Token) -> MarkdownRow:
    """Return the row with another cell.

    It is strong while its first and any later cell are bold.
    """
    bold = inline.content.startswith("**") and inline.content.endswith("**")
    strong = (bold and not row.cells) or (row.is_strong and (bold or len(row.cells) > 1))
    said = _NOTE_OF_DASH.sub("", _text(inline).strip()[:LONGEST])
    return MarkdownRow(row.line, (*row.cells, said), strong)


def _totalled(rows: Sequence[MarkdownRow]) -> tuple[MarkdownRow, ...]:
    """Return the rows, with totals marked: by name, or a bold last row."""
    strong = [row for row in rows if row.is_strong]
    last = strong[0] if len(strong) == 1 < len(rows) and strong[0] is rows[-1] else None
    return tuple(replace(row, is_total=row is last or bool(TOTAL.match(row.label))) for row in rows)


def _pairs_of(lines: Sequence[Line]) -> Iterator[Pair]:
    for line in lines:
        found = _PLAIN_PAIR.match(line.text)
        if found:
            yield Pair(line.number, line.path, found[1], found[2])


def _first(token: Token) -> int:
    return (token.map[0] if token.map else 0) + 1


def _text(inline: Token) -> str:
    """Return the visible text of a token."""
    parts: list[str] = []
    for child in inline.children or ():
        if child.type in ("text", "code_inline", "html_inline"):
            parts.append(child.content)
        elif child.type in ("softbreak", "hardbreak"):
            parts.append("\n")
    return "".join(parts)
