"""Assemblies for tests: artifacts from what they say, and what their events come to."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from orchestrator.domain.assembly.merge import Assembly, assemble
from orchestrator.domain.assembly.results_pass import ForeignArtifact
from orchestrator.domain.derive_outcomes import judge_job
from orchestrator.domain.event_facts import Facts, fold
from orchestrator.domain.evidence import read_events
from orchestrator.domain.ingest_notes import IngestNotes
from orchestrator.domain.outcome import Counts, Outcome
from orchestrator.domain.outcome import TestOutcome as Result
from orchestrator.domain.parsed_results import ParsedItem, ParsedTally, ParsedTest, Provenance


class ListTape:
    """Keeps records as the text that a file would have."""

    def __init__(self):
        self.lines = []

    def put(self, record):
        self.lines.append(json.dumps(record, default=str))
        return len(self.lines) - 1

    def records(self):
        return ((place, json.loads(line)) for place, line in enumerate(self.lines))

    def at(self, place):
        return json.loads(self.lines[place])


@dataclass
class Cell:
    """An assembly, and what its events come to."""

    assembly: Assembly
    lines: list[bytes] = field(default_factory=list)
    facts: Facts = field(default_factory=Facts)

    @property
    def jobs(self) -> dict[str, str]:
        return {job.id: job.kind for job in self.assembly.jobs}

    def counts(self, job: str) -> Counts:
        total = self.facts.jobs[job].unnamed or Counts()
        for (of, _), test in self.facts.tests.items():
            if of == job:
                total += Counts.from_tally({test.outcome if test.final else Result.MISSING: 1})
        return total

    def verdict(self, job: str) -> Outcome:
        kind = self.jobs[job]
        checks = [check for (of, _), check in self.facts.checks.items() if of == job]
        fact = self.facts.jobs.get(job)
        counts = self.counts(job)
        return judge_job(
            job, kind=kind, fact=fact, counts=counts, checks=checks, cause=None
        ).outcome

    def source(self, name: str):
        return next(source for source in self.assembly.sources if source.name == name)


def text(name: str, *said: ParsedItem, provenance=Provenance.PARSED_TEXT) -> ForeignArtifact:
    return ForeignArtifact(name, "d" * 64, 10, "dialect 1", provenance, 0.9, said)


def cell_of(*artifacts: ForeignArtifact, notes: IngestNotes | None = None, **more) -> Cell:
    version = more.pop("version", "0.4.6")
    assembly = assemble(
        artifacts, ListTape(), notes=notes or IngestNotes(), version=version, at=1e9, **more
    )
    cell = Cell(assembly, list(assembly.lines))
    events, used = read_events(b"".join(cell.lines), after_seq=0)
    assert used == sum(map(len, cell.lines))
    assert [event.seq for event in events] == list(range(1, len(cell.lines) + 1))
    cell.facts = fold(events)
    return cell


def result_facts(module: str, outcomes: Sequence[Result]) -> list[ParsedTest]:
    return [
        ParsedTest(f"{module}::TestIt::test_{n}", outcome, 0.5)
        for n, outcome in enumerate(outcomes)
    ]


def suite(module: str, outcomes: Sequence[Result]) -> list[ParsedItem]:
    """A whole log of one module."""
    counts: dict[str, int] = {}
    for outcome in outcomes:
        counts[outcome.word] = counts.get(outcome.word, 0) + 1
    total = len(outcomes)
    tally = ParsedTally("footer", total, counts, 7.5)
    return [ParsedTally("collected", total), *result_facts(module, outcomes), tally]
