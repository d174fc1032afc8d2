"""Assembly: from what foreign artifacts say to the evidence of one cell.

Everything is read once and goes to a tape; what is kept in memory are digests of tests and
figures. Then the jobs are known, each test's winner, and what contradicts what; and the events
are written, one line after the other, as our own agent would have written them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from orchestrator.domain.assembly_events import Teller
from orchestrator.domain.assembly_findings import check_account, merged_findings, source_of
from orchestrator.domain.assembly_index import disagreement
from orchestrator.domain.assembly_jobs import Grouping, Planned, Planner
from orchestrator.domain.assembly_reading import Foreign, Reader, Tape
from orchestrator.domain.assembly_same import cover_unnamed, first_of_same
from orchestrator.domain.ingest_notes import IngestNotes
from orchestrator.domain.ingested import Disagreement, Source
from orchestrator.domain.manifest import Job


@dataclass(frozen=True, slots=True)
class Assembly:
    """What became of the artifacts."""

    jobs: tuple[Job, ...]
    sources: tuple[Source, ...]
    disagreements: tuple[Disagreement, ...]
    repeated: int
    """Tests that stand in more than one artifact."""
    lines: Iterator[bytes]
    """Of ``events.jsonl``; made while they are asked for, once."""


def assemble(
    artifacts: Iterable[Foreign],
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
        at: When it happened, in seconds since 1970.
        taken: The kinds, by id, of the jobs that the run has already.
    """
    grouping = Grouping(notes)
    reader = Reader(tape, grouping)
    for artifact in artifacts:
        reader.read(artifact)
    covers = list(cover_unnamed(reader.accounts))
    pairs = ((finding.source or 0, other) for finding, other in covers)
    same = first_of_same(reader.accounts, reader.index, pairs)
    planner = Planner(reader.accounts, notes, taken or {}, grouping, same=same)
    planned = planner.plan()
    findings = [finding for finding, _ in covers]
    for account in reader.accounts:
        findings += check_account(account, reader.index, planner, version=version)
    disagreements = tuple(_disagreements(reader, planner))
    findings += merged_findings(reader, disagreements)
    names = [_jobs(planner.jobs_of(account), planned) for account in reader.accounts]
    teller = Teller(reader, planner, planned, findings, at)
    return Assembly(
        jobs=tuple(job.as_job() for job in planned),
        sources=tuple(
            source_of(account, jobs, findings)
            for account, jobs in zip(reader.accounts, names, strict=True)
        ),
        disagreements=disagreements,
        repeated=reader.index.repeated,
        lines=teller.lines(),
    )


def _jobs(mine: list[Planned], planned: list[Planned]) -> tuple[str, ...]:
    ids = {job.id for job in mine}
    return tuple(job.id for job in planned if job.id in ids)


def _disagreements(reader: Reader, planner: Planner) -> Iterator[Disagreement]:
    names = [account.foreign.name for account in reader.accounts]
    for nodeid, said in reader.index.conflicts():
        record = reader.tape.at(reader.index.winner(nodeid))
        job = planner.job_of(int(str(record[1])), int(str(record[2])), nodeid)
        yield disagreement(job.id, nodeid, said, names)
