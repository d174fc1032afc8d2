"""JUnit XML: a suite for each job of each cell, in the shape that CI systems read.

A check, and a job that says nothing itself, is a test case too, so that a CI system sees its
failure: the totals are those of all test cases. The root's properties have the tests alone, as
reports count them, and how many test cases are something else.

Names of tests are split as pytest does it, with the file beside them, so that a reader finds the
same node ids again. Missing tests, and those that never ran, are errors of that type.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC

from orchestrator.domain.outcome import TestOutcome
from orchestrator.domain.run_record import CellRecord, Evidence
from reports.exports.entries import (
    EntryKind,
    ExportEntry,
    ExportGroup,
    clean,
    groups_of,
    numbers_of,
)
from reports.exports.provenance import origin

_ELEMENTS = {
    TestOutcome.FAILED: "failure",
    TestOutcome.ERROR: "error",
    TestOutcome.MISSING: "error",
    TestOutcome.NOT_RUN: "error",
    TestOutcome.SKIPPED: "skipped",
    TestOutcome.XFAILED: "skipped",
}
_TYPES = {TestOutcome.SKIPPED: "pytest.skip", TestOutcome.XFAILED: "pytest.xfail"}
_TRIES = {TestOutcome.FAILED: "Failure", TestOutcome.ERROR: "Error"}
_ESCAPES = {
    "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;",
    "\n": "&#10;", "\r": "&#13;", "\t": "&#9;",
}  # fmt: skip
_IN_ATTRIBUTES = str.maketrans(_ESCAPES)
_IN_TEXT = str.maketrans({key: _ESCAPES[key] for key in "&<>\r"})


@dataclass(frozen=True, slots=True)
class _SuiteSums:
    tests: int
    failures: int
    errors: int
    skipped: int
    time: float

    @classmethod
    def from_entries(cls, entries: Sequence[ExportEntry]) -> _SuiteSums:
        found = [_ELEMENTS.get(entry.outcome, "") for entry in entries]
        return cls(
            tests=len(entries),
            failures=found.count("failure"),
            errors=found.count("error"),
            skipped=found.count("skipped"),
            time=sum(entry.duration_s or 0.0 for entry in entries),
        )

    def attributes(self) -> dict[str, str]:
        return {
            "tests": str(self.tests),
            "failures": str(self.failures),
            "errors": str(self.errors),
            "skipped": str(self.skipped),
            "time": f"{self.time:.6f}",
        }


def junit(evidence: Evidence, cells: Sequence[CellRecord]) -> Iterator[str]:
    """Yield the document in pieces."""
    groups = list(groups_of(evidence, cells))
    run = evidence.record.run
    every = _SuiteSums.from_entries([entry for group in groups for entry in group.entries])
    sums = replace(every, time=sum(_time(group) for group in groups))
    name = f"{run.subject_name} {run.subject_version}".strip()
    yield '<?xml version="1.0" encoding="UTF-8"?>\n'
    yield f"<testsuites{_attributes({'name': name, **sums.attributes()})}>\n"
    numbers = numbers_of(groups, cells)
    yield from _properties({name: str(number) for name, number in numbers.items()}, "  ")
    for group in groups:
        yield from _suite(evidence, group)
    yield "</testsuites>\n"


def _suite(evidence: Evidence, group: ExportGroup) -> Iterator[str]:
    job = group.job
    sums = replace(_SuiteSums.from_entries(group.entries), time=_time(group))
    attributes = {"name": group.name, **sums.attributes()}
    told = group.cell.ingested
    if job is not None and job.started_at is not None and (told is None or told.is_dated):
        attributes["timestamp"] = job.started_at.astimezone(UTC).isoformat(timespec="seconds")
    yield f"  <testsuite{_attributes(attributes)}>\n"
    yield from _properties({**origin(evidence.record, group.cell), **_of_job(group)}, "    ")
    for entry in group.entries:
        yield from _case(group, entry)
    yield "  </testsuite>\n"


def _properties(facts: Mapping[str, str], indent: str) -> Iterator[str]:
    if not facts:
        return
    yield f"{indent}<properties>\n"
    for name, value in facts.items():
        yield f"{indent}  <property{_attributes({'name': name, 'value': value})}/>\n"
    yield f"{indent}</properties>\n"


def _time(group: ExportGroup) -> float:
    """Return the seconds of a job; without a measured time, of all its entries."""
    measured = group.job.duration_s if group.job is not None else None
    return measured if measured is not None else _SuiteSums.from_entries(group.entries).time


def _of_job(group: ExportGroup) -> dict[str, str]:
    """Return the job's properties, with its unnamed tests."""
    job = group.job
    if job is None:
        return {}
    facts = {
        "job": job.id,
        "job.kind": job.kind,
        "job.title": job.title,
        "job.outcome": job.outcome.value if job.outcome else "not_finished",
        "job.reason": job.reason,
        "job.degraded": job.degraded or "",
    }
    counts = {f"unnamed.{word}": str(number) for word, number in group.unnamed.items()}
    return {name: value for name, value in facts.items() if value} | counts


def _case(group: ExportGroup, entry: ExportEntry) -> Iterator[str]:
    attributes = _named(group, entry)
    if entry.duration_s is not None:
        attributes["time"] = f"{entry.duration_s:.6f}"
    inside = [*_properties(_of_entry(entry), "      "), *_result(entry)]
    if not inside:
        yield f"    <testcase{_attributes(attributes)}/>\n"
        return
    yield f"    <testcase{_attributes(attributes)}>\n"
    yield from inside
    yield "    </testcase>\n"


def _named(group: ExportGroup, entry: ExportEntry) -> dict[str, str]:
    """Return classname, name and file of a node id."""
    path, separator, rest = entry.nodeid.partition("::")
    if entry.kind is not EntryKind.TEST or not separator:
        return {"classname": group.job.id if group.job else group.cell.id, "name": entry.nodeid}
    before, bracket, params = rest.partition("[")
    *classes, name = before.split("::")
    module = path.removesuffix(".py").replace("/", ".")
    named = {"classname": ".".join([module, *classes]), "name": name + bracket + params}
    return {**named, "file": path} if path.endswith(".py") else named


def _of_entry(entry: ExportEntry) -> dict[str, str]:
    facts = {}
    if entry.kind is not EntryKind.TEST:
        facts["kind"] = entry.kind.value
    if entry.outcome is TestOutcome.XPASSED:
        facts["outcome"] = entry.word
    if clean(entry.nodeid) != entry.nodeid:
        facts["nodeid"] = json.dumps(entry.nodeid)
    return facts


def _result(entry: ExportEntry) -> Iterator[str]:
    element = _ELEMENTS.get(entry.outcome)
    if element is not None:
        attributes = {"type": _type(entry), "message": _message(entry)}
        yield f"      <{element}{_attributes(attributes)}>{_text(entry.text)}</{element}>\n"
    family = "flaky" if element is None else "rerun"
    for outcome in entry.earlier:
        word = _TRIES.get(outcome)
        if word is not None:
            said = {"type": outcome.word, "message": "an earlier try"}
            yield f"      <{family}{word}{_attributes(said)}/>\n"


def _type(entry: ExportEntry) -> str:
    if entry.kind is not EntryKind.TEST or entry.outcome is TestOutcome.FAILED:
        return entry.word
    if entry.outcome is TestOutcome.ERROR:
        return entry.reason or entry.word
    return _TYPES.get(entry.outcome, entry.word)


def _message(entry: ExportEntry) -> str:
    if entry.outcome in (TestOutcome.SKIPPED, TestOutcome.XFAILED):
        return entry.reason or entry.message
    return entry.message or entry.reason


def _attributes(attributes: Mapping[str, str]) -> str:
    each = ((name, clean(said).translate(_IN_ATTRIBUTES)) for name, said in attributes.items())
    return "".join(f' {name}="{said}"' for name, said in each)


def _text(text: str) -> str:
    return clean(text).translate(_IN_TEXT)
