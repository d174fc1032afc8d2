"""The records of a reportlog: lines of JSON, each bounded, the last one perhaps torn."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from orchestrator.adapters.dialects.bounded_input import as_text, shortened
from orchestrator.application.ports.dialects import Artifact
from orchestrator.domain.parsed_results import ParsedProblem

RECORD_LIMIT = 16 * 1024 * 1024
"""Bytes of a record; a longer one is left out."""
ENTRIES_LIMIT = 200
"""Frames of a traceback that are told."""
_CHAIN_LIMIT = 20


@dataclass(slots=True)
class UnreadableLines:
    """Lines that could not be read."""

    broken: int = 0
    large: int = 0
    is_torn: bool = False

    def said(self) -> tuple[ParsedProblem, ...]:
        """The same for a person, after the last line was read."""
        problems = []
        if self.is_torn:
            problems.append(ParsedProblem("warning", "the last record is torn"))
        if self.broken:
            problems.append(ParsedProblem("error", f"lines that are no records: {self.broken}"))
        if self.large:
            words = f"records larger than {RECORD_LIMIT} bytes left out: {self.large}"
            problems.append(ParsedProblem("error", words))
        return tuple(problems)


def records(artifact: Artifact, spoilt: UnreadableLines) -> Iterator[Mapping[str, object]]:
    """Every record that can be read; `spoilt` learns of the others."""
    with artifact.path.open("rb") as file:
        while line := file.readline(RECORD_LIMIT):
            if not line.endswith(b"\n") and len(line) >= RECORD_LIMIT:
                spoilt.large += 1
                while (rest := file.readline(RECORD_LIMIT)) and not rest.endswith(b"\n"):
                    pass
                continue
            record = _record(line)
            if record is not None:
                yield record
            elif line.strip():
                spoilt.is_torn = not line.endswith(b"\n")
                spoilt.broken += not spoilt.is_torn


def longrepr_of(said: object) -> tuple[str | list[object], Mapping[str, str] | None]:
    """The text of a failure, or ``[path, line, reason]`` of a skip; and where it was raised."""
    if isinstance(said, list) and len(said) == 3:
        return [as_text(said[0]), said[1], as_text(said[2])], None
    if not isinstance(said, dict):
        return as_text(said), None
    crash = said.get("reprcrash")
    message = as_text(crash.get("message")) if isinstance(crash, dict) else ""
    return shortened(_tracebacks(said)), {"message": message} if message else None


def _record(line: bytes) -> Mapping[str, object] | None:
    text = line.decode("utf-8-sig", "replace").strip()
    if not text:
        return None
    try:
        record = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) and "$report_type" in record else None


def _tracebacks(said: Mapping[str, object]) -> str:
    chain = said.get("chain")
    links = chain[:_CHAIN_LIMIT] if isinstance(chain, list) else []
    parts: list[str] = []
    for link in links:
        if isinstance(link, list) and len(link) == 3:
            parts += [_traceback(link[0]), as_text(link[2])]
    if not any(parts):
        parts = [_traceback(said.get("reprtraceback"))]
    return "\n\n".join(part for part in parts if part)


def _traceback(said: object) -> str:
    entries = said.get("reprentries") if isinstance(said, dict) else None
    if not isinstance(entries, list):
        return ""
    shown = entries
    if len(entries) > ENTRIES_LIMIT:
        shown = [*entries[: ENTRIES_LIMIT // 2], *entries[-ENTRIES_LIMIT // 2 :]]
    return "\n".join(_entry(entry) for entry in shown)


def _entry(entry: object) -> str:
    data = entry.get("data") if isinstance(entry, dict) else None
    if not isinstance(data, dict):
        return ""
    said = data.get("lines")
    lines = [as_text(line) for line in said] if isinstance(said, list) else []
    place = data.get("reprfileloc")
    if isinstance(place, dict):
        where = f"{as_text(place.get('path'))}:{place.get('lineno')}"
        lines.append(f"{where}: {as_text(place.get('message'))}")
    return "\n".join(lines)
