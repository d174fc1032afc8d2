"""Reads a program's free text: titles of its parts, measurements, and remarks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from orchestrator.adapters.result_parsers.log_notices import LogNotices
from orchestrator.adapters.result_parsers.measurement_lines import (
    LineFigure,
    Marked,
    MeasuredLine,
    Quantity,
    marked,
    measured,
    param_name,
    quantity,
    relation,
    tally_of,
    whole,
)
from orchestrator.domain.parsed_results import ParsedCheck, ParsedFallback, ParsedItem, ParsedMetric

COLUMNS = 20
_GAP = re.compile(r"\s{2,}|\t")
_HEAD = re.compile(r"^(?P<name>[A-Za-z][\w .+/%-]{0,40}?)(?: ?\((?P<unit>[^()\d]{1,20})\))?$")
_TABLE_RULE = re.compile(r"^\s*-{8,}[-\s|+]*$")
_LONGEST = 400


@dataclass(frozen=True, slots=True)
class _Column:
    name: str
    unit: str


@dataclass(slots=True)
class TextTables:
    """Detects tables in lines."""

    _previous: str = ""
    _columns: list[_Column] = field(default_factory=list)

    def see(self, line: str) -> MeasuredLine | None:
        """Return the measurement of a table row; None for other lines."""
        if len(line) > _LONGEST or not line.strip():
            self._columns, self._previous = [], ""
            return None
        if _TABLE_RULE.match(line):
            self._columns = _heads(self._previous)
            return None
        self._previous = line
        return self._row(line) if self._columns else None

    def _row(self, line: str) -> MeasuredLine | None:
        cells = line.split()
        if len(cells) != len(self._columns):
            self._columns = []
            return None
        params: dict[str, int] = {}
        figures: list[LineFigure] = []
        for column, cell in zip(self._columns, cells, strict=True):
            said = quantity(f"{cell} {column.unit}" if column.unit else cell)
            number = whole(cell)
            if said is not None:
                figures.append(LineFigure(column.name, said))
            elif number is not None and not column.unit:
                params[param_name(column.name)] = number
        return MeasuredLine("", params, tuple(figures)) if figures and params else None


def _heads(line: str) -> list[_Column]:
    found = [_HEAD.match(text) for text in _GAP.split(line.strip())]
    if not 2 <= len(found) <= COLUMNS:
        return []
    return [_Column(m["name"], m["unit"] or "") for m in found if m] if all(found) else []


METRICS_KEPT = 10_000
"""Maximum number of figures of one artifact."""
TITLE_LIMIT = 120

_RULE = re.compile(r"^\s{0,8}(?:={8,}|#{8,}|\*{8,}|━{8,}|─{8,})\s*$")
_SIGN = re.compile(
    r"^(?:[^\x00-\u2192⚠ℹ│►▶][^\x00-\x7f]{0,3}\s{0,4}|[^\x00-\x7f]{2,5}\s{1,4})"
    r"(?P<title>[A-Za-z][\w &/().+-]{2,80})$"
)
"""A title after a pictogram, which may be mojibake."""
_GROUP = re.compile(r"^(?P<indent>\s{0,20})(?P<title>[A-Za-z][^:=]{0,80}):\s*$")
_QUANTITY_WORDS = re.compile(r"(?:time|latency|throughput|duration|speed|ratio)$", re.IGNORECASE)
_SPEEDUP = re.compile(r"speed-?up|faster", re.IGNORECASE)


@dataclass(slots=True)
class FreeText:
    """Reads the lines of one artifact in order."""

    marks_are_checks: bool = False
    """Whether a tick or cross at a line's start is a check of the job."""
    section: str = ""
    """Title of the present part."""
    failed: int = 0
    """Number of lines that were marked with a cross."""
    measures: int = 0
    """Number of figures that were found."""
    _group: tuple[int, str] = (0, "")
    _title: list[str] | None = None
    _times: list[tuple[str, Quantity]] = field(default_factory=list)
    _tables: TextTables = field(default_factory=TextTables)
    _remarks: LogNotices = field(default_factory=LogNotices)

    def see(self, line: str) -> Iterator[ParsedItem]:
        """Yield the remarks and measurements of a line."""
        for said in self._remarks.see(line):
            yield self._placed(said)
        if self._take_title(line):
            return
        self._see_group(line)
        row = self._tables.see(line)
        if row is not None:
            yield from self._metrics(row)
            return
        mark = marked(line)
        found = measured(mark.text if mark else line)
        if mark is not None and self.marks_are_checks:
            yield from self._checks(mark, found)
        if found is not None and (mark is None or mark.passed):
            yield from self._metrics(found)

    def _placed(self, statement: ParsedItem) -> ParsedItem:
        """Return a fallback with the current section added, or any other item unchanged."""
        if isinstance(statement, ParsedFallback) and self.section:
            return ParsedFallback(f"{statement.reason} (in {self.section!r})")
        return statement

    def _take_title(self, line: str) -> bool:
        """Return whether the line is a title, alone or between two rules."""
        if _RULE.match(line):
            if self._title:
                self._begin(self._title[0])
                self._title = None
            else:
                self._title = []
            return True
        if self._title is not None:
            return self._add_title(line)
        sign = _SIGN.match(line) if marked(line) is None else None
        if sign:
            self._begin(sign["title"])
        return sign is not None

    def _add_title(self, line: str) -> bool:
        if self._title is None or not line.strip() or len(self._title) >= 3:
            self._title = None
            return False
        self._title.append(line.strip()[:TITLE_LIMIT])
        return not measured(line)

    def _begin(self, title: str) -> None:
        self.section, self._group, self._times = title, (0, ""), []

    def _see_group(self, line: str) -> None:
        found = _GROUP.match(line)
        if found:
            self._group = (len(found["indent"]), found["title"].strip())
        elif not line[: self._group[0] + 1].isspace() or not line.strip():
            self._group = (0, "")

    def _checks(self, mark: Marked, measured: MeasuredLine | None) -> Iterator[ParsedItem]:
        self.failed += not mark.passed
        name, _, value = mark.text.partition(":")
        name, value, reason, unit = name.strip(), value.strip(), "", ""
        tally = measured.tally if measured else tally_of(value)
        passed = mark.passed and (tally is None or tally[0] == tally[1])
        if tally is not None:
            value, unit = f"{tally[0]}/{tally[1]}", "passed"
        elif measured is not None and len(measured.figures) == 1:
            value, unit = measured.figures[0].quantity.printed, measured.figures[0].quantity.unit
        if not passed:
            reason = mark.text
        full = "/".join(part for part in (_plain(self.section), _plain(name)) if part)
        yield ParsedCheck(full, "passed" if passed else "failed", value[:200], unit, "", reason)

    def _metrics(self, measured: MeasuredLine) -> Iterator[ParsedItem]:
        pers = {figure.quantity.per for figure in measured.figures} - {""}
        params: dict[str, object] = {**measured.params, **({"per": pers.pop()} if pers else {})}
        times = [f for f in measured.figures if f.quantity.kind == "latency"]
        for figure in measured.figures:
            if self.measures >= METRICS_KEPT:
                return
            said = self._metric(figure, measured, params, times)
            if said is not None:
                self.measures += 1
                yield said

    def _metric(
        self,
        figure: LineFigure,
        measured: MeasuredLine,
        params: dict[str, object],
        times: list[LineFigure],
    ) -> ParsedMetric | None:
        told = figure.quantity
        named = figure.name or measured.label
        if told.kind == "ratio":
            return self._ratio(figure, measured, params, times)
        name = self._name(figure, measured)
        if told.kind == "latency":
            group = named if not _QUANTITY_WORDS.search(named) else self._group[1] or named
            self._times = [*self._times[-1:], (group, told)]
        return ParsedMetric(name, (told.value,), told.unit, told.direction, params)

    def _ratio(
        self,
        figure: LineFigure,
        measured: MeasuredLine,
        params: dict[str, object],
        times: list[LineFigure],
    ) -> ParsedMetric | None:
        """Return the metric of a ratio with two known times, or of one that is called a speedup."""
        named = figure.name or measured.label
        name = self._name(replace(figure, name=named), measured)
        beside = [(time.name, time.quantity) for time in times]
        above = self._times[::-1] if len(measured.figures) == 1 else []
        direction, baseline = _related(figure.quantity, beside or above)
        if not direction and _SPEEDUP.search(named):
            direction = "higher"
        if not direction:
            return None
        said = {**params, "baseline": baseline} if baseline else params
        return ParsedMetric(name, (figure.quantity.value,), "x", direction, said)

    def _name(self, figure: LineFigure, measured: MeasuredLine) -> str:
        """Return a name such as ``section/group/label/latency``, which reports split at ``/``."""
        label, leaf = measured.label, figure.name
        if not leaf and _QUANTITY_WORDS.search(label):
            label, leaf = "", label
        parts = (self.section, self._group[1], label if label != leaf else "")
        path = [_plain(part) for part in parts if part]
        return "/".join([*path, _plain(leaf) or figure.quantity.kind])


def _related(ratio: Quantity, times: list[tuple[str, Quantity]]) -> tuple[str, str]:
    """Return the better direction of a ratio between two times, and the name of the second time."""
    if len(times) != 2:
        return "", ""
    (_, first), (name, second) = times
    direction = relation(ratio, first, second)
    return (direction, name) if direction else ("", "")


def _plain(words: str) -> str:
    """Return the words without ``/``, which separates the parts of a name."""
    return " ".join(words.replace("/", " ").split())[:TITLE_LIMIT]
