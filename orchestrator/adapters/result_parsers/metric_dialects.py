"""Parsers of metrics: JSON lists and lines, and lines that print one figure each."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator, Mapping
from typing import Final

from orchestrator.adapters.result_parsers.bounded_input import (
    LINE_LIMIT,
    as_line,
    as_list,
    as_map,
    as_number,
    as_text,
    head_text,
)
from orchestrator.adapters.result_parsers.free_text import METRICS_KEPT, FreeText
from orchestrator.adapters.result_parsers.json_stream import EACH, JsonReader
from orchestrator.adapters.result_parsers.measurement_lines import marked, measured, quantity
from orchestrator.adapters.result_parsers.text_lines import (
    ErrorLines,
    Notes,
    failed_end,
    head_lines,
    is_document,
    is_torn,
    last_text,
    tail_lines,
    text_lines,
)
from orchestrator.application.ports.result_parsers import Artifact
from orchestrator.domain.parsed_results import (
    ParsedEnd,
    ParsedItem,
    ParsedJob,
    ParsedMetric,
    ParsedProblem,
    Provenance,
)

_NAME = r'"(?:name|metric)"\s*:\s*"'
_LIST = re.compile(rf"^\[\s*\{{[^{{}}]{{0,400}}?{_NAME}")
_LINES = re.compile(r'^\s*\{[^{}]{0,400}?"metric"\s*:\s*"', re.MULTILINE)
_FIGURE = re.compile(r'"(?:value|samples)"\s*:\s*[\[\d-]')
_NO_FIGURE = re.compile(
    r"(?<![\w.)\]])(?:[-+]?(?:nan|inf(?:inity)?)(?![A-Za-z]{4}|\w*[=:(])|-(?=\.?\d)[\d.,]{1,24}(?:e[-+]?\d{1,3})?)",
    re.IGNORECASE,
)
"""Numbers that are not finite, and negative ones."""
_DIRECTIONS: Final = {
    "higher": "higher", "bigger": "higher", "lower": "lower", "smaller": "lower",
}  # fmt: skip


class MetricJson:
    """Parses metrics in JSON lists and lines (`Dialect`)."""

    name = "metric-json"
    version = 3
    provenance = Provenance.STRUCTURED

    def match(self, artifact: Artifact) -> float:
        """Return how likely it is the format, by its first bytes: 0 is no, 1 names its producer."""
        head = head_text(artifact)
        if not _FIGURE.search(head):
            return 0.0
        return 0.7 if _LIST.match(head) or _LINES.match(head) else 0.0

    def read(self, artifact: Artifact) -> Iterator[ParsedItem]:
        """Yield the parsed items of the artifact in their order, in bounded memory."""
        yield ParsedJob(kind="benchmark")
        if not head_text(artifact).startswith("["):
            yield from json_lines(artifact)
            yield ParsedEnd()
            return
        reader = JsonReader(artifact, {(EACH,)})
        for _, part in reader.parts():
            yield from _figure(as_map(part))
        yield from reader.problems
        if not reader.is_torn:
            yield reader.ended(ParsedEnd())


def json_lines(artifact: Artifact) -> Iterator[ParsedMetric | ParsedProblem]:
    """Yield the metrics of lines that are objects with a ``metric``; other lines are ignored."""
    for line in text_lines(artifact):
        if not _LINES.match(line):
            continue
        try:
            said = json.loads(line, object_pairs_hook=_object)
        except (ValueError, RecursionError) as error:
            what = f"a line is no JSON that can be read ({str(error)[:80]}): {line[:80]!r}"
            yield ParsedProblem("error", what)
            continue
        yield from _figure(as_map(said))


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return the object. Raises ValueError for a duplicate key."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key occurs twice")
    return found


def _figure(entry: Mapping[str, object]) -> Iterator[ParsedMetric | ParsedProblem]:
    name = as_line(entry.get("metric")) or as_line(entry.get("name"))
    given = entry.get("samples", entry.get("value"))
    raw = as_list(given) or ([given] if not isinstance(given, list) else [])
    samples = tuple(number for one in raw if (number := as_number(one)) is not None)
    if not name or not samples or len(samples) < len(raw):
        what = f"{name[:80]!r} has no figure, or one that is no number"
        what = what if name else f"one with the keys {str(list(entry))[:80]} has no name"
        yield ParsedProblem("error", f"of its metrics {what}")
        return
    given_name = entry.get("metric") or entry.get("name")
    if isinstance(given_name, str) and given_name != given_name.strip():
        what = f"{given_name[:80]!r} has a space before or after its name"
        yield ParsedProblem("error", f"of its metrics {what}")
        return
    unit = as_text(entry.get("unit"), LINE_LIMIT).strip()
    if min(samples) < 0 and quantity(f"1 {unit}") is not None:
        yield ParsedProblem("error", f"of its metrics {name[:80]!r} is less than 0 {unit}")
        return
    params = {as_line(key): _plain(value) for key, value in as_map(entry.get("params")).items()}
    yield ParsedMetric(name, samples, unit, _direction(entry, unit), params)


def _direction(entry: Mapping[str, object], unit: str) -> str:
    """Return the stated direction, else the direction of the unit; empty if both are unknown."""
    known = _DIRECTIONS.get(as_line(entry.get("direction")).lower(), "")
    told = quantity(f"1 {unit}") if not known else None
    return known or (told.direction if told else "")


def _plain(value: object) -> object:
    number = as_number(value)
    return value if isinstance(value, bool) or number is not None else as_line(value)


class MetricLines:
    """Parses lines that print one figure each (`Dialect`)."""

    name = "metric-lines"
    version = 2
    provenance = Provenance.PARSED_TEXT

    def match(self, artifact: Artifact) -> float:
        """Return a low confidence: any program may print a figure."""
        if is_document(artifact):
            return 0.0
        surest = 0.0
        for line in [*head_lines(artifact), *tail_lines(artifact)]:
            mark = marked(line)
            if measured(mark.text if mark else line) is not None:
                surest = max(surest, 0.5 if mark else 0.3)
        return surest

    def read(self, artifact: Artifact) -> Iterator[ParsedItem]:
        """Yield figures, checks by tick or cross, remarks, and an inferred end."""
        notes, troubles = Notes(), ErrorLines()
        narration = FreeText(marks_are_checks=True)
        yield ParsedJob(kind="benchmark")
        for line in text_lines(artifact, notes=notes):
            mark = marked(line)
            if mark is None:
                troubles.see(line)
            elif mark.passed:
                troubles.last = ""
            yield from narration.see(line)
        yield from notes.statements()
        troubles.last = troubles.last or troubles.step or failed_end(last_text(artifact))
        yield from _ending(narration, troubles, torn=is_torn(artifact))


def figure_lines(artifact: Artifact) -> Iterator[ParsedMetric | ParsedProblem]:
    """Yield the metrics of a program's output; other lines are ignored."""
    narration = FreeText()
    for line in text_lines(artifact):
        number = _NO_FIGURE.sub("1", line)
        other = copy.deepcopy(narration) if number != line else None
        found = [said for said in narration.see(line) if isinstance(said, ParsedMetric)]
        yield from found
        if other is not None:
            sought = [said for said in other.see(number) if isinstance(said, ParsedMetric)]
            if len(sought) > len(found):
                what = "a figure is negative, or no number, and is not read"
                yield ParsedProblem("error", f"{what}: {line.strip()[:80]!r}")
    yield from _too_many(narration)


def _too_many(narration: FreeText) -> Iterator[ParsedProblem]:
    if narration.measures >= METRICS_KEPT:
        yield ParsedProblem("error", f"more than {METRICS_KEPT} figures: the rest is left out")


def _ending(narration: FreeText, troubles: ErrorLines, *, torn: bool) -> Iterator[ParsedItem]:
    """Yield the inferred end: passed if figures, a complete last line and no errors were read."""
    yield from _too_many(narration)
    if torn or not (narration.measures or narration.failed):
        what = "it prints no figure" if not narration.measures else "it never says that it ended"
        yield ParsedProblem("error", troubles.cut_off(what, torn=torn))
        return
    has_failed = bool(narration.failed or troubles.last)
    yield ParsedEnd(1 if has_failed else 0, detail=troubles.last, inferred=True)
