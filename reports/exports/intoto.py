"""In-toto statements of test results: unsigned, one per cell and line.

The predicate has three lists and three results. What passed in a job that ran degraded is warned
of, as is a cell of a simulated machine; whatever did not pass, or is not over, has failed. What
the predicate has no place for stands under ``seatrial``.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from orchestrator.domain.outcome import Outcome, TestOutcome
from orchestrator.domain.run_record import CellRecord, Evidence
from reports.exports.entries import EntryKind, ExportEntry, ExportGroup, clean, groups_of
from reports.exports.provenance import origin, warnings_of

STATEMENT = "https://in-toto.io/Statement/v1"
PREDICATE = "https://in-toto.io/attestation/test-result/v0.1"
Json = dict[str, object]


def statements(evidence: Evidence, cells: Sequence[CellRecord]) -> Iterator[str]:
    """Yield a statement per cell, as a line of JSON."""
    for cell in cells:
        groups = tuple(groups_of(evidence, [cell]))
        yield json.dumps(statement(evidence, cell, groups), ensure_ascii=True) + "\n"


def statement(evidence: Evidence, cell: CellRecord, groups: Sequence[ExportGroup]) -> Json:
    """Return the statement of a cell: subject, machine and results."""
    lists: dict[str, list[str]] = {"passedTests": [], "warnedTests": [], "failedTests": []}
    for group in groups:
        for entry in group.entries:
            where = _list(group, entry)
            if where:
                lists[where].append(_name(group, entry))
    predicate: Json = {
        "result": _result(cell, lists),
        "configuration": _configuration(evidence, cell),
        **lists,
        "seatrial": _extra(evidence, cell, groups),
    }
    return {
        "_type": STATEMENT,
        "subject": _subject(evidence, cell),
        "predicateType": PREDICATE,
        "predicate": predicate,
    }


def _result(cell: CellRecord, lists: dict[str, list[str]]) -> str:
    if cell.outcome is not Outcome.PASSED or lists["failedTests"]:
        return "FAILED"
    return "WARNED" if lists["warnedTests"] or warnings_of(cell) else "PASSED"


def _list(group: ExportGroup, entry: ExportEntry) -> str:
    """Return the list of a test; skipped and expected failures are in none."""
    if not entry.is_good:
        return "failedTests"
    if entry.outcome in (TestOutcome.SKIPPED, TestOutcome.XFAILED):
        return ""
    is_degraded = bool(group.job and group.job.degraded)
    warned = is_degraded or entry.outcome is TestOutcome.XPASSED or entry.is_flaky
    return "warnedTests" if warned else "passedTests"


def _name(group: ExportGroup, entry: ExportEntry) -> str:
    if group.job is None or entry.kind is EntryKind.JOB:
        return clean(group.name)
    return clean(f"{group.job.id}: {entry.nodeid}")


def _subject(evidence: Evidence, cell: CellRecord) -> list[Json]:
    """Return the subject: the payload, or the whole upload of an ingested cell."""
    run = evidence.record.run
    name = clean(f"{run.subject_name} {run.subject_version}".strip())
    if run.payload_digest and cell.ingested is None:
        return [{"name": name, "digest": {"sha256": run.payload_digest}}]
    digest = cell.ingested.fingerprint if cell.ingested else run.payload_digest
    return [{"name": f"{name} (results of {clean(cell.id)})", "digest": {"sha256": digest}}]


def _configuration(evidence: Evidence, cell: CellRecord) -> list[Json]:
    run = evidence.record.run
    found: list[Json] = []
    if run.payload_digest and cell.ingested is None:
        found.append({"name": "payload", "digest": {"sha256": run.payload_digest}})
    sources = cell.ingested.sources if cell.ingested else ()
    found += [{"name": clean(s.name), "digest": {"sha256": s.digest}} for s in sources]
    found += [{"name": clean(a.name), "digest": {"sha256": a.digest}} for a in cell.artifacts]
    return found


def _extra(evidence: Evidence, cell: CellRecord, groups: Sequence[ExportGroup]) -> Json:
    facts = origin(evidence.record, cell)
    unnamed = {group.name: group.unnamed for group in groups if group.unnamed}
    return {
        "origin": {clean(name): clean(said) for name, said in facts.items()},
        "counts": cell.counts.as_dict(),
        "unnamed": unnamed,
        "warnings": [clean(warning) for warning in warnings_of(cell)],
        "signed": False,
    }
