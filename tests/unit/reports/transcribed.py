"""The seeds' evidence: files as they were handed in, read by the real dialects and assembled.

What a controller does with its stores between assembling and reporting is done here in memory.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from orchestrator.adapters.files.documents import DocumentForm
from orchestrator.adapters.files.ingest_upload import FileRecordStore
from orchestrator.adapters.result_parsers.registry import FileDialects
from orchestrator.application.describe_run import stated_leases
from orchestrator.application.ports.result_parsers import HEAD_BYTES, TAIL_BYTES, Artifact
from orchestrator.domain.assembly.merge import Assembly, assemble
from orchestrator.domain.assembly.results_pass import ForeignArtifact
from orchestrator.domain.catalogue import PLATFORMS
from orchestrator.domain.cell import Attempt, CellState, Run, RunState
from orchestrator.domain.derive_outcomes import JobVerdict, judge_cell, judge_job
from orchestrator.domain.event_facts import Facts, TestFact, fold
from orchestrator.domain.evidence import read_events
from orchestrator.domain.ingest_notes import IngestNotes
from orchestrator.domain.ingested import Ingested, RunAnnotation
from orchestrator.domain.manifest import Job
from orchestrator.domain.outcome import Counts, worst
from orchestrator.domain.run_record import (
    ArtifactRecord,
    CellRecord,
    Evidence,
    JobRecord,
    RunRecord,
)

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
TYPED = GOLDEN / "transcribed"
HANDED_IN = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
NOTES = "ingest.yaml"


def summary_evidence(scratch: Path) -> Evidence:
    """Seeds 001 and 002: five platforms of version 0.4.6."""
    own = TYPED / "002_summary"
    return evidence(
        scratch,
        local=sorted((own / "local").iterdir()),
        gcp_l4=sorted((own / "gcp-l4").iterdir()),
        aws_a10g=sorted((own / "aws-a10g").iterdir()),
        gcp_tpu_v5e=sorted((own / "gcp-tpu-v5e").iterdir()),
        aws_mi300x=sorted((own / "aws-mi300x").iterdir()),
    )


def platform_evidence(scratch: Path) -> Evidence:
    """Seed 003: the L4's logs, and what they do not say."""
    return evidence(scratch, gcp_l4=sorted((TYPED / "003_platform" / "gcp-l4").iterdir()))


def results_evidence(scratch: Path) -> Evidence:
    """Seed 000: two platforms of version 0.4.40."""
    own = TYPED / "000_results"
    return evidence(
        scratch,
        aws_a10g=sorted((own / "aws-a10g").iterdir()),
        gcp_l4=sorted((own / "gcp-l4").iterdir()),
    )


def backend_evidence(scratch: Path) -> Evidence:
    """Seed 004: two platforms of version 0.3.7."""
    own = TYPED / "004_backend"
    return evidence(
        scratch,
        gcp_l4=sorted((own / "gcp-l4").iterdir()),
        aws_a10g=sorted((own / "aws-a10g").iterdir()),
    )


def evidence(scratch: Path, **handed_in: Sequence[Path]) -> Evidence:
    """A run of cells that were handed in, each named after its platform."""
    told = [_cell(files, scratch / name) for name, files in handed_in.items()]
    cells = tuple(cell for cell, _, _, _ in told)
    notes = told[0][3]
    assert notes.subject is not None
    run = Run(
        id="run-0001",
        matrix_name="ingested",
        subject_name=notes.subject.name,
        subject_version=notes.subject.version,
        payload_digest="",
        created_at=HANDED_IN,
        state=RunState.FINISHED,
        outcome=worst(cell.outcome for cell in cells if not _is_excused(cell)),
        finished_at=HANDED_IN,
    )
    annotations = tuple(annotation for _, _, said, _ in told for annotation in said)
    record = RunRecord(run, cells, as_of=HANDED_IN, annotations=annotations)
    return Evidence(record, {cell.id: tests for cell, tests, _, _ in told})


def _is_excused(cell: CellRecord) -> bool:
    return cell.platform.optional and cell.outcome == "not_available"


Told = tuple[CellRecord, tuple[TestFact, ...], tuple[RunAnnotation, ...], IngestNotes]


def _cell(files: Sequence[Path], scratch: Path) -> Told:
    by_name = {path.name: path for path in files}
    form = DocumentForm(IngestNotes, "Ingest")
    notes = form.read(by_name.pop(NOTES).read_text("utf-8"), NOTES).value
    assert isinstance(notes.platform, str)
    assert notes.subject is not None
    platform = PLATFORMS[notes.platform].platform
    at = notes.dated_at() or HANDED_IN
    artifacts = [_artifact(by_name[name]) for name in sorted(by_name)]
    record_store = FileRecordStore(scratch)
    read = assemble(
        [_foreign(artifact) for artifact in artifacts],
        record_store,
        notes=notes,
        version=notes.subject.version,
        at=at.timestamp(),
    )
    events, _ = read_events(b"".join(read.lines), after_seq=0)
    facts = fold(events)
    record_store.close()
    ingested = Ingested(
        fingerprint="ab" * 32,
        ingested_at=HANDED_IN,
        dated_at=at,
        is_dated=bool(notes.date),
        sources=read.sources,
        disagreements=read.disagreements,
        repeated=read.repeated,
        machine=notes.machine,
    )
    cell = replace(_record(platform.id, facts, read, notes, ingested), artifacts=_kept(files))
    return cell, tuple(facts.tests.values()), notes.stated(cell=cell.id, at=at), notes


def _kept(files: Sequence[Path]) -> tuple[ArtifactRecord, ...]:
    """The files as they came, and the events; those change with every word of a dialect."""
    kept = [(path.name, path.read_bytes()) for path in files]
    raw = [ArtifactRecord(name, len(b), hashlib.sha256(b).hexdigest()) for name, b in kept]
    return (*raw, ArtifactRecord("events.jsonl", 50_000, "ab" * 32))


def _artifact(path: Path) -> Artifact:
    body = path.read_bytes()
    return Artifact(path.name, path, len(body), body[:HEAD_BYTES], body[-TAIL_BYTES:])


def _foreign(artifact: Artifact) -> ForeignArtifact:
    digest = hashlib.sha256(artifact.path.read_bytes()).hexdigest()
    best = FileDialects().best(artifact)
    assert best is not None, artifact.name
    dialect, confidence = best
    return ForeignArtifact(
        name=artifact.name,
        digest=digest,
        size_bytes=artifact.size_bytes,
        dialect=f"{dialect.name} {dialect.version}",
        provenance=dialect.provenance,
        confidence=confidence,
        items=dialect.read(artifact),
    )


def _record(
    name: str, facts: Facts, read: Assembly, notes: IngestNotes, ingested: Ingested
) -> CellRecord:
    jobs = tuple(_job(job, facts) for job in read.jobs)
    verdicts = [JobVerdict(j.id, j.outcome, j.reason, j.detail) for j in jobs if j.outcome]
    cause = judge_cell(verdicts, None) if verdicts else None
    outcome, reason, detail = notes.cause() or (cause.outcome, cause.reason, cause.detail)
    attempts = (Attempt("at-1", name, 1, HANDED_IN, None, outcome, HANDED_IN),)
    return CellRecord(
        id=name,
        platform=PLATFORMS[name].platform,
        environment="image",
        state=CellState.DONE,
        entered_at=HANDED_IN,
        outcome=outcome,
        reason=reason,
        detail=detail,
        jobs=jobs,
        attempts=attempts,
        transitions=(),
        leases=stated_leases(ingested.machine, attempts),
        probed=facts.environment or {},
        notices=tuple(facts.notices),
        artifacts=(),
        ingested=ingested,
    )


def _job(job: Job, facts: Facts) -> JobRecord:
    fact = facts.jobs.get(job.id)
    unnamed = (fact.unnamed if fact else None) or Counts()
    named = Counter(test.outcome for test in facts.tests.values() if test.job == job.id)
    counts = Counts.from_tally(named) + unnamed
    checks = tuple(check for check in facts.checks.values() if check.job == job.id)
    verdict = judge_job(job.id, kind=job.kind, fact=fact, counts=counts, checks=checks, cause=None)
    started = fact.started_ts if fact else None
    return JobRecord(
        id=job.id,
        kind=job.kind,
        title=job.name,
        outcome=verdict.outcome,
        reason=verdict.reason,
        detail=verdict.detail,
        degraded=(fact.degraded or None) if fact else None,
        counts=counts,
        unnamed=unnamed,
        checks=checks,
        metrics=tuple(metric for metric in facts.metrics if metric.job == job.id),
        started_at=datetime.fromtimestamp(started, UTC) if started else None,
        duration_s=fact.duration_s if fact else None,
    )
