"""Entries of an export: tests, checks, and jobs that no test or check explains.

A test that is missing, did not run or is unfinished is never passed. Tests that a source only
counts have no line: it stands beside them, as a count.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from orchestrator.domain.event_facts import CheckFact, TestFact
from orchestrator.domain.outcome import Counts, Outcome, TestOutcome
from orchestrator.domain.parsed_results import ParsedTest
from orchestrator.domain.run_record import CellRecord, Evidence, JobRecord

_ILLEGAL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ud800-\udfff\ufffe\uffff]")
"""Characters that XML documents do not allow."""
_CHECKED = {"passed": TestOutcome.PASSED, "skipped": TestOutcome.SKIPPED}
_GOOD = frozenset(
    {TestOutcome.PASSED, TestOutcome.SKIPPED, TestOutcome.XFAILED, TestOutcome.XPASSED}
)


class EntryKind(StrEnum):
    """Kind of an entry."""

    TEST = "test"
    CHECK = "check"
    JOB = "job"
    """A job without tests and checks, or one whose failure none of them explains."""
    CELL = "cell"
    """A cell without jobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportEntry(ParsedTest):
    """An entry of an export, as the result of a test.

    Its `nodeid` is the original name of a test, check, job or cell; `clean` it for a document.
    """

    kind: EntryKind
    word: str
    """A test's outcome, ``timed_out`` of a job ..."""

    @property
    def is_good(self) -> bool:
        """Whether it does not prevent a pass."""
        return self.outcome in _GOOD

    @property
    def is_flaky(self) -> bool:
        """Whether it passed after a failed try."""
        return self.outcome is TestOutcome.PASSED and any(o not in _GOOD for o in self.earlier)


@dataclass(frozen=True, slots=True)
class ExportGroup:
    """A job of a cell with its entries; a cell without jobs is a group without a job."""

    cell: CellRecord
    job: JobRecord | None
    entries: tuple[ExportEntry, ...] = field(default=())

    @property
    def name(self) -> str:
        """Return the name: ``aws-a10g/moe``."""
        return f"{self.cell.id}/{self.job.id}" if self.job else self.cell.id

    @property
    def unnamed(self) -> dict[str, int]:
        """Return numbers of unnamed tests by outcome."""
        counts = self.job.unnamed.as_dict() if self.job else {}
        return {word: number for word, number in counts.items() if number}


def groups_of(evidence: Evidence, cells: Sequence[CellRecord]) -> Iterator[ExportGroup]:
    """Return every job of the cells, in order."""
    for cell in cells:
        tests: dict[str, list[TestFact]] = defaultdict(list)
        for test in evidence.tests.get(cell.id, ()):
            tests[test.job].append(test)
        for job in cell.jobs:
            yield ExportGroup(cell, job, tuple(_entries(cell, job, tests[job.id])))
        if not cell.jobs:
            yield ExportGroup(cell, None, (_of_cell(cell),))


def numbers_of(groups: Sequence[ExportGroup], cells: Sequence[CellRecord]) -> dict[str, int]:
    """Return the numbers of tests by outcome, cells, jobs, and other entries by kind."""
    counts = sum((cell.counts for cell in cells), Counts())
    found = Counter(entry.kind for group in groups for entry in group.entries)
    told = {"tests": counts.collected}
    told |= {f"tests.{word}": number for word, number in counts.as_dict().items() if number}
    told |= {"cells": len(cells), "jobs": sum(len(cell.jobs) for cell in cells)}
    told |= {f"cases.{kind}": found[kind] for kind in EntryKind if kind is not EntryKind.TEST}
    return told


def clean(text: str) -> str:
    """Return the text with a mark for each illegal character."""
    return _ILLEGAL.sub("\ufffd", text)


def _is_excused(cell: CellRecord) -> bool:
    """Whether an unavailable optional platform is ignored."""
    return cell.outcome is Outcome.NOT_AVAILABLE and cell.platform.optional


def _entries(cell: CellRecord, job: JobRecord, tests: Sequence[TestFact]) -> Iterator[ExportEntry]:
    timed = cell.ingested is None
    lines = [_of_test(test, timed=timed) for test in tests]
    lines += [_of_check(check) for check in job.checks]
    yield from lines
    is_explained = any(not line.is_good for line in lines)
    if job.outcome is Outcome.PASSED:
        if not lines and not job.unnamed.collected:
            yield _of_job(job, TestOutcome.PASSED)
    elif not is_explained:
        yield _of_job(job, TestOutcome.SKIPPED if _is_excused(cell) else TestOutcome.ERROR)


def _of_test(test: TestFact, *, timed: bool) -> ExportEntry:
    """Return a test's entry; `timed`: whether a duration of zero was measured."""
    has_run = test.outcome not in (TestOutcome.MISSING, TestOutcome.NOT_RUN)
    return ExportEntry(
        test.nodeid,
        test.outcome,
        test.duration_s if has_run and (timed or test.duration_s) else None,
        test.reason,
        test.message or _absence(test.outcome),
        test.text,
        test.earlier,
        kind=EntryKind.TEST,
        word=test.outcome.word,
    )


def _absence(outcome: TestOutcome) -> str:
    if outcome is TestOutcome.MISSING:
        return "it was announced, and never reported"
    if outcome is TestOutcome.NOT_RUN:
        return "it was announced, and never started, because its job gave up"
    return ""


def _of_check(check: CheckFact) -> ExportEntry:
    outcome = _CHECKED.get(check.outcome, TestOutcome.FAILED)
    figure = " ".join(part for part in (check.value, check.unit) if part)
    bound = f"tolerance {check.tolerance}" if check.tolerance else ""
    said = ", ".join(part for part in (figure, bound) if part)
    message = "; ".join(part for part in (check.reason, said) if part)
    return ExportEntry(
        check.name,
        outcome,
        reason=check.reason,
        message=message,
        kind=EntryKind.CHECK,
        word=outcome.word,
    )


def _of_job(job: JobRecord, outcome: TestOutcome) -> ExportEntry:
    word = job.outcome.value if job.outcome else "not_finished"
    return ExportEntry(
        job.title or job.id,
        outcome,
        job.duration_s,
        job.reason,
        message=job.why if job.outcome else "the job is not over",
        kind=EntryKind.JOB,
        word=word,
    )


def _of_cell(cell: CellRecord) -> ExportEntry:
    word = cell.outcome.value if cell.outcome else "not_finished"
    outcome = TestOutcome.SKIPPED if _is_excused(cell) else TestOutcome.ERROR
    return ExportEntry(
        cell.id,
        outcome,
        reason=cell.reason or word,
        message=cell.why or word,
        kind=EntryKind.CELL,
        word=word,
    )
