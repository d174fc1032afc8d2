"""Merge parsed artifacts into the evidence of one cell.

Each artifact is read once into a record store; only digests of tests and figures stay in memory.
Afterwards the jobs, the decisive record of each test and the contradictions are known. Then the
events are written, line by line, in the format of our own agent.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from orchestrator.domain.assembly.findings import Finding, check_account, merged_findings, source_of
from orchestrator.domain.assembly.index_of_tests import TestIndex, disagreement, key_of
from orchestrator.domain.assembly.jobs import FoundJob, JobFinder, JobGrouping
from orchestrator.domain.assembly.results_pass import (
    ArtifactReader,
    ArtifactSummary,
    ForeignArtifact,
    JobSection,
    RecordStore,
)
from orchestrator.domain.document_problems import Problem
from orchestrator.domain.ingest_notes import IngestNotes
from orchestrator.domain.ingested import Disagreement, Source
from orchestrator.domain.manifest import Job
from orchestrator.domain.outcome import Counts, TestOutcome
from orchestrator.domain.parsed_results import ParsedEnd, Provenance


@dataclass(frozen=True, slots=True)
class Assembly:
    """The result of merging artifacts."""

    jobs: tuple[Job, ...]
    sources: tuple[Source, ...]
    disagreements: tuple[Disagreement, ...]
    repeated: int
    """Number of tests in more than one artifact."""
    happened: datetime | None
    """The earliest plausible time in the artifacts; None if there is none."""
    idle: tuple[Problem, ...]
    """Problems of suites and jobs in the notes that no artifact contains."""
    lines: Iterator[bytes]
    """The lines of ``events.jsonl``, which are generated on demand and can be read once."""


def assemble(
    artifacts: Iterable[ForeignArtifact],
    record_store: RecordStore,
    *,
    notes: IngestNotes,
    version: str,
    at: float,
    taken: Mapping[str, str] | None = None,
) -> Assembly:
    """Merge all artifacts of one cell.

    Args:
        artifacts: The artifacts in the order of their names; each is read once.
        record_store: An empty store.
        notes: The person's notes about the artifacts.
        version: Version of the subject, which versions in artifacts are compared with.
        at: Now, in seconds since 1970; the time of the results if none is stated.
        taken: The kinds of the jobs that the run already has, by id.
    """
    grouping = JobGrouping(notes)
    reader = ArtifactReader(record_store, grouping)
    for artifact in artifacts:
        reader.read(artifact)
    covers = list(cover_unnamed(reader.accounts))
    pairs = ((finding.source or 0, other) for finding, other in covers)
    same = first_of_duplicates(reader.accounts, reader.index, pairs)
    planner = JobFinder(reader.accounts, notes, taken or {}, grouping, same=same)
    planned = planner.plan()
    findings = [finding for finding, _ in covers]
    for account in reader.accounts:
        findings += check_account(account, reader, planner, version=version, at=at)
    disagreements = tuple(_disagreements(reader, planner))
    findings += merged_findings(reader, disagreements)
    names = [_jobs(planner.jobs_of(account), planned) for account in reader.accounts]
    happened = _happened(reader, before=at)
    dated = notes.dated_at() or happened
    teller = EventBuilder(reader, planner, planned, findings, dated.timestamp() if dated else at)
    return Assembly(
        jobs=tuple(found.job for found in planned),
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
    """Return the earliest time in the artifacts; None if there is none or it is after `before`."""
    said = reader.happened
    return said if said is not None and said.timestamp() <= before else None


def _jobs(mine: list[FoundJob], planned: list[FoundJob]) -> tuple[str, ...]:
    ids = {found.job.id for found in mine}
    return tuple(found.job.id for found in planned if found.job.id in ids)


def _disagreements(reader: ArtifactReader, planner: JobFinder) -> Iterator[Disagreement]:
    names = [account.foreign.name for account in reader.accounts]
    for nodeid, found in reader.index.conflicts():
        # An artifact may report a test twice (a try and its repetition); the worst outcome counts.
        key = key_of(nodeid)
        said = [(source, reader.accounts[source].artifact_tests.tests[key]) for source, _ in found]
        if len({outcome for _, outcome in said}) == 1:
            continue
        record = reader.record_store.at(reader.index.winner(nodeid))
        job = planner.job_of(int(str(record[1])), int(str(record[2])), nodeid).job
        yield disagreement(job.id, nodeid, said, names)


_BAD = (TestOutcome.FAILED.word, TestOutcome.ERROR.word)
_PASSED, _XPASSED = TestOutcome.PASSED.word, TestOutcome.XPASSED.word
_SLACK, _SLACK_S = 1.1, 0.5


def cover_unnamed(accounts: Sequence[ArtifactSummary]) -> Iterator[tuple[Finding, int]]:
    """Match artifacts that only count tests (``29 passed``) with artifacts that list them.

    Yields (finding, number of the listing artifact). Sets `covered` of the counting section to
    the tests that must not be counted again.
    """
    named = [account for account in accounts if _is_plain(account) and account.artifact_tests.tests]
    for account in accounts:
        if not _is_counted(account):
            continue
        others = (other for other in named if other is not account and _fits(account, other))
        found = max(others, key=lambda other: _cover(account, other).total(), default=None)
        if found is not None:
            yield _covered(account, found)


def first_of_duplicates(
    accounts: Sequence[ArtifactSummary], index: TestIndex, covers: Iterator[tuple[int, int]]
) -> list[int]:
    """Return, for each artifact, the first one with the same tests, which may be itself."""
    first = list(range(len(accounts)))

    def root(number: int) -> int:
        while first[number] != number:
            first[number] = number = first[first[number]]
        return number

    def join(one: int, other: int) -> None:
        low, high = sorted((root(one), root(other)))
        first[high] = low

    for one, other in covers:
        join(one, other)
    for account in filter(_is_plain, accounts):
        for source in index.winners(account.artifact_tests.tests):
            if _is_plain(accounts[source]):
                join(account.number, source)
    return [root(number) for number in range(len(accounts))]


def _is_plain(account: ArtifactSummary) -> bool:
    """Whether the artifact has one section, which has tests and names no job."""
    [section, *more] = account.sections
    return not more and section.parsed_job is None and section.is_suite


def _is_counted(account: ArtifactSummary) -> bool:
    is_text = account.foreign.provenance is Provenance.PARSED_TEXT
    return is_text and _is_plain(account) and bool(account.sections[0].unnamed)


def _fits(account: ArtifactSummary, other: ArtifactSummary) -> bool:
    mine, theirs = account.artifact_tests.tests, other.artifact_tests.tests
    unnamed = account.sections[0].unnamed
    might = mine.keys() <= theirs.keys() if mine else unnamed.total() == len(theirs)
    if not might:
        return False
    rest = _rest(account, other)
    if any(unnamed[word] > rest[word] for word in _BAD):
        return False
    is_as_long = _took(other) <= _took(account) * _SLACK + _SLACK_S
    return bool(mine) or (is_as_long and _folded(unnamed) == _folded(rest))


def _covered(account: ArtifactSummary, other: ArtifactSummary) -> tuple[Finding, int]:
    mine, theirs = account.sections[0], other.sections[0]
    mine.covered = _cover(account, other)
    mine.first = mine.first or theirs.first
    if not mine.groups:
        mine.groups.update(theirs.groups)
    name, number = other.foreign.name, mine.covered.total()
    said = f"tests that it counts without naming them, taken for those that {name} names: {number}"
    return Finding(account.number, "info", said), other.number


def _cover(account: ArtifactSummary, other: ArtifactSummary) -> Counter[str]:
    """Return how many of its unnamed tests the other names, with equal outcomes where possible."""
    unnamed, rest = account.sections[0].unnamed, _rest(account, other)
    found = unnamed & rest
    spare = rest.total() - found.total()
    for word in unnamed:
        more = min(spare, unnamed[word] - found[word])
        found[word] += more
        spare -= more
    return +found


def _rest(account: ArtifactSummary, other: ArtifactSummary) -> Counter[str]:
    """Return the outcomes of the tests that only the other artifact names."""
    known = account.artifact_tests.tests
    return Counter(
        outcome.word for key, outcome in other.artifact_tests.tests.items() if key not in known
    )


def _folded(counts: Counter[str]) -> Counter[str]:
    """Return counts with unexpected passes as passes, because JUnit XML cannot distinguish them."""
    return +(counts + Counter({_PASSED: counts[_XPASSED], _XPASSED: -counts[_XPASSED]}))


def _took(account: ArtifactSummary) -> float:
    section: JobSection = account.sections[0]
    stated = section.end.duration_s if section.end is not None else None
    return stated or section.tally_s or 0.0


_REASONS_SHOWN = 3
_COUNTED = frozenset(Counts().as_dict())


class EventBuilder:
    """Writes merged artifacts as events in the agent's format."""

    def __init__(
        self,
        reader: ArtifactReader,
        planner: JobFinder,
        planned: Sequence[FoundJob],
        findings: Sequence[Finding],
        at: float,
    ) -> None:
        self._reader = reader
        self._planner = planner
        self._planned = planned
        self._findings = findings
        self._at = at
        self._seq = 0
        self._seconds: Counter[str] = Counter()
        """Microseconds of the tests, by job."""
        self._checks: Counter[tuple[str, str]] = Counter()

    def lines(self) -> Iterator[bytes]:
        """Yield every line in order."""
        if self._reader.surroundings.facts:
            yield self._line("environment", None, self._reader.surroundings.facts)
        yield self._line("phase", None, {"name": "running"})
        for finding in self._findings:
            said = self._named(finding)
            yield self._line("log", finding.job, {"level": finding.level, "message": said})
        for found in self._planned:
            yield self._line("phase", found.job.id, {"name": "started", "kind": found.job.kind})
        for place, record in self._reader.record_store.records():
            yield from self._lines(place, record)
        for found in self._planned:
            yield from self._ended(found)
        yield self._line("end", None, {"outcome": "completed"})

    def _lines(self, place: int, record: list[object]) -> Iterator[bytes]:
        match record[0]:
            case "t":
                if self._reader.index.winner(str(record[3])) == place:
                    yield self._test(record)
            case "c":
                yield self._check(record)
            case "m":
                yield self._metric(record)

    def _test(self, record: list[object]) -> bytes:
        nodeid = str(record[3])
        outcome = TestOutcome(int(str(record[4])))
        duration, reason, message, text, tries = record[5:10]
        more = self._reader.details.get(key_of(nodeid))
        if more is not None and outcome in (TestOutcome.FAILED, TestOutcome.ERROR):
            _, detail, whole = self._reader.record_store.at(more[0])
            message, text = message or detail, text or whole
            reason = reason or (more[1] if outcome is TestOutcome.ERROR else "")
        found = self._job(record, nodeid)
        if isinstance(duration, int | float):
            self._seconds[found.job.id] += round(duration * 1_000_000)
        data: dict[str, object] = {"record": "outcome", "nodeid": nodeid, "outcome": outcome.word}
        said = {"duration": duration, "reason": reason, "message": message, "longrepr": text}
        data |= {key: value for key, value in said.items() if value not in (None, "")}
        if tries:
            data["earlier"] = tries
        return self._line("test", found.job.id, data)

    def _check(self, record: list[object]) -> bytes:
        found = self._job(record, str(record[3]))
        name = str(record[4])
        self._checks[found.job.id, name] += 1
        count = self._checks[found.job.id, name]
        data = {"check": name if count == 1 else f"{name} ({count})", "outcome": record[5]}
        words = zip(("value", "unit", "tolerance", "reason"), record[6:10], strict=True)
        return self._line("check", found.job.id, data | {key: word for key, word in words if word})

    def _metric(self, record: list[object]) -> bytes:
        found = self._job(record, str(record[3]))
        names = ("metric", "samples", "unit", "direction", "params")
        return self._line("metric", found.job.id, dict(zip(names, record[4:9], strict=True)))

    def _job(self, record: list[object], nodeid: str) -> FoundJob:
        return self._planner.job_of(int(str(record[1])), int(str(record[2])), nodeid)

    def _ended(self, found: FoundJob) -> Iterator[bytes]:
        degraded = self._degraded(found)
        if degraded:
            yield self._line("check", found.job.id, {"degraded": degraded})
        unnamed = self._unnamed(found)
        if unnamed:
            yield self._line("test", found.job.id, {"record": "unnamed", "counts": dict(unnamed)})
        ends = [section.end for section in found.sections if section.end is not None]
        has_failed = any(end.exit_code or end.cause for end in ends)
        # A complete artifact does not show how the run of an incomplete one ended.
        if has_failed or all(self._has_ended(section) for section in found.sections):
            yield self._finished(found, ends)

    def _has_ended(self, section: JobSection) -> bool:
        """Whether the artifact states the section's end; a transcribed document always does."""
        provenance = self._reader.accounts[section.source].foreign.provenance
        typed = provenance is Provenance.TRANSCRIBED
        return section.end is not None or section.footer or typed

    def _finished(self, found: FoundJob, ends: list[ParsedEnd]) -> bytes:
        cause = next((end.cause for end in ends if end.cause), "")
        mine = (f.message for f in self._findings if f.is_bad and f.job == found.job.id)
        bad = next(mine, "")
        detail = next((end.detail for end in ends if end.detail), bad)
        code = self._exit_code(found, ends) or int(bool(bad))
        data: dict[str, object] = {"name": "finished", "exit_code": code}
        said = {"cause": cause, "detail": detail, "duration_s": self._duration_s(found)}
        data |= {key: value for key, value in said.items() if value not in (None, "")}
        return self._line("phase", found.job.id, data)

    def _exit_code(self, found: FoundJob, ends: list[ParsedEnd]) -> int:
        """Return the exit code; 0 if failing tests explain it."""
        codes = [end.exit_code for end in ends if end.exit_code is not None]
        worst = max(codes, key=abs, default=0)
        return 0 if worst == 1 and self._is_explained(found) else worst

    def _is_explained(self, found: FoundJob) -> bool:
        """Whether a failing test in the same artifacts explains the failure of a suite."""
        if found.job.kind != "suite":
            return False
        told = [self._reader.accounts[section.source].artifact_tests for section in found.sections]
        words = (TestOutcome.FAILED.word, TestOutcome.ERROR.word)
        return any(one.lines[word] for one in told for word in words)

    def _duration_s(self, found: FoundJob) -> float | None:
        """Return the duration that the artifacts state for this job; else the sum of its tests."""
        alone = [s for s in found.sections if len(s.groups) <= 1]
        stated = [s.end.duration_s if s.end and s.end.duration_s else s.tally_s for s in alone]
        known = [seconds for seconds in stated if seconds]
        if known:
            return max(known)
        return self._seconds[found.job.id] / 1_000_000 or None

    def _degraded(self, found: FoundJob) -> str:
        said: dict[str, None] = {}
        for section in found.sections:
            number = self._number(section)
            for test, reason in section.degraded:
                if self._planner.job_of(section.source, number, test) is found:
                    said[reason] = None
        shown = "; ".join(list(said)[:_REASONS_SHOWN])
        more = len(said) - _REASONS_SHOWN
        return f"{shown}; and {more} more" if more > 0 else shown

    def _unnamed(self, found: FoundJob) -> Mapping[str, int]:
        counts: Counter[str] = Counter()
        for section in found.sections:
            number = self._number(section)
            if self._planner.job_of(section.source, number, "") is found:
                left = section.unnamed - section.covered
                counts.update({w: n for w, n in left.items() if w in _COUNTED})
        for finding in self._findings:
            if finding.job == found.job.id and finding.missing:
                counts["missing"] += finding.missing
        return counts

    def _number(self, section: JobSection) -> int:
        sections = self._reader.accounts[section.source].sections
        return next(n for n, one in enumerate(sections) if one is section)

    def _named(self, finding: Finding) -> str:
        if finding.source is None:
            return finding.message
        return f"{self._reader.accounts[finding.source].foreign.name}: {finding.message}"

    def _line(self, kind: str, job: str | None, data: Mapping[str, object]) -> bytes:
        self._seq += 1
        event = {"v": 1, "seq": self._seq, "ts": self._at, "kind": kind, "job": job, "data": data}
        # ASCII: half characters, which databases refuse, are escaped here and replaced when read.
        return json.dumps(event, separators=(",", ":"), default=str).encode() + b"\n"
