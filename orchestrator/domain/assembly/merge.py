"""Assembly: from what foreign artifacts say to the evidence of one cell.

Everything is read once and goes to a tape; what is kept in memory are digests of tests and
figures. Then the jobs are known, each test's winner, and what contradicts what; and the events
are written, one line after the other, as our own agent would have written them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime

from orchestrator.domain.assembly.duplicates import cover_unnamed, first_of_duplicates
from orchestrator.domain.assembly.events import EventBuilder
from orchestrator.domain.assembly.findings import check_account, merged_findings, source_of
from orchestrator.domain.assembly.jobs import FoundJob, JobFinder, JobGrouping
from orchestrator.domain.assembly.results_pass import ArtifactReader, ForeignArtifact, Tape
from orchestrator.domain.assembly.test_index import disagreement, key_of
from orchestrator.domain.ingest_notes import IngestNotes
from orchestrator.domain.ingested import Disagreement, Source
from orchestrator.domain.manifest import Job
from orchestrator.domain.problems import Problem


@dataclass(frozen=True, slots=True)
class Assembly:
    """What became of the artifacts."""

    jobs: tuple[Job, ...]
    sources: tuple[Source, ...]
    disagreements: tuple[Disagreement, ...]
    repeated: int
    """Tests that stand in more than one artifact."""
    happened: datetime | None
    """The earliest time that an artifact tells, where it can be true."""
    idle: tuple[Problem, ...]
    """What the notes name and no artifact has."""
    lines: Iterator[bytes]
    """Of ``events.jsonl``; made while they are asked for, once."""


def assemble(
    artifacts: Iterable[ForeignArtifact],
    tape: Tape,
    *,
    notes: IngestNotes,
    version: str,
    at: float,
    taken: Mapping[str, str] | None = None,
) -> Assembly:
    """Read all artifacts of one cell.

    Args:
        artifacts: In the order of their names; what each says is read once.
        tape: Empty.
        notes: What a person wrote beside them.
        version: Of the subject, to compare stamps with.
        at: Now, in seconds since 1970; it happened then where neither notes nor artifacts say.
        taken: The kinds, by id, of the jobs that the run has already.
    """
    grouping = JobGrouping(notes)
    reader = ArtifactReader(tape, grouping)
    for artifact in artifacts:
        reader.read(artifact)
    covers = list(cover_unnamed(reader.accounts))
    pairs = ((finding.source or 0, other) for finding, other in covers)
    same = first_of_duplicates(reader.accounts, reader.index, pairs)
    planner = JobFinder(reader.accounts, notes, taken or {}, grouping, same=same)
    planned = planner.plan()
    findings = [finding for finding, _ in covers]
    for account in reader.accounts:
        findings += check_account(account, reader.index, planner, version=version)
    disagreements = tuple(_disagreements(reader, planner))
    findings += merged_findings(reader, disagreements)
    names = [_jobs(planner.jobs_of(account), planned) for account in reader.accounts]
    happened = _happened(reader, before=at)
    dated = notes.dated_at() or happened
    teller = EventBuilder(reader, planner, planned, findings, dated.timestamp() if dated else at)
    return Assembly(
        jobs=tuple(job.as_job() for job in planned),
        sources=tuple(
            source_of(account, jobs, findings)
            for account, jobs in zip(reader.accounts, names, strict=True)
        ),
        disagreements=disagreements,
        repeated=reader.index.repeated,
        happened=happened,
        idle=tuple(planner.idle(planned)),
        lines=teller.lines(),
    )


def _happened(reader: ArtifactReader, *, before: float) -> datetime | None:
    """When the first of it happened; a clock that was ahead of ours says nothing."""
    said = reader.happened
    return said if said is not None and said.timestamp() <= before else None


def _jobs(mine: list[FoundJob], planned: list[FoundJob]) -> tuple[str, ...]:
    ids = {job.id for job in mine}
    return tuple(job.id for job in planned if job.id in ids)


def _disagreements(reader: ArtifactReader, planner: JobFinder) -> Iterator[Disagreement]:
    names = [account.foreign.name for account in reader.accounts]
    for nodeid, found in reader.index.conflicts():
        # An artifact may tell of a test twice, a try and its repetition: its worst word counts.
        key = key_of(nodeid)
        said = [(source, reader.accounts[source].told.tests[key]) for source, _ in found]
        if len({outcome for _, outcome in said}) == 1:
            continue
        record = reader.tape.at(reader.index.winner(nodeid))
        job = planner.job_of(int(str(record[1])), int(str(record[2])), nodeid)
        yield disagreement(job.id, nodeid, said, names)
