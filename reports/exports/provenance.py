"""Provenance of results, equal in every format, and the export as in-toto attestations."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence

from orchestrator.domain.ingested import SourceState
from orchestrator.domain.outcome import Outcome, TestOutcome
from orchestrator.domain.parsed_results import Provenance
from orchestrator.domain.run_record import CellRecord, Evidence, RunRecord
from reports.exports.entries import EntryKind, ExportEntry, ExportGroup, clean, groups_of

DEVICE_FACTS = ("name", "uuid", "compute_capability", "driver")
SOURCES_NAMED = 50
SOFTWARE = ("python", "torch", "cuda", "hip", "xla")


def is_attested(cell: CellRecord) -> bool:
    """Whether a real machine attests the results and matches the request."""
    told = cell.attestation
    return told is not None and not (told.simulated or told.mismatch or cell.ingested)


def origin(record: RunRecord, cell: CellRecord) -> dict[str, str]:
    """Return the origin of the cell's results, as names and texts."""
    run = record.run
    facts = {
        "run": run.id,
        "cell": cell.id,
        "platform": cell.platform.id,
        "environment": cell.environment,
        "subject": f"{run.subject_name} {run.subject_version}".strip(),
        "wheel": f"sha256:{record.subject.wheel}" if record.subject.wheel else "",
        "payload": f"sha256:{run.payload_digest}" if run.payload_digest else "",
        "provenance": cell.provenance,
        "attested": _sentence(is_attested(cell)),
        "simulated": _sentence(cell.simulated),
        "outcome": cell.outcome.value if cell.outcome else "not_finished",
        "reason": cell.reason,
        **dict(_machine(cell)),
        **dict(_ingested(cell)),
    }
    return {name: value for name, value in facts.items() if value}


def warnings_of(cell: CellRecord) -> tuple[str, ...]:
    """Return warnings about the reliability of the cell's results."""
    found = [f"{job.id} ran degraded: {job.degraded}" for job in cell.jobs if job.degraded]
    found += [
        f"{job.id}: {job.unnamed.collected} tests are counted without being named"
        for job in cell.jobs
        if job.unnamed.collected
    ]
    if cell.simulated:
        found.append("its machine is simulated")
    if cell.provenance == Provenance.TRANSCRIBED:
        found.append("a person typed it from a document")
    sources = cell.ingested.sources if cell.ingested else ()
    found += [
        f"{source.name} does not agree with itself"
        for source in sources
        if source.state is SourceState.INCONSISTENT
    ]
    return tuple(found)


def _sentence(value: bool) -> str:
    return "true" if value else "false"


def _machine(cell: CellRecord) -> Iterator[tuple[str, str]]:
    for name in SOFTWARE:
        if cell.probed.get(name):
            yield name, str(cell.probed[name])
    for number, device in enumerate(_devices(cell.probed.get("machine"))):
        for name in DEVICE_FACTS:
            if device.get(name):
                yield f"device.{number}.{name}", str(device[name])
    if cell.attestation:
        yield from ((f"machine.{name}", said) for name, said in cell.attestation.facts.items())


def _devices(machine: object) -> Sequence[Mapping[str, object]]:
    found = machine.get("devices") if isinstance(machine, Mapping) else None
    if not isinstance(found, Sequence) or isinstance(found, str):
        return ()
    return [device for device in found if isinstance(device, Mapping)]


def _ingested(cell: CellRecord) -> Iterator[tuple[str, str]]:
    told = cell.ingested
    if told is None:
        return
    yield "ingested.at", told.ingested_at.isoformat()
    if told.is_dated:
        yield "ingested.dated", told.dated_at.isoformat()
    yield "ingested.fingerprint", f"sha256:{told.fingerprint}"
    if len(told.sources) > SOURCES_NAMED:
        yield "sources", str(len(told.sources))
    for number, source in enumerate(told.sources[:SOURCES_NAMED]):
        state = f" ({source.state.value})" if source.state is not SourceState.READ else ""
        yield f"source.{number}", f"{source.name} sha256:{source.digest}{state}"


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
    """Return the subject: the tested wheel, else the payload; of an ingested cell its upload."""
    run = evidence.record.run
    name = clean(f"{run.subject_name} {run.subject_version}".strip())
    tested = evidence.record.subject.wheel or run.payload_digest
    if tested and cell.ingested is None:
        return [{"name": name, "digest": {"sha256": tested}}]
    digest = cell.ingested.fingerprint if cell.ingested else ""
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
