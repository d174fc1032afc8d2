"""The life of a cell: timeline, attempts, commands, notices and files."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

from orchestrator.domain.cell import Attempt, CellState, Transition
from orchestrator.domain.event_facts import CheckFact
from orchestrator.domain.ingested import Source
from orchestrator.domain.manifest import output_artifact
from orchestrator.domain.run_record import ArtifactRecord, CellRecord, JobRecord, RunRecord
from reports.model.blocks import (
    AttemptLine,
    CommandRow,
    CommandTable,
    FileRow,
    NoticeLine,
    TimelineRow,
)
from reports.model.values import Absent, CheckTally, Footer, Status
from reports.views.machine import job_status
from reports.views.origin import sources_of
from reports.views.suites import duration_of, rate

CHECKS_SHOWN = 60
"""Checks that are listed of one job; failed ones first."""

NO_CHECKS = Absent("no checks; judged by its exit code")
NO_CHECKS_IN_FILES = Absent("no check in the ingested files")
_ORDER = {"failed": 0, "skipped": 1, "passed": 2}


def commands_of(cell: CellRecord, kind: str) -> CommandTable:
    """Return every job that is no suite."""
    jobs = [job for job in cell.jobs if job.kind == kind]
    rows = tuple(_command_row(job, cell) for job in jobs)
    passed = sum(row.status.code == "passed" for row in rows)
    return CommandTable(
        kind=kind,
        rows=rows,
        checks=sum_checks(row.checks for row in rows),
        jobs=rate(passed, len(rows), nothing="there is none"),
    )


def sum_checks(tallies: Iterable[CheckTally | Absent]) -> CheckTally | Absent:
    """Return the sum of the measured tallies."""
    known = [t for t in tallies if not isinstance(t, Absent)]
    if not known:
        return Absent("no checks were reported")
    return _tally(*(sum(getattr(t, n) for t in known) for n in ("passed", "failed", "skipped")))


def _tally(passed: int, failed: int, skipped: int) -> CheckTally:
    share = rate(passed, passed + failed, nothing="no check was judged")
    return CheckTally(passed, failed, skipped, share)


def _command_row(job: JobRecord, cell: CellRecord) -> CommandRow:
    ranked = sorted(job.checks, key=lambda check: _ORDER.get(check.outcome, 0))
    kept = {id(check) for check in ranked[:CHECKS_SHOWN]}
    lines = tuple(check for check in job.checks if id(check) in kept)
    return CommandRow(
        id=job.id,
        title=job.title or job.id,
        status=job_status(job, cell),
        checks=_checks(job.checks) if job.checks else _none(job, cell),
        lines=lines,
        hidden=len(job.checks) - len(lines),
        duration_s=duration_of(job, cell),
    )


def _none(job: JobRecord, cell: CellRecord) -> Absent:
    if job.outcome is not None and job.started_at is not None:
        return NO_CHECKS if cell.ingested is None else NO_CHECKS_IN_FILES
    reason = (job.reason or cell.reason).replace("_", " ")
    return Absent(f"never started: {reason}" if reason else "none reported yet")


def _checks(facts: Sequence[CheckFact]) -> CheckTally:
    outcomes = [fact.outcome for fact in facts]
    skipped = outcomes.count("skipped")
    passed = outcomes.count("passed")
    return _tally(passed, len(facts) - passed - skipped, skipped)


NOTICES_SHOWN = 50
"""Notices that are listed; the rest are in the evidence."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_S = 4102444800.0
"""The year 2100."""

_BESIDE_FILES = {
    "events.jsonl": "the events that were made of the files",
    "ingest.yaml": "what a person wrote beside the files",
}
_KNOWN_FILES = {
    "environment.json": "everything the machine was probed for, and every installed package",
    "gpu_info.txt": "what the vendor's tool says about the accelerator",
    "events.jsonl": "the raw evidence",
}


def timeline_of(cell: CellRecord, *, as_of: datetime) -> tuple[TimelineRow, ...]:
    """Return each transition with the time spent in its target state."""
    rows = []
    for index, step in enumerate(cell.transitions):
        last = index + 1 == len(cell.transitions)
        over = step.to_state == CellState.DONE.value
        ends = as_of if last else cell.transitions[index + 1].at
        until = Absent("the end") if last and over else ends
        rows.append(_row(step, until))
    return tuple(rows)


def _row(step: Transition, until: datetime | Absent) -> TimelineRow:
    spent = until if isinstance(until, Absent) else (until - step.at).total_seconds()
    return TimelineRow(
        at=step.at,
        attempt=step.attempt,
        origin=step.from_state,
        target=step.to_state,
        reason=step.reason,
        until=until,
        duration_s=spent,
    )


def attempts_of(cell: CellRecord) -> tuple[AttemptLine, ...]:
    """Return the attempts of the cell."""
    return tuple(_attempt(attempt) for attempt in cell.attempts)


def _attempt(attempt: Attempt) -> AttemptLine:
    cause, outcome = attempt.cause, attempt.outcome
    return AttemptLine(
        number=attempt.number,
        id=attempt.id,
        opened_at=attempt.opened_at,
        closed_at=attempt.closed_at or Absent("still open"),
        status=Status(outcome.value if outcome else "running", cause.reason if cause else ""),
        detail=cause.detail if cause else "",
    )


def notices_of(cell: CellRecord) -> tuple[tuple[NoticeLine, ...], int]:
    """Return the agent's notices for a person, and the number of further ones."""
    shown = tuple(
        NoticeLine(_moment(n.ts), n.job, n.level, n.message) for n in cell.notices[:NOTICES_SHOWN]
    )
    return shown, len(cell.notices) - len(shown)


def _moment(ts: float) -> datetime | Absent:
    if not 0 <= ts < _LAST_S:
        return Absent("the machine's clock is wrong")
    return _EPOCH + timedelta(seconds=ts)


def files_of(cell: CellRecord) -> tuple[FileRow, ...]:
    """Return the raw files beside the report, by name."""
    titles = {job.id: job.title or job.id for job in cell.jobs}
    sources = {s.name: s for s in cell.ingested.sources} if cell.ingested is not None else {}
    ordered = sorted(cell.artifacts, key=lambda artifact: artifact.name)
    return tuple(
        FileRow(
            a.name,
            a.size_bytes,
            a.digest,
            _description(
                a,
                _source_of(a.name, sources, titles)
                if cell.ingested is not None
                else what(a.name, titles),
            ),
        )
        for a in ordered
    )


def _description(artifact: ArtifactRecord, text: str) -> str:
    """Return the description of a file, with the day on which it was pruned."""
    pruned_at = artifact.pruned_at
    return text if pruned_at is None else f"{text}; pruned on {pruned_at:%Y-%m-%d}"


def _source_of(name: str, sources: dict[str, Source], titles: dict[str, str]) -> str:
    """Return the description of a file in ingested evidence."""
    source = sources.get(name)
    if source is None:
        return _BESIDE_FILES.get(name, "handed in")
    jobs = ", ".join(titles.get(job, job) for job in source.jobs)
    return f"handed in; tells of {jobs}" if jobs else "handed in; tells of no job"


def what(name: str, titles: dict[str, str]) -> str:
    """Return the description of a file by its name."""
    if name in _KNOWN_FILES:
        return _KNOWN_FILES[name]
    outputs = {output_artifact(job): title for job, title in titles.items()}
    if name in outputs:
        return f"whole output of {outputs[name]}"
    owners = [job for job in titles if name.startswith(f"{job}.")]
    return f"left by {titles[max(owners, key=len)]}" if owners else "left by the agent"


def evidence_digest(cell: CellRecord) -> str | Absent:
    """Return the digest of the events; of ingested evidence, that of all files."""
    for artifact in cell.artifacts:
        if artifact.name == "events.jsonl":
            return artifact.digest
    if cell.ingested is not None:
        return cell.ingested.fingerprint
    if sources := sources_of(cell):
        return Absent(f"its evidence is from run {', '.join(sources)}")
    return Absent("events.jsonl is not among the artifacts")


def footer_of(record: RunRecord, evidence_sha256: str | Absent, template: str) -> Footer:
    """Return the footer of a report of a run or a cell: its source."""
    wheel = record.subject.wheel or Absent("the run had no wheel of the subject")
    return Footer(record.run.id, evidence_sha256, template, wheel, str(record.run.commit))


def run_digest(record: RunRecord, *, base: RunRecord | None = None) -> str | Absent:
    """Return the digest of all evidence of a run's report, or of a run and its base.

    sha256 over one line per cell, ``CELL DIGEST`` and a line feed, in the order of their bytes.
    DIGEST is that of the cell's report, ``-`` without one. Lines of the base begin with
    ``base`` and a space.
    """
    told = [("", cell) for cell in record.cells]
    told += [("base ", cell) for cell in base.cells] if base is not None else []
    digests = [evidence_digest(cell) for _, cell in told]
    if all(isinstance(digest, Absent) for digest in digests):
        return Absent("no cell has delivered its events")
    lines = [
        f"{mark}{cell.id} {'-' if isinstance(digest, Absent) else digest}\n".encode()
        for (mark, cell), digest in zip(told, digests, strict=True)
    ]
    return hashlib.sha256(b"".join(sorted(lines))).hexdigest()
