"""Metrics as JSON: a list of ``{"name", "value", "unit"}``, or one line per metric.

Benchmark actions of code hosts read the list; jobs append such a line to
``$SEATRIAL_EVENTS``: ``{"metric": "latency", "samples": [1.2], "unit": "ms"}``.
"""

from __future__ import annotations

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
from orchestrator.adapters.result_parsers.json_stream import EACH, JsonReader
from orchestrator.adapters.result_parsers.quantities import quantity
from orchestrator.adapters.result_parsers.text_lines import text_lines
from orchestrator.application.ports.ingest import Artifact
from orchestrator.domain.parsed_results import (
    ParsedEnd,
    ParsedJob,
    ParsedMetric,
    ParsedProblem,
    Provenance,
    Said,
)

_NAME = r'"(?:name|metric)"\s*:\s*"'
_LIST = re.compile(rf"^\[\s*\{{[^{{}}]{{0,400}}?{_NAME}")
_LINES = re.compile(r'^\s*\{[^{}]{0,400}?"metric"\s*:\s*"', re.MULTILINE)
_FIGURE = re.compile(r'"(?:value|samples)"\s*:\s*[\[\d-]')
_DIRECTIONS: Final = {
    "higher": "higher", "bigger": "higher", "lower": "lower", "smaller": "lower",
}  # fmt: skip


class MetricJson:
    """Implements `Dialect`."""

    name = "metric-json"
    version = 1
    provenance = Provenance.STRUCTURED

    def match(self, artifact: Artifact) -> float:
        """See the port."""
        head = head_text(artifact)
        if not _FIGURE.search(head):
            return 0.0
        return 0.7 if _LIST.match(head) or _LINES.match(head) else 0.0

    def read(self, artifact: Artifact) -> Iterator[Said]:
        """See the port."""
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
            yield ParsedEnd()


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
    """Return the object. Raises ValueError for a key that stands twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key stands twice")
    return found


def _figure(said: Mapping[str, object]) -> Iterator[ParsedMetric | ParsedProblem]:
    name = as_line(said.get("metric")) or as_line(said.get("name"))
    given = said.get("samples", said.get("value"))
    raw = as_list(given) or ([given] if not isinstance(given, list) else [])
    samples = tuple(number for one in raw if (number := as_number(one)) is not None)
    if not name or not samples or len(samples) < len(raw):
        what = f"{name[:80]!r} has no figure, or one that is no number"
        what = what if name else f"one with the keys {str(list(said))[:80]} has no name"
        yield ParsedProblem("error", f"of its metrics {what}")
        return
    given_name = said.get("metric") or said.get("name")
    if isinstance(given_name, str) and given_name != given_name.strip():
        what = f"{given_name[:80]!r} has a space before or after its name"
        yield ParsedProblem("error", f"of its metrics {what}")
        return
    unit = as_text(said.get("unit"), LINE_LIMIT).strip()
    params = {as_line(key): _plain(value) for key, value in as_map(said.get("params")).items()}
    yield ParsedMetric(name, samples, unit, _direction(said, unit), params)


def _direction(said: Mapping[str, object], unit: str) -> str:
    """Return the stated direction, else the direction of the unit; empty if both are unknown."""
    known = _DIRECTIONS.get(as_line(said.get("direction")).lower(), "")
    told = quantity(f"1 {unit}") if not known else None
    return known or (told.direction if told else "")


def _plain(value: object) -> object:
    number = as_number(value)
    return value if isinstance(value, bool) or number is not None else as_line(value)
