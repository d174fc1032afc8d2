"""The second pass: the events of a cell, line by line, from the tape."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from orchestrator.domain.assembly.findings import Finding
from orchestrator.domain.assembly.jobs import FoundJob, JobFinder
from orchestrator.domain.assembly.results_pass import ArtifactReader, JobSection
from orchestrator.domain.assembly.test_index import key_of
from orchestrator.domain.outcome import Counts, TestOutcome
from orchestrator.domain.parsed_results import ParsedEnd, Provenance

_REASONS_SHOWN = 3
_COUNTED = frozenset(Counts().as_dict())


class EventBuilder:
    """Writes what was read as our own agent's events."""

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
        """Of the tests of each job, in microseconds."""
        self._checks: Counter[tuple[str, str]] = Counter()

    def lines(self) -> Iterator[bytes]:
        """Every line, in order."""
        if self._reader.surroundings.facts:
            yield self._line("environment", None, self._reader.surroundings.facts)
        yield self._line("phase", None, {"name": "running"})
        for finding in self._findings:
            said = self._named(finding)
            yield self._line("log", finding.job, {"level": finding.level, "message": said})
        for job in self._planned:
            yield self._line("phase", job.id, {"name": "started", "kind": job.kind})
        for place, record in self._reader.tape.records():
            yield from self._told(place, record)
        for job in self._planned:
            yield from self._ended(job)
        yield self._line("end", None, {"outcome": "completed"})

    def _told(self, place: int, record: list[object]) -> Iterator[bytes]:
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
            _, detail, whole = self._reader.tape.at(more[0])
            message, text = message or detail, text or whole
            reason = reason or (more[1] if outcome is TestOutcome.ERROR else "")
        job = self._job(record, nodeid)
        if isinstance(duration, int | float):
            self._seconds[job.id] += round(duration * 1_000_000)
        data: dict[str, object] = {"record": "outcome", "nodeid": nodeid, "outcome": outcome.word}
        said = {"duration": duration, "reason": reason, "message": message, "longrepr": text}
        data |= {key: value for key, value in said.items() if value not in (None, "")}
        if tries:
            data["earlier"] = tries
        return self._line("test", job.id, data)

    def _check(self, record: list[object]) -> bytes:
        job = self._job(record, str(record[3]))
        name = str(record[4])
        self._checks[job.id, name] += 1
        count = self._checks[job.id, name]
        data = {"check": name if count == 1 else f"{name} ({count})", "outcome": record[5]}
        words = zip(("value", "unit", "tolerance", "reason"), record[6:10], strict=True)
        return self._line("check", job.id, data | {key: word for key, word in words if word})

    def _metric(self, record: list[object]) -> bytes:
        job = self._job(record, str(record[3]))
        names = ("metric", "samples", "unit", "direction", "params")
        return self._line("metric", job.id, dict(zip(names, record[4:9], strict=True)))

    def _job(self, record: list[object], nodeid: str) -> FoundJob:
        return self._planner.job_of(int(str(record[1])), int(str(record[2])), nodeid)

    def _ended(self, job: FoundJob) -> Iterator[bytes]:
        degraded = self._degraded(job)
        if degraded:
            yield self._line("check", job.id, {"degraded": degraded})
        unnamed = self._unnamed(job)
        if unnamed:
            yield self._line("test", job.id, {"record": "unnamed", "counts": dict(unnamed)})
        if any(self._has_ended(section) for section in job.sections):
            yield self._finished(job)

    def _has_ended(self, section: JobSection) -> bool:
        """Whether the artifact tells of the end; one that was typed off a document always does."""
        provenance = self._reader.accounts[section.source].foreign.provenance
        typed = provenance is Provenance.TRANSCRIBED
        return section.end is not None or section.footer or typed

    def _finished(self, job: FoundJob) -> bytes:
        ends = [section.end for section in job.sections if section.end is not None]
        cause = next((end.cause for end in ends if end.cause), "")
        detail = next((end.detail for end in ends if end.detail), "")
        data: dict[str, object] = {"name": "finished", "exit_code": self._exit_code(job, ends)}
        said = {"cause": cause, "detail": detail, "duration_s": self._duration_s(job)}
        data |= {key: value for key, value in said.items() if value not in (None, "")}
        return self._line("phase", job.id, data)

    def _exit_code(self, job: FoundJob, ends: list[ParsedEnd]) -> int:
        """Not 0 where anything but the job's own tests and checks went wrong."""
        codes = [end.exit_code for end in ends if end.exit_code is not None]
        worst = max(codes, key=abs, default=0)
        contradicted = any(f.is_bad and f.job == job.id for f in self._findings)
        if worst == 1 and self._is_explained(job):
            worst = 0
        return worst or int(contradicted)

    def _is_explained(self, job: FoundJob) -> bool:
        """Whether a test of the same artifacts went wrong, so that this suite need not have."""
        if job.kind != "suite":
            return False
        told = [self._reader.accounts[section.source].told for section in job.sections]
        words = (TestOutcome.FAILED.word, TestOutcome.ERROR.word)
        return any(one.lines[word] for one in told for word in words)

    def _duration_s(self, job: FoundJob) -> float | None:
        """What the artifacts state of this job alone; else what its tests took."""
        alone = [s for s in job.sections if len(s.groups) <= 1]
        stated = [s.end.duration_s if s.end and s.end.duration_s else s.tally_s for s in alone]
        known = [seconds for seconds in stated if seconds]
        if known:
            return max(known)
        return self._seconds[job.id] / 1_000_000 or None

    def _degraded(self, job: FoundJob) -> str:
        said: dict[str, None] = {}
        for section in job.sections:
            number = self._number(section)
            for test, reason in section.degraded:
                if self._planner.job_of(section.source, number, test) is job:
                    said[reason] = None
        shown = "; ".join(list(said)[:_REASONS_SHOWN])
        more = len(said) - _REASONS_SHOWN
        return f"{shown}; and {more} more" if more > 0 else shown

    def _unnamed(self, job: FoundJob) -> Mapping[str, int]:
        counts: Counter[str] = Counter()
        for section in job.sections:
            number = self._number(section)
            if self._planner.job_of(section.source, number, "") is job:
                left = section.unnamed - section.covered
                counts.update({w: n for w, n in left.items() if w in _COUNTED})
        for finding in self._findings:
            if finding.job == job.id and finding.missing:
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
        # ASCII: what no database takes, half a character say, is escaped, and mended when read.
        return json.dumps(event, separators=(",", ":"), default=str).encode() + b"\n"
