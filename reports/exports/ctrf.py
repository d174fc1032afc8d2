"""CTRF 1.0 (ctrf.io): JSON that test dashboards read.

Its five states are fewer than ours, so each test has its own word in ``rawStatus``. What was
expected to fail is ``other``, which is in no count of passes; what is missing is ``failed``.
Checks and jobs are entries too, as in JUnit; the tests alone are counted in ``summary.extra``.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from uuid import NAMESPACE_URL, uuid5

import orchestrator
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

Json = dict[str, object]

_STATES = {
    TestOutcome.PASSED: "passed",
    TestOutcome.SKIPPED: "skipped",
    TestOutcome.XFAILED: "other",
    TestOutcome.XPASSED: "other",
}
_EVERY = ("passed", "failed", "skipped", "pending", "other")


def ctrf(evidence: Evidence, cells: Sequence[CellRecord]) -> Iterator[str]:
    """Yield the document in pieces."""
    groups = list(groups_of(evidence, cells))
    run, as_of = evidence.record.run, evidence.record.as_of
    head: Json = {
        "reportFormat": "CTRF",
        "specVersion": "1.0.0",
        "reportId": str(uuid5(NAMESPACE_URL, f"seatrial:{run.id}:{','.join(c.id for c in cells)}")),
        "timestamp": as_of.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "generatedBy": f"seatrial {orchestrator.__version__}",
    }
    results: Json = {
        "tool": {"name": "seatrial", "version": orchestrator.__version__},
        "summary": _summary(evidence, groups, cells),
        "environment": _environment(evidence, cells),
    }
    yield f'{_dumped(head)[:-1]}, "results": {_dumped(results)[:-1]}, "tests": ['
    separator = "\n"
    for group in groups:
        for entry in group.entries:
            yield separator + _dumped(_test(group, entry))
            separator = ",\n"
    yield "\n]}}\n"


def state(entry: ExportEntry) -> str:
    """Return the test's state as CTRF names it."""
    return _STATES.get(entry.outcome, "failed")


def _summary(
    evidence: Evidence, groups: Sequence[ExportGroup], cells: Sequence[CellRecord]
) -> Json:
    run = evidence.record.run
    counts = Counter(state(entry) for group in groups for entry in group.entries)
    flaky = sum(entry.is_flaky for group in groups for entry in group.entries)
    summary: Json = {"tests": counts.total(), **{name: counts[name] for name in _EVERY}}
    if flaky:
        summary["flaky"] = flaky
    summary |= {
        "suites": len(groups),
        "start": _milliseconds(run.created_at),
        "stop": _milliseconds(run.finished_at or evidence.record.as_of),
    }
    unnamed = {group.name: group.unnamed for group in groups if group.unnamed}
    extra: Json = {**numbers_of(groups, cells), **({"unnamed": unnamed} if unnamed else {})}
    return {**summary, "extra": extra}


def _environment(evidence: Evidence, cells: Sequence[CellRecord]) -> Json:
    run = evidence.record.run
    return {
        "appName": run.subject_name,
        "appVersion": run.subject_version,
        "reportName": run.matrix_name,
        "testEnvironment": ", ".join(cell.id for cell in cells),
        "extra": {"cells": {cell.id: origin(evidence.record, cell) for cell in cells}},
    }


def _test(group: ExportGroup, entry: ExportEntry) -> Json:
    test: Json = {
        "name": entry.nodeid,
        "status": state(entry),
        "duration": round((entry.duration_s or 0.0) * 1000, 3),
        "rawStatus": entry.word,
        "type": entry.kind.value,
        "suite": [group.cell.id, *([group.job.id] if group.job else [])],
    }
    path, separator, _ = entry.nodeid.partition("::")
    if entry.kind is EntryKind.TEST and separator and path.endswith(".py"):
        test["filePath"] = path
    message = entry.message or entry.reason
    if entry.outcome in (TestOutcome.SKIPPED, TestOutcome.XFAILED):
        message = entry.reason or entry.message
    for name, said in (("message", message), ("trace", entry.text)):
        if said:
            test[name] = said
    return {**test, **_tries(entry), "extra": _extra(group, entry)}


def _tries(entry: ExportEntry) -> Json:
    if not entry.earlier:
        return {}
    tries = [
        {"attempt": number, "status": _STATES.get(outcome, "failed"), "rawStatus": outcome.word}
        for number, outcome in enumerate(entry.earlier, 1)
    ]
    return {"retries": len(tries), "flaky": entry.is_flaky, "retryAttempts": tries}


def _extra(group: ExportGroup, entry: ExportEntry) -> Json:
    """Return fields without a place in CTRF."""
    extra: Json = {"cell": group.cell.id, "provenance": group.cell.provenance}
    if group.job is not None:
        extra |= {"job": group.job.id, "jobKind": group.job.kind}
        if group.job.degraded:
            extra["degraded"] = group.job.degraded
    if entry.reason:
        extra["reason"] = entry.reason
    if group.cell.simulated:
        extra["simulated"] = True
    return extra


def _milliseconds(at: datetime) -> int:
    return round(at.timestamp() * 1000)


def _dumped(value: Json) -> str:
    return json.dumps(_cleaned(value), ensure_ascii=True, allow_nan=False)


def _cleaned(value: object) -> object:
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, dict):
        return {clean(str(name)): _cleaned(said) for name, said in value.items()}
    if isinstance(value, list):
        return [_cleaned(item) for item in value]
    return value
